// SPDX-License-Identifier: Apache-2.0
/*
 * `tracectl trigger list`: the triggers that this user may see.
 */
#include "client/core/target.h"
#include "client/ui/command.h"
#include "client/ui/listing.h"
#include "client/ui/trigger.h"

static int list_exec(struct ctl *ctl, const void *options, const char *const *operands, size_t n)
{
	_cleanup_json_ struct json_object *params = json_object_new_object(), *target = NULL;
	const struct listing listing = {
		.method = "trigger.list",
		.params = params,
		.member = "triggers",
		.empty = "there are no triggers: 'tracectl trigger add TARGET --region NAME --over "
			 "5ms' adds one",
		.view = trigger_view_list,
	};
	int r;

	if (n) {
		/* by the target's id: a process that is not a target gets its own message */
		r = target_check_operands(ctl, operands, 1);
		if (r == EXIT_OK)
			r = ctl_connect(ctl);
		if (r == EXIT_OK)
			r = target_call(ctl, "target.show", operands[0], NULL, &target);
		if (r != EXIT_OK)
			return r;
		json_add_string(params, "target", field_text(field(target, "target"), "id"));
	}
	return listing_print(ctl, options, &listing);
}

const struct command cmd_trigger_list = {
	.name = "trigger list",
	.args = "[TARGET]",
	.summary = "list triggers and their hits",
	.doc = "Lists the triggers that you may see, or those of one target: what they watch, in how "
	       "many programs, how often they were hit, and how many hits became snapshots. The others "
	       "are counted by reason: cooldown, per hour, busy (the last snapshot is still being made, "
	       "or too many wait), quota, no space, program (the program did not report them, within "
	       "the cooldown), below, gone (the target ended first). Not counted are hits that the program "
	       "overwrote before the daemon read them, as it may with hundreds in a second: tracectl status "
	       "has their number for all programs together, as lost event causes.",
	.options = listing_specs,
	.options_size = sizeof(struct listing_options),
	.operand = OPERAND_TARGET,
	.max_operands = 1,
	.exec = list_exec,
};
