/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What rings have of a target, set aside before it is overwritten: as groups of its own that have
 * no events, and rings that nobody writes to. Of a target that has ended what is in shared rings;
 * of a frozen recording all that is written to still.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

struct aside;
struct event_group;
struct sampler;
struct source;
struct target;

/* For the sampler's end: those that wait. */
void asides_free(struct sampler *sampler);

/*
 * On a thread; soon the target's sources are groups of that kind. Without memory for it they stay
 * what they are, and that is a warning.
 */
void aside_begin(struct target *target);

/* Of a frozen recording, on the loop: references to its sources. NULL: no memory. */
struct aside *aside_new(const struct source *sources, size_t n_sources, uint64_t now_ns);
struct aside *aside_free(struct aside *a);
/*
 * Any thread: copies what they have of these processes, whose list it takes over; *ret_bytes, at
 * most `max_bytes`. 0; -EDQUOT: that was too little; -ECANCELED: `cancel` was set; -errno: then
 * nothing is copied.
 */
int aside_copy(struct aside *a, pid_t *pids, size_t n_pids, uint64_t max_bytes,
	       const atomic_bool *cancel, uint64_t *ret_bytes) _must_check_;
/* Then: in place of the group of that source; NULL: nobody writes to that any more. */
struct event_group *aside_group(const struct aside *a, size_t source);
