// SPDX-License-Identifier: Apache-2.0
/*
 * `tracectl snapshots`: the snapshots in the daemon's spool that this user may see.
 */
#include <stdio.h>
#include <stdlib.h>

#include "client/command.h"
#include "client/ctl.h"
#include "client/human.h"
#include "client/view.h"

struct options {
	bool ids;
};

static const struct option_spec specs[] = {
	{.name = "ids",
		.letter = 'q',
		.type = OPTION_FLAG,
		.offset = offsetof(struct options, ids),
		.doc = "Print the ids only, one a line."},
	{0},
};

static int snapshots_exec(
	struct ctl *ctl, const void *options, const char *const *operands, size_t n)
{
	const struct options *o = options;
	_cleanup_json_ struct json_object *snapshots = NULL, *all = NULL;
	int r = ctl_list(ctl, "snapshot.list", "snapshots", &snapshots);

	if (r != EXIT_OK)
		return r;
	if (ctl->json) {
		all = json_object_new_object();
		json_add(all, "snapshots", take_ptr(snapshots));
		ctl_print_json(all);
		return EXIT_OK;
	}
	if (o->ids) {
		for (size_t i = 0; i < json_object_array_length(snapshots); i++) {
			_cleanup_free_ char *id = human_name(
				field_text(json_object_array_get_idx(snapshots, i), "id"));

			(void)puts(id);
		}
		return EXIT_OK;
	}
	if (!json_object_array_length(snapshots))
		(void)puts("there are no snapshots");
	view_snapshots(stdout, snapshots);
	return EXIT_OK;
}

const struct command cmd_snapshots = {
	.name = "snapshots",
	.args = "",
	.summary = "list snapshots",
	.doc = "Lists the snapshots that you may see, newest first: those that run and those in "
	       "the daemon's spool, until they are deleted or the spool's limits remove them.",
	.options = specs,
	.options_size = sizeof(struct options),
	.exec = snapshots_exec,
};
