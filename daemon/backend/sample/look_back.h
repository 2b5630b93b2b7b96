/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the rings of a target hold, and how far back they reach: the sampling back end's answers to
 * that, see daemon/target/backend.h.
 */
#pragma once

#include <stdbool.h>

#include "daemon/target/backend.h"

void look_back_survey(struct target *target);
bool look_back_is_surveying(const struct target *target);
int look_back_job(const struct target *target, struct backend_job **ret);
/* Numbers of the last survey; for present ones call targets_survey() before. */
void look_back_stats(const struct target *target, struct backend_stats *ret);
