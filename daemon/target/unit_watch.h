/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sees at once that the control group of a unit is made anew, and that its first process comes: at
 * its next look otherwise, which is up to a second later. What it misses costs that second and
 * nothing else.
 */
#pragma once

#include "common/base/cleanup.h"

struct target;
struct targets;
struct unit_watch;

int unit_watch_new(struct targets *targets, struct unit_watch **ret) _must_check_;
struct unit_watch *unit_watch_free(struct unit_watch *watch);
/* The unit has this control group now. */
void unit_watch_set(struct unit_watch *watch, struct target *target);
/* The target goes, or its control group. */
void unit_watch_clear(struct unit_watch *watch, struct target *target);
