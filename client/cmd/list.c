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
	.doc = "Lists the targets that you may see, with how their stacks are found, by which "
	       "kind of events they are recorded, how far back their recording reaches at this "
	       "moment, and what was lost. A program that writes events of its own (libtracerd) is "
	       "a target as "
	       "soon as it has started; RINGS are its event rings, and where nobody armed it "
	       "(EVENTS own) nothing "
	       "else is recorded.",
	.options = listing_specs,
	.options_size = sizeof(struct listing_options),
	.exec = list_exec,
};
