// SPDX-License-Identifier: Apache-2.0
/*
 * The back end of a target that nobody armed: its program has registered event rings, and those are all that is
 * recorded. No samples, no history, nothing that costs anything.
 */
#include <stdio.h>

#include "daemon/backend/backend.h"
#include "daemon/target/target_internal.h"

static bool events_probe(const struct targets *targets, const char **ret_method, char *why, size_t why_size)
{
	*ret_method = "none";
	(void)snprintf(why, why_size, "programs that register event rings by themselves");
	return true;
}

static int events_arm(struct target *target, char *why, size_t why_size)
{
	return 0;
}

static int events_review(struct target *target, bool members_added)
{
	return 0;
}

static void events_nothing(struct target *target)
{
}

static int events_freeze(struct target *target, struct frozen *frozen)
{
	return 0;
}

static int events_copy(struct frozen *frozen, struct perfdata_writer *writer, struct frozen_stats *stats)
{
	return 0;
}

static void events_resume(struct frozen *frozen)
{
}

static void events_stats(struct target *target, struct backend_stats *ret)
{
	*ret = (struct backend_stats){.method = "none"};
}

const struct backend backend_events = {
	.name = "events",
	.probe = events_probe,
	.arm = events_arm,
	.review = events_review,
	.settle = events_nothing,
	.stop = events_nothing,
	.disarm = events_nothing,
	.freeze = events_freeze,
	.copy = events_copy,
	.resume = events_resume,
	.stats = events_stats,
};
