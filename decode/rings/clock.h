/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the way from the stamps of one copy of rings to MONOTONIC_RAW, and the time in which its
 * program can have written any: from its start to the end of the copy. A stamp from elsewhere is
 * wrong, and would stretch a trace to 584 years.
 *
 * The conversion never runs backwards.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/bundle/ringfile.h"
#include "decode/base/clockmap.h"

struct ringclock {
	struct ringclock_point {
		uint64_t stamp, raw;
	} * points; /* rising in both */
	size_t n, last;
	uint64_t oldest, newest; /* ns: what lies outside is wrong */
};

/*
 * `source` of the brackets is the TSC, `monotonic` is MONOTONIC_RAW. `started` is a stamp by which
 * the program says when it began, 0: it does not. 0 or -ENOMEM.
 */
int ringclock_init(struct ringclock *c, const struct ringfile_header *h,
	const struct clock_bracket *brackets, size_t n_brackets, uint64_t started_u) _must_check_;
void ringclock_fini(struct ringclock *c);

/* Where a stamp lies, in ns; false if that is no time at which it can have been taken. */
bool ringclock_place(struct ringclock *c, uint64_t stamp_u, uint64_t *ret_ns);
