/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What shared rings have of a target that has ended, set aside before others overwrite it: as a group of its own that has no
 * events, and rings that nobody writes to.
 */
#pragma once

struct sampler;
struct target;

/* For the sampler's end: those that wait. */
void asides_free(struct sampler *sampler);

/* On a thread; soon the target's sources are groups of that kind. Without memory for it they stay what they are, and that is a warning. */
void aside_begin(struct target *target);
