// SPDX-License-Identifier: Apache-2.0
/*
 * `tracectl trigger add`: from now on a slow region takes a snapshot.
 */
#include <stdio.h>

#include "client/core/ctl.h"
#include "client/core/target.h"
#include "client/ui/command.h"
#include "client/ui/trigger.h"

struct options {
	const char *region;
	uint64_t over, cooldown, after, max_per_hour;
	bool has_cooldown, has_max_per_hour;
};

static const struct option_spec specs[] = {
	{.name = "region",
		.letter = 'r',
		.type = OPTION_STRING,
		.offset = offsetof(struct options, region),
		.arg = "NAME",
		.doc = "The region's name, as the program gives it."},
	{.name = "over",
		.type = OPTION_DURATION,
		.offset = offsetof(struct options, over),
		.arg = "TIME",
		.min = 1,
		.max = 3600 * DURATION_S,
		.doc = "A region that takes this long or longer is a hit. Times have a unit: ns, "
		       "us, ms, s, m (minutes) or h, as in 5ms or 1.5s."},
	{.name = "cooldown",
		.type = OPTION_DURATION,
		.offset = offsetof(struct options, cooldown),
		.given = offsetof(struct options, has_cooldown),
		.arg = "TIME",
		.max = 86400 * DURATION_S,
		.doc = "After a hit, only count further ones for this time; 10s if not given."},
	{.name = "max-per-hour",
		.type = OPTION_UINT,
		.offset = offsetof(struct options, max_per_hour),
		.given = offsetof(struct options, has_max_per_hour),
		.arg = "N",
		.max = 100000,
		.doc = "Take at most this many snapshots in any hour; 60 if not given. 0: only the "
		       "cooldown limits them."},
	{.name = "after",
		.type = OPTION_DURATION,
		.offset = offsetof(struct options, after),
		.arg = "TIME",
		.max = 60 * DURATION_S,
		.doc = "Take the snapshot this long after the region's end, so that it shows what "
		       "follows; at once if not given."},
	{0},
};

static int add_exec(struct ctl *ctl, const void *options, const char *const *operands, size_t n)
{
	const struct options *o = options;
	_cleanup_json_ struct json_object *result = NULL;
	struct json_object *params;
	int r;

	if (!o->region || !o->over)
		return ctl_fail(ctl, EXIT_USAGE, "usage",
			"--%s is needed: tracectl trigger add %s --region NAME --over 5ms",
			o->region ? "over" : "region", operands[0]);
	r = target_check_operands(ctl, operands, 1);
	if (r == EXIT_OK)
		r = ctl_connect(ctl);
	if (r != EXIT_OK)
		return r;
	params = json_object_new_object();
	json_add_string(params, "region", o->region);
	json_add_uint(params, "over_ns", o->over);
	if (o->has_cooldown)
		json_add_uint(params, "cooldown_ns", o->cooldown);
	if (o->has_max_per_hour)
		json_add_uint(params, "max_per_hour", o->max_per_hour);
	if (o->after)
		json_add_uint(params, "after_ns", o->after);
	r = target_call(ctl, "trigger.add", operands[0], params, &result);
	if (r != EXIT_OK)
		return r;
	if (ctl->json)
		ctl_print_json(result);
	else
		trigger_view(stdout, field(result, "trigger"));
	return EXIT_OK;
}

const struct command cmd_trigger_add = {
	.name = "trigger add",
	.args = "PID|TARGET",
	.summary = "take a snapshot whenever a region is slow",
	.doc = "Takes a snapshot of the whole target, with stacks, waits and events, whenever a region "
	       "of this name takes too long in one of the target's programs. The snapshot shows which "
	       "region it was, how long it took and in which thread, and marks it in the timeline. The "
	       "target is a program that writes events (tracectl list shows them) or anything that is "
	       "armed. Programs and regions may come later; the trigger ends with its target.\n\n"
	       "No snapshot is taken of a hit within the cooldown or over the hourly limit, while the "
	       "trigger's last snapshot is still being made, or when there is no room; tracectl trigger "
	       "list counts such hits by reason. A program does not even report hits within the "
	       "cooldown.",
	.example = "tracectl trigger add 1234 --region serve --over 5ms --cooldown 1m",
	.options = specs,
	.options_size = sizeof(struct options),
	.operand = OPERAND_TARGET,
	.min_operands = 1,
	.max_operands = 1,
	.exec = add_exec,
};
