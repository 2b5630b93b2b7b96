/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far back a target is to reach (arm --keep), and the rings for that: measures how far they do
 * reach, and asks for larger ones where that is less. Rings that were once needed stay until the
 * target is disarmed. Owned by struct sampling.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "daemon/target/target.h"

struct keep;

/* 0, -ENOMEM; *ret is NULL for a target that asks for nothing. */
int keep_new(struct target *target, struct keep **ret) _must_check_;
struct keep *keep_free(struct keep *keep);
/* The target of the recording is another one now. */
void keep_moved(struct keep *keep, struct target *target);

/*
 * The sizes that rings of each kind should have, with such stacks; 0: as configured. All take NULL
 * for `keep`.
 */
size_t keep_ring_bytes(const struct keep *keep, enum stacks_mode stacks);
size_t keep_switch_bytes(const struct keep *keep, enum stacks_mode stacks);
/* The target records to other rings now: they are measured soon. */
void keep_restart(struct keep *keep);
/* A survey is done, perhaps of its rings. */
void keep_surveyed(struct keep *keep);
/*
 * Larger rings could not be had: asks for smaller ones, if these would still be larger than the
 * present ones.
 */
void keep_refused(struct keep *keep, const char *why);
void keep_stop(struct keep *keep);
/*
 * Why the rings are no larger, though they reach back less far than asked for; NULL: not known, or
 * they do.
 */
const char *keep_short(const struct keep *keep);

/*
 * The size of a ring that reaches back `want_ns`, if one of `bytes` reaches back `have_ns`: a power
 * of two times `bytes`.
 */
size_t keep_size(size_t bytes, uint64_t have_ns, uint64_t want_ns);
