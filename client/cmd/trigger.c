// SPDX-License-Identifier: Apache-2.0
/*
 * `tracectl trigger`: what its commands have in common.
 */
#include "client/ui/command.h"

static const struct command *const trigger_commands[] = {
	&cmd_trigger_add,
	&cmd_trigger_list,
	&cmd_trigger_remove,
	NULL,
};

const struct command cmd_trigger = {
	.name = "trigger",
	.args = "COMMAND",
	.summary = "take snapshots when a region is slow or a place is reached",
	.doc = "A trigger takes a snapshot of a target by itself whenever a region of one of its "
	       "programs takes too long. Regions are what a program marks with libtracerd (tracerd_region_begin(), "
	       "TRACERD_SCOPE()). The program itself compares at each region's end, and talks to the "
	       "daemon only about slow ones: while all is well, a trigger costs nothing. A trigger can also "
	       "be on a place in the code (--hit): then the processor or the kernel reports that a thread "
	       "has come there.",
	.commands = trigger_commands,
};
