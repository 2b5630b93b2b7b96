// SPDX-License-Identifier: Apache-2.0
/*
 * `tracectl show`: all about one target or one snapshot.
 */
#include <stdio.h>
#include <string.h>

#include "client/core/ctl.h"
#include "client/core/target.h"
#include "client/ui/command.h"
#include "client/ui/report.h"
#include "client/ui/view.h"

static int show_snapshot(struct ctl *ctl, const char *id)
{
	_cleanup_json_ struct json_object *result = NULL;
	struct json_object *params = json_object_new_object(), *snapshot;
	int r;

	json_add_string(params, "snapshot", id);
	r = ctl_request(ctl, "snapshot.show", params, &result);
	if (r != EXIT_OK)
		return r;
	if (ctl->json) {
		ctl_print_json(result);
		return EXIT_OK;
	}
	snapshot = field(result, "snapshot");
	view_snapshot(stdout, snapshot);
	report_print(stdout, field(snapshot, "summary"));
	return EXIT_OK;
}

static int show_exec(struct ctl *ctl, const void *options, const char *const *operands, size_t n)
{
	_cleanup_json_ struct json_object *result = NULL;
	const char *id;
	uint64_t pid;
	int r;

	/* a snapshot's id begins with its date and has a hyphen; a target's never does */
	if (target_parse(operands[0], &pid, &id) < 0 && strchr(operands[0], '-'))
		return show_snapshot(ctl, operands[0]);
	r = target_check_operands(ctl, operands, 1);
	if (r == EXIT_OK)
		r = ctl_connect(ctl);
	if (r == EXIT_OK)
		r = target_call(ctl, "target.show", operands[0], NULL, &result);
	if (r != EXIT_OK)
		return r;
	if (ctl->json)
		ctl_print_json(result);
	else
		view_target(stdout, field(result, "target"));
	return EXIT_OK;
}

const struct command cmd_show = {
	.name = "show",
	.args = "TARGET|SNAPSHOT",
	.summary = "show one target, or one snapshot with its summary",
	.doc = "Shows all that is known about one target, named by its id (t3) or process id: how "
	       "it is recorded and why, how far back the recording reaches, and what was lost. Of a "
	       "snapshot it shows the state, the files and the summary.",
	.operand = OPERAND_TARGET_OR_SNAPSHOT,
	.min_operands = 1,
	.max_operands = 1,
	.exec = show_exec,
};
