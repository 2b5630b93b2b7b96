/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Intel PT bytes of a recording: which buffers there are (one a CPU or one a thread), how they
 * were recorded, and where the blocks begin that can be followed on their own (PSB). Reads
 * perf.data's AUXTRACE_INFO, AUXTRACE and AUX records; a raw blob with a description stands for a
 * recording with one buffer. It must not know code and threads.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"
#include "decode/pt/time.h"

struct json_object;
struct perfdata;
struct auxtrace;

#define AUXTRACE_MAX_BUFFERS 4096u
#define AUXTRACE_MIN_BLOCK 1024u

struct auxtrace_config {
	struct pttime_config time;
	/* perf clock = zero + (tsc * mult >> shift), modulo 2^64; mult 0: the trace has no time */
	uint16_t shift;
	uint32_t mult;
	uint64_t zero;
	bool per_cpu, snapshot;
	bool kernel;	   /* the kernel was traced, too */
	uint16_t family, model, stepping; /* of the processor; 0: not known */
	char filter[256];  /* address filters, as perf wrote them */
};

struct auxtrace_buffer {
	uint32_t idx;
	int32_t tid, cpu; /* -1: of any */
	uint64_t bytes;	  /* all of it, in order of time; what a snapshot has twice is there once */
};

/* From a PSB to another one; those that come close upon it are within. */
struct auxtrace_block {
	uint32_t buffer; /* index */
	uint64_t offset, bytes; /* in the buffer */
	uint64_t tsc;	 /* of the PSB+, whole as pttime makes it; 0: it has none */
	bool lost_before; /* bytes before it are missing or were overwritten */
	/* the next block follows, with nothing missing between: auxtrace_read() reads on */
	bool joined;
};

enum { AUXTRACE_E_NONE = 1, /* the recording has no PT */ AUXTRACE_E_INVALID };

int auxtrace_new(struct perfdata *pd, struct budget *budget, struct auxtrace **ret) _must_check_;
struct auxtrace *auxtrace_free(struct auxtrace *p);
DEFINE_CLEANUP(struct auxtrace *, auxtrace_free)

const struct auxtrace_config *auxtrace_config(const struct auxtrace *p);
size_t auxtrace_n_buffers(const struct auxtrace *p);
const struct auxtrace_buffer *auxtrace_buffer(const struct auxtrace *p, size_t i);

/* Finds the blocks of all buffers, in each in order of its offset. 0 or -errno. */
int auxtrace_scan(struct auxtrace *p) _must_check_;
size_t auxtrace_n_blocks(const struct auxtrace *p);
const struct auxtrace_block *auxtrace_block(const struct auxtrace *p, size_t i);

/* Bytes of a buffer; returns how many there are (0..n). Not for two threads at once. */
size_t auxtrace_read(struct auxtrace *p, uint32_t buffer, uint64_t offset, void *ret, size_t n);

/* A stamp on the perf clock; 0 if the trace has no time. */
uint64_t auxtrace_ns(const struct auxtrace_config *c, uint64_t tsc);

/* Adds what was skipped, truncated, overwritten. */
void auxtrace_report(const struct auxtrace *p, struct json_object *stats,
		     struct json_object *losses);
