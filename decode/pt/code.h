/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The code that processes ran, at each time of the recording: address spaces in versions (side-band
 * changes them), and the bytes at an address, from the images, the vDSO and captured pages. Built once, before
 * anything is decoded; then read by many threads at once, but for what is opened on demand, which is locked.
 *
 * Code that cannot be had is counted by the object's name and bytes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"

struct callfunc;
struct image;
struct insn;
struct images;
struct json_object;
struct perfevent;
struct ptcode;
struct ptcode_version; /* of one process's address space */

int ptcode_new(struct images *images, struct budget *budget, struct ptcode **ret) _must_check_;
/* Each record, in the order of time; then the files of all code are opened, while the parent can be asked. 0 or -errno. */
void ptcode_record(struct ptcode *c, const struct perfevent *ev);
int ptcode_open(struct ptcode *c) _must_check_;
struct ptcode *ptcode_free(struct ptcode *c);
DEFINE_CLEANUP(struct ptcode *, ptcode_free)

/* The address space of a process at a time of the perf clock; NULL: nothing is known of it. */
const struct ptcode_version *ptcode_at(const struct ptcode *c, uint32_t pid, uint64_t time);
/* Whether code is mapped there (not: whether its bytes can be had). */
bool ptcode_is_mapped(const struct ptcode_version *v, uint64_t ip);
/* What is mapped there, NULL: nothing. Borrowed, for as long as the images are. `v` may be NULL. */
const struct image *ptcode_image(const struct ptcode_version *v, uint64_t ip);
/* For struct codeblocks: bytes at `ip`, in *ret; how many follow there, 0: none. Any thread. */
size_t ptcode_read(const struct ptcode_version *v, uint64_t ip, const uint8_t **ret, uint8_t *buffer, size_t n);
/* The instruction there; false: its bytes cannot be had, or are none. */
bool ptcode_insn(const struct ptcode_version *v, uint64_t ip, bool is64, struct insn *ret);
/* Counts that code was run there of which no byte can be had. Any thread. */
void ptcode_missing(const struct ptcode_version *v, uint64_t ip);

/* The function at an address; whether that is its first instruction. Any thread. Never NULL. */
const struct callfunc *ptcode_function(const struct ptcode_version *v, uint64_t ip, bool *ret_first);
/* Whether an exception out of the call around `call` lands on `pad`. Any thread. */
bool ptcode_lands(const struct ptcode_version *v, uint64_t call, uint64_t pad);

void ptcode_report(const struct ptcode *c, struct json_object *losses);
