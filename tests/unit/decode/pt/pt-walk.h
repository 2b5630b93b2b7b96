/* SPDX-License-Identifier: Apache-2.0 */
/* What the modes of pt-walk share. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "decode/pt/block.h"
#include "decode/pt/flow.h"

/* The addresses of instructions as the README of the recordings counts and hashes them. */
struct ptwalk_ips {
	uint64_t n, hash;
	bool print;
	uint32_t tid; /* if not 0: printed in front of each address */
};

/* The file's bytes, ended by a zero; exits with a message if it cannot be read. */
uint8_t *ptwalk_file(const char *path, size_t *ret_n);
void ptwalk_bad_usage(const char *what) __attribute__((noreturn));
bool ptwalk_u64(const char *text, uint64_t *ret);
/* "6/158" */
void ptwalk_cpu(const char *text, struct pterrata *ret);

void ptwalk_ips_init(struct ptwalk_ips *ips, bool print);
/*
 * The instructions of the line that an event ends, decoded from the code again. False: there is no
 * code.
 */
bool ptwalk_line(struct ptwalk_ips *ips, const struct ptflow_event *e, code_read_fn read,
		 void *arg);
const char *ptwalk_kind(enum ptflow_kind kind);

int ptwalk_packets(int argc, char **argv);
int ptwalk_blob(int argc, char **argv);
int ptwalk_perfdata(int argc, char **argv);
