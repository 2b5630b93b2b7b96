// SPDX-License-Identifier: Apache-2.0
/*
 * `tracectl snapshot`: take the last moments of a target, wait until they are decoded, fetch them
 * and print what is in them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/core/ctl.h"
#include "client/core/snapshot.h"
#include "client/core/target.h"
#include "client/ui/command.h"
#include "client/ui/human.h"
#include "client/ui/interrupt.h"
#include "client/ui/output.h"
#include "client/ui/report.h"
#include "client/ui/view.h"
#include "common/bundle/bundle.h"

struct options {
	const char *output, *reason;
	bool with_objects, no_wait;
	uint64_t timeout;
};

#define DEFAULT_TIMEOUT (300 * DURATION_S)

static const struct option_spec specs[] = {
	{.name = "output",
	 .letter = 'o',
	 .type = OPTION_FILE,
	 .offset = offsetof(struct options, output),
	 .arg = "PATH",
	 .doc = "Write the decoded trace to this file; or, if it ends in a slash, the "
		"whole bundle to this new directory."},
	{.name = "reason",
	 .letter = 'r',
	 .type = OPTION_STRING,
	 .offset = offsetof(struct options, reason),
	 .arg = "TEXT",
	 .doc = "Your reason for it: kept in the snapshot and shown in lists."},
	{.name = "with-objects",
	 .type = OPTION_FLAG,
	 .offset = offsetof(struct options, with_objects),
	 .doc = "Put the programs and libraries that the stacks need into the bundle, so "
		"that it can be decoded again on another machine."},
	{.name = "no-wait",
	 .letter = 'n',
	 .type = OPTION_FLAG,
	 .offset = offsetof(struct options, no_wait),
	 .doc = "Print the snapshot's id as soon as the moment is frozen and do not wait for it."},
	{.name = "timeout",
	 .type = OPTION_DURATION,
	 .offset = offsetof(struct options, timeout),
	 .arg = "TIME",
	 .min = DURATION_MS,
	 .max = 86400 * DURATION_S,
	 .bare_unit = DURATION_S,
	 .doc = "How long to wait for the end, as 500ms or 2m; 5m if not given. A number without "
		"a unit is seconds. The snapshot goes on without you."},
	{0},
};

/* A snapshot that failed or was cancelled: says whether there is still something to fetch. */
static int report_failed(
	struct ctl *ctl, const char *id, struct json_object *snapshot, const char *output)
{
	struct json_object *error = field(snapshot, "error");
	const char *code = field_text(error, "code"), *message = field_text(error, "message");

	if (!strcmp(field_text(snapshot, "state"), "cancelled"))
		return ctl_fail(ctl, EXIT_CANCELLED, "cancelled", "snapshot %s was cancelled", id);
	if (!code || strcmp(code, "decode_failed") != 0)
		return ctl_fail(ctl, EXIT_FAILED, code ? code : "failed", "snapshot %s failed: %s",
			id, message ? message : "no reason is given");
	if (output && output_is_dir(output))
		return ctl_fail(ctl, EXIT_NOT_DECODED, code,
			"snapshot %s is recorded, but was not decoded: %s", id,
			message ? message : "no reason is given");
	return ctl_fail(ctl, EXIT_NOT_DECODED, code,
		"snapshot %s is recorded, but was not decoded: %s ('tracectl fetch %s -o %s/' "
		"fetches the recording)",
		id, message ? message : "no reason is given", id, id);
}

/* Writes what was asked for; prints the result. */
static int finish(
	struct ctl *ctl, const struct options *o, struct json_object *snapshot, int interrupt_fd)
{
	const char *id = field_text(snapshot, "id");
	const char *state = field_text(snapshot, "state");
	bool done = !strcmp(state, "done"), as_dir = o->output && output_is_dir(o->output);
	_cleanup_json_ struct json_object *all = json_object_new_object();
	uint64_t bytes = 0;
	char buf[HUMAN_SIZE];
	int r = EXIT_OK;

	if (o->output && as_dir && field_number(snapshot, "bytes"))
		r = snapshot_fetch_dir(ctl, id, o->output, interrupt_fd, &bytes);
	else if (o->output && !as_dir && done)
		r = snapshot_fetch_file(ctl, id, BUNDLE_TRACE, o->output, interrupt_fd, &bytes);
	if (r != EXIT_OK) {
		/* the snapshot is still there, though the output is not */
		(void)fprintf(stderr, "snapshot %s is in the spool: 'tracectl fetch %s -o PATH'\n",
			id, id);
		return r;
	}
	if (!done)
		return report_failed(ctl, id, snapshot, o->output);
	if (ctl->json) {
		json_add(all, "snapshot", json_object_get(snapshot));
		if (o->output)
			json_add_string(all, "output", o->output);
		ctl_print_json(all);
		return EXIT_OK;
	}
	/* a trace on the standard output leaves no room for words */
	if (o->output && !strcmp(o->output, "-"))
		return EXIT_OK;
	view_snapshot(stdout, snapshot);
	report_print(stdout, field(snapshot, "summary"));
	if (!o->output)
		(void)printf("\n'tracectl fetch %s -o %s.pftrace' fetches the trace\n", id, id);
	else
		(void)printf("\nwrote %s (%s)\n", o->output, human_bytes(buf, bytes));
	if (o->output && !as_dir)
		report_print_how_to_open(stdout, o->output);
	return EXIT_OK;
}

/* Several processes are one timeline where one target has them all. */
static int check_together(struct ctl *ctl, const char *const *operands, size_t n)
{
	_cleanup_free_ char *first = NULL;
	int r = EXIT_OK;

	for (size_t i = 0; i < n && n > 1 && r == EXIT_OK; i++) {
		_cleanup_json_ struct json_object *shown = NULL;
		const char *id;

		r = target_call(ctl, "target.show", operands[i], NULL, &shown);
		if (r != EXIT_OK)
			return r;
		id = field_text(field(shown, "target"), "id");
		if (!first)
			first = strdup(id ? id : "");
		if (!first || !id)
			return ctl_report(ctl, id ? -ENOMEM : -EPROTO, NULL);
		if (strcmp(id, first) != 0)
			r = ctl_fail(
				ctl, EXIT_USAGE, "usage",
				"%s and %s are of two targets, %s and %s: take a snapshot of each; processes that are armed "
				"together ('tracectl arm PID PID', '--children' of their parent, or '--unit') are one timeline",
				operands[0], operands[i], first, id);
	}
	return r;
}

static int snapshot_exec(
	struct ctl *ctl, const void *options, const char *const *operands, size_t n)
{
	const struct options *o = options;
	_cleanup_json_ struct json_object *created = NULL, *snapshot = NULL;
	struct json_object *params;
	_cleanup_close_ int interrupt_fd = -1;
	const uint64_t asked = snapshot_moment();
	const char *id;
	int r;

	if (o->no_wait && o->output)
		return ctl_fail(ctl, EXIT_USAGE, "usage",
				"--no-wait ends before there is anything to write to --output");
	r = target_check_operands(ctl, operands, n);
	if (r == EXIT_OK)
		r = ctl_connect(ctl);
	if (r == EXIT_OK)
		r = check_together(ctl, operands, n);
	if (r != EXIT_OK)
		return r;
	params = json_object_new_object();
	json_add_uint(params, "asked_raw_ns", asked);
	if (o->reason)
		json_add_string(params, "reason", o->reason);
	if (o->with_objects)
		json_add_bool(params, "with_objects", true);
	r = target_call(ctl, "snapshot.create", operands[0], params, &created);
	if (r != EXIT_OK)
		return r;
	id = field_text(field(created, "snapshot"), "id");
	if (!id)
		return ctl_report(ctl, -EPROTO, NULL);
	if (o->no_wait) {
		if (ctl->json)
			ctl_print_json(created);
		else
			(void)puts(id);
		return EXIT_OK;
	}
	/* not before: the moment passes with each call */
	r = snapshot_subscribe(ctl);
	if (r != EXIT_OK)
		return r;
	/* the moment cannot be recorded again: a signal cancels the snapshot only from here on */
	interrupt_fd = interrupt_open();
	r = snapshot_follow(
		ctl, id, o->timeout ? o->timeout : DEFAULT_TIMEOUT, interrupt_fd, &snapshot);
	if (r != EXIT_OK)
		return r;
	return finish(ctl, o, snapshot, interrupt_fd);
}

const struct command cmd_snapshot = {
	.name = "snapshot",
	.args = "PID|TARGET...",
	.summary = "take what a target did last, as a timeline",
	.doc = "Freezes the recording of an armed process (or of a target by its id, t3), copies "
	       "it, decodes it and keeps the result in the daemon's spool; the process is not "
	       "stopped and its recording goes on. Several processes must be of one target. Waits for the end, shows the progress on a "
	       "terminal, and prints the summary: the threads with their time on and off the CPU, "
	       "the heaviest stacks, the longest waits and who ended them.\n\n"
	       "With -o the trace is written to a file, which opens in ui.perfetto.dev. Interrupting the "
	       "command cancels the snapshot.",
	.example = "tracectl snapshot 1234 -o slow.pftrace --reason 'login took 40 ms'",
	.options = specs,
	.options_size = sizeof(struct options),
	.operand = OPERAND_TARGET,
	.min_operands = 1,
	.max_operands = 4096,
	.exec = snapshot_exec,
};
