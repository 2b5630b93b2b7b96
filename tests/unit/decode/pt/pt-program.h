/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random programs of x86 code, run by a model: what it executed, and the packets that a processor
 * would have written, with returns compressed, addresses deferred, and PSBs and signals anywhere.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/unit/decode/pt/pt-make.h"

#define PTPROGRAM_BASE 0x401000ull
#define PTPROGRAM_CODE 16384u

enum ptprogram_what {
	PTPROGRAM_CALL,
	PTPROGRAM_RET,
	PTPROGRAM_JUMP, /* indirect */
	PTPROGRAM_COND, /* only those that are taken */
	PTPROGRAM_STOP, /* tracing: at `from` */
	PTPROGRAM_GO,
};

/* What an event is of these; -1: none that is compared. Decisions are not all handed out. */
int ptprogram_what(unsigned int kind /* enum ptflow_kind */);

struct ptprogram_branch {
	enum ptprogram_what what;
	uint64_t from, to;
};

/* A function of a program that returns to whom it was called by. */
struct ptprogram_function {
	uint64_t start, end;
	uint64_t pad; /* where it is unwound to; 0: it is not */
};

/* A call begins or ends, when so many instructions have been executed. */
struct ptprogram_call {
	uint64_t function; /* its start; 0: the innermost one ends */
	uint64_t insns;
};

#define PTPROGRAM_FUNCTIONS 32u

struct ptprogram {
	uint64_t random;
	uint8_t code[PTPROGRAM_CODE];
	size_t n_code;
	struct ptmake trace;
	uint64_t *ips;
	size_t n_ips, cap_ips;
	struct ptprogram_branch *branches;
	size_t n_branches, cap_branches;
	size_t *psbs; /* offsets in the trace */
	size_t n_psbs, cap_psbs;
	/* of one that is `tidy` */
	struct ptprogram_function functions[PTPROGRAM_FUNCTIONS];
	size_t n_functions;
	struct ptprogram_call *calls;
	size_t n_calls, cap_calls;
	unsigned int deepest;
};

struct ptprogram_options {
	size_t insns;	       /* to run */
	unsigned int psb_each; /* instructions, about; 0: only at the begin */
	unsigned int signal_each; /* 0: none */
	bool tnt47, defer, plain_returns;
	/*
	 * every function returns to where it was called from, or is unwound: what it calls is a
	 * tree
	 */
	bool tidy;
	bool throws;	/* tidy: now and then to an outer function's landing pad */
};

void ptprogram_run(struct ptprogram *p, uint64_t seed, const struct ptprogram_options *o);
void ptprogram_fini(struct ptprogram *p);

/* A code_read_fn; `arg` is the program. */
size_t ptprogram_read(void *arg, uint64_t ip, const uint8_t **ret, uint8_t *buffer, size_t n);
/* xorshift64*: the same numbers on every machine. */
uint64_t ptprogram_random(uint64_t *state, uint64_t below);
