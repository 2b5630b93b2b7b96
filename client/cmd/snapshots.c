// SPDX-License-Identifier: Apache-2.0
/*
 * `tracectl snapshots`: the snapshots in the daemon's spool that this user may see.
 */
#include "client/ui/command.h"
#include "client/ui/listing.h"
#include "client/ui/view.h"

static int snapshots_exec(
	struct ctl *ctl, const void *options, const char *const *operands, size_t n)
{
	static const struct listing listing = {
		.method = "snapshot.list",
		.member = "snapshots",
		.empty = "there are no snapshots",
		.view = view_snapshots,
	};

	return listing_print(ctl, options, &listing);
}

const struct command cmd_snapshots = {
	.name = "snapshots",
	.args = "",
	.summary = "list snapshots",
	.doc = "Lists the snapshots that you may see, newest first: those that run and those in "
	       "the daemon's spool, until they are deleted or the spool's limits remove them.",
	.options = listing_specs,
	.options_size = sizeof(struct listing_options),
	.exec = snapshots_exec,
};
