// SPDX-License-Identifier: Apache-2.0
/*
 * `tracectl list`: the targets that this user may see.
 */
#include "client/ui/command.h"
#include "client/ui/listing.h"
#include "client/ui/view.h"

static int list_exec(struct ctl *ctl, const void *options, const char *const *operands, size_t n)
{
	static const struct listing listing = {
		.method = "target.list",
		.member = "targets",
		.empty = "nothing is armed: 'tracectl arm PID' starts a recording",
		.view = view_targets,
	};

	return listing_print(ctl, options, &listing);
}

const struct command cmd_list = {
	.name = "list",
	.args = "",
	.summary = "list what is recorded",
	.doc = "Lists the targets that you may see: how their stacks are found, which kind of events "
	       "records them, how far back the recording reaches now, and what was lost. A program "
	       "that writes events of its own (libtracerd) is a target as soon as it has started. "
	       "RINGS are its event rings; until somebody arms it (EVENTS is \"own\"), nothing else "
	       "of it is recorded.",
	.options = listing_specs,
	.options_size = sizeof(struct listing_options),
	.exec = list_exec,
};
