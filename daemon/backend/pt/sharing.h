/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Targets that have threads in common: who may have the events of whom, and who pays for them. A
 * thread has one PT recording at a time, of whoever, so a target that lies within another one of
 * the same authority shares its events.
 */
#pragma once

#include <stddef.h>

struct pt_recording;
struct target;

/*
 * Another PT recording that has a thread of this target: the kernel would refuse a second one.
 * NULL: there is none.
 */
const struct target *pt_sharing_overlaps(const struct target *target);
/* Says of that one, in `why`, what can be done. The answer is TARGET_E_BUSY. */
int pt_sharing_refuse(const struct target *target, const struct target *other, char *why,
		      size_t size);
/*
 * A recording that has all of the target already, with the settings that were asked for; NULL, and
 * in `why` whether one had.
 */
struct pt_recording *pt_sharing_find(const struct target *target, char *why, size_t size);
void pt_sharing_begin(struct target *target, const struct pt_recording *other);
/* Who opened the events goes: another of their targets pays for them from now on. */
void pt_sharing_hand_over(struct target *target);
