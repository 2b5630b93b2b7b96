// SPDX-License-Identifier: Apache-2.0
/*
 * `tracectl trigger add`: from now on a slow region, or a thread that comes to a place in the code,
 * takes a snapshot.
 */
#include <stdio.h>
#include <string.h>

#include "client/core/ctl.h"
#include "client/core/place.h"
#include "client/core/target.h"
#include "client/ui/command.h"
#include "client/ui/trigger.h"

struct options {
	const char *region, *go, *hit, *by;
	uint64_t in;
	uint64_t over, cooldown, after, max_per_hour;
	bool has_cooldown, has_max_per_hour;
};

static const struct option_spec specs[] = {
	{.name = "region",
	 .letter = 'r',
	 .type = OPTION_STRING,
	 .offset = offsetof(struct options, region),
	 .arg = "NAME",
	 .doc = "The region's name, as the program gives it: at most 216 bytes, valid UTF-8 without control characters. A "
		"program may have other names, on which there can be no trigger."},
	{.name = "go",
	 .type = OPTION_CHOICE,
	 .offset = offsetof(struct options, go),
	 .arg = "WHAT",
	 .choices = "runnable|gc-stop|other-stop",
	 .doc = "Instead of a region, in Go programs with tracerd's module. runnable: a goroutine waits to run. gc-stop: the world "
		"is stopped for the garbage collector. other-stop: for something else. Known up to 100 ms later; Go counts one wait "
		"of eight."},
	{.name = "over",
	 .type = OPTION_DURATION,
	 .offset = offsetof(struct options, over),
	 .arg = "TIME",
	 .min = 1,
	 .max = 3600 * DURATION_S,
	 .doc = "What takes this long or longer is a hit. Times have a unit: ns, "
		"us, ms, s, m (minutes) or h, as in 5ms or 1.5s."},
	{.name = "hit",
	 .type = OPTION_STRING,
	 .offset = offsetof(struct options, hit),
	 .arg = "PLACE",
	 .doc = "Instead of a region: whenever a thread comes to this place in the code. A function "
		"(serve, ns::Class::serve, 'ns::f(int)' of several that have the name, main.(*T).M of Go, or "
		"serve@libfoo.so of that file alone), FILE:LINE, or an address (0x55d0c0de)."},
	{.name = "hit-by",
	 .type = OPTION_CHOICE,
	 .offset = offsetof(struct options, by),
	 .arg = "HOW",
	 .choices = "auto|breakpoint|uprobe",
	 .doc = "breakpoint: one of the four that the processor has for each thread. uprobe: by the "
		"kernel, which writes into the program's copy of the code; tracerd needs "
		"CAP_SYS_ADMIN for that, each pass costs the program some microseconds, and threads "
		"that begin while it watches are not watched. auto, the default: a breakpoint, or a "
		"uprobe where none is free."},
	{.name = "in",
	 .type = OPTION_UINT,
	 .offset = offsetof(struct options, in),
	 .arg = "PID",
	 .min = 1,
	 .max = 1 << 22,
	 .doc = "The process in which the place is looked up: needed if the target is a unit."},
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
	 .doc = "Take the snapshot this long after the region's end, or the hit, so that it shows what "
		"follows; at once if not given."},
	{0},
};

/* The process whose code is meant: the target's, or the one that the user names. An exit code. */
static int process_of(struct ctl *ctl, const struct options *o, const char *operand, pid_t *ret)
{
	_cleanup_json_ struct json_object *result = NULL;
	uint64_t pid = o->in;
	int r;

	if (!pid) {
		r = target_call(ctl, "target.show", operand, NULL, &result);
		if (r != EXIT_OK)
			return r;
		pid = field_number(field(result, "target"), "pid");
	}
	if (!pid)
		return ctl_fail(ctl, EXIT_USAGE, "usage",
				"%s has many processes: --in PID says whose code is meant",
				operand);
	*ret = (pid_t)pid;
	return EXIT_OK;
}

/* Adds where the place is to `params`. An exit code. */
static int add_place(struct ctl *ctl, const struct options *o, const char *operand,
		     struct json_object *params)
{
	_cleanup_(places_fini) struct places places = {0};
	const struct place *p;
	pid_t pid = 0;
	int r;

	r = process_of(ctl, o, operand, &pid);
	if (r == EXIT_OK)
		r = place_find_one(ctl, pid, o->hit, &places);
	if (r != EXIT_OK)
		return r;
	p = &places.v[0];
	/* A uprobe in the middle of an instruction would change the program. */
	if (p->boundary_known && !p->boundary)
		return ctl_fail(ctl, EXIT_USAGE, "usage",
				"no instruction begins at %s, in the function %s", o->hit, p->name);
	if (!p->boundary && o->by && strcmp(o->by, "uprobe") == 0)
		return ctl_fail(
			ctl, EXIT_USAGE, "usage",
			"that an instruction begins at %s cannot be told: its function is not known, or its code cannot be read (of "
			"32-bit programs it is not); use --hit-by breakpoint",
			o->hit);
	json_add_string(params, "hit", o->hit);
	json_add_uint(params, "hit_major", p->maj);
	json_add_uint(params, "hit_minor", p->min);
	json_add_uint(params, "hit_inode", p->ino);
	json_add_uint(params, "hit_offset", p->offset);
	json_add_string(params, "hit_by", o->by ? o->by : p->boundary ? "auto" : "breakpoint");
	place_note_others(ctl, &places, o->hit, "no hit");
	return EXIT_OK;
}

static int check_options(struct ctl *ctl, const struct options *o, const char *operand)
{
	if (o->hit && (o->region || o->go || o->over))
		return ctl_fail(
			ctl, EXIT_USAGE, "usage",
			"a trigger is on a place (--hit) or on what takes a time (--region or --go, and --over)");
	if (o->region && o->go)
		return ctl_fail(ctl, EXIT_USAGE, "usage", "a trigger has --region or --go");
	if (!o->hit && (o->by || o->in))
		return ctl_fail(ctl, EXIT_USAGE, "usage", "--%s goes with --hit",
				o->by ? "hit-by" : "in");
	if (!o->hit && ((!o->region && !o->go) || !o->over))
		return ctl_fail(
			ctl, EXIT_USAGE, "usage",
			"--%s is needed: tracectl trigger add %s --region NAME --over 5ms, or --hit FUNCTION",
			o->region || o->go ? "over" : "region", operand);
	return EXIT_OK;
}

static int add_exec(struct ctl *ctl, const void *options, const char *const *operands, size_t n)
{
	const struct options *o = options;
	_cleanup_json_ struct json_object *result = NULL, *params = NULL;
	int r;

	r = check_options(ctl, o, operands[0]);
	if (r == EXIT_OK)
		r = target_check_operands(ctl, operands, 1);
	if (r == EXIT_OK)
		r = ctl_connect(ctl);
	params = json_object_new_object();
	if (r == EXIT_OK && o->hit)
		r = add_place(ctl, o, operands[0], params);
	if (r != EXIT_OK)
		return r;
	if (o->region)
		json_add_string(params, "region", o->region);
	if (o->go)
		json_add_string(params, "go", o->go);
	if (!o->hit)
		json_add_uint(params, "over_ns", o->over);
	if (o->has_cooldown)
		json_add_uint(params, "cooldown_ns", o->cooldown);
	if (o->has_max_per_hour)
		json_add_uint(params, "max_per_hour", o->max_per_hour);
	if (o->after)
		json_add_uint(params, "after_ns", o->after);
	r = target_call(ctl, "trigger.add", operands[0], take_ptr(params), &result);
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
	.summary = "take a snapshot whenever a region is slow, or a function is called",
	.doc = "Takes a snapshot of the whole target, with stacks, waits and events, whenever a region "
	       "of this name takes too long in one of the target's programs. The snapshot shows which "
	       "region it was, how long it took and in which thread, and marks it in the timeline. The "
	       "target is a program that writes events (tracectl list shows them) or anything that is "
	       "armed. Programs and regions may come later; the trigger ends with its target.\n\n"
	       "With --hit it is a place in the code instead, and nothing in the program has to know of it. The "
	       "place is looked up in the running process, with your rights and by its symbols and debug "
	       "information, also if its file was replaced or deleted since it was mapped (of libraries only root can read that); a "
	       "name that means several places is refused, and the message lists them. A "
	       "snapshot then shows the thread, the moment of the hit, and how long after it the recording "
	       "was frozen. Where the kernel can pause Intel PT (Linux 6.13 and later), the trace of the thread "
	       "ends with the hit itself; tracectl trigger list says of which threads. All threads of the target are watched, also new ones; new processes are as soon "
	       "as they are noticed, within some tenths of a second, and so is another program that a "
	       "process executes, if it has the same file. After a hit the place is not watched until the "
	       "cooldown is over, so hits within it are not all counted.\n\n"
	       "No snapshot is taken of a hit within the cooldown or over the hourly limit, while the "
	       "trigger's last snapshot is still being made, or when there is no room; tracectl trigger "
	       "list counts such hits by reason. A program does not even report hits within the "
	       "cooldown.",
	.example = "tracectl trigger add 1234 --region serve --over 5ms --cooldown 1m\n"
		   "tracectl trigger add 1234 --hit report_error",
	.options = specs,
	.options_size = sizeof(struct options),
	.operand = OPERAND_TARGET,
	.min_operands = 1,
	.max_operands = 1,
	.exec = add_exec,
};
