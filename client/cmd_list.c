// SPDX-License-Identifier: Apache-2.0
/*
 * `tracectl list`: the targets that this user may see.
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

static int list_exec(struct ctl *ctl, const void *options, const char *const *operands, size_t n)
{
	const struct options *o = options;
	_cleanup_json_ struct json_object *targets = NULL, *all = NULL;
	int r = ctl_list(ctl, "target.list", "targets", &targets);

	if (r != EXIT_OK)
		return r;
	if (ctl->json) {
		all = json_object_new_object();
		json_add(all, "targets", take_ptr(targets));
		ctl_print_json(all);
		return EXIT_OK;
	}
	if (o->ids) {
		for (size_t i = 0; i < json_object_array_length(targets); i++) {
			_cleanup_free_ char *id =
				human_name(field_text(json_object_array_get_idx(targets, i), "id"));

			(void)puts(id);
		}
		return EXIT_OK;
	}
	if (!json_object_array_length(targets))
		(void)puts("nothing is armed: 'tracectl arm PID' starts a recording");
	view_targets(stdout, targets);
	return EXIT_OK;
}

const struct command cmd_list = {
	.name = "list",
	.args = "",
	.summary = "list what is armed",
	.doc = "Lists the targets that you may see, with how their stacks are found, by which "
	       "kind of events they are recorded, how far back their recording reaches at this "
	       "moment, and what was lost.",
	.options = specs,
	.options_size = sizeof(struct options),
	.exec = list_exec,
};
