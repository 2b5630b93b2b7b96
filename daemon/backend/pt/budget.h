/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a PT recording would take, before anything of it is opened: descriptors, ring memory, locked
 * memory. Each refusal is one sentence with the alternative. Numbers in, an answer out.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

#define PT_DATA_RING_BYTES (16u << 10) /* of the tracing event's own ring of each CPU */
#define PT_SIDE_RING_MIN (128u << 10)

struct pt_budget {
	/* wanted */
	uint64_t threads, cpus;
	uint64_t aux_bytes;   /* of each CPU; a power of two */
	uint64_t aux_min;     /* smaller makes no sense; the same */
	/* permitted */
	uint64_t total_bytes; /* AUX areas of one target */
	uint64_t fds_left;    /* that tracerd may still open */
	uint64_t locked_left; /* UINT64_MAX: no limit */
};

enum pt_budget_answer { PT_BUDGET_FITS, PT_BUDGET_FDS, PT_BUDGET_MEMORY, PT_BUDGET_LOCKED };

/* Halves aux_bytes until all fit. `why` is set where it does not answer FITS. */
enum pt_budget_answer pt_budget_fit(struct pt_budget *b, char *why, size_t why_size);

/*
 * The dummy event's overwrite ring of each CPU: a thread that runs for some microseconds only
 * leaves a few hundred bytes of trace and two records of 40 bytes, and both rings should reach back
 * alike.
 */
uint64_t pt_side_ring_bytes(uint64_t aux_bytes);

uint64_t pt_budget_fds(const struct pt_budget *b);
/* All rings together. */
uint64_t pt_budget_bytes(const struct pt_budget *b);

/* What the kernel and our limits leave: reads /proc and sysfs. */
void pt_budget_limits(struct pt_budget *b);
