// SPDX-License-Identifier: Apache-2.0
/*
 * `tracectl trigger remove`: remove triggers.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/core/ctl.h"
#include "client/ui/command.h"
#include "client/ui/human.h"
#include "client/ui/trigger.h"

static int remove_one(struct ctl *ctl, const char *id, struct json_object *removed)
{
	_cleanup_json_ struct json_object *result = NULL;
	struct json_object *params = json_object_new_object();
	_cleanup_free_ char *words = NULL;
	int r;

	json_add_string(params, "trigger", id);
	r = ctl_call(ctl, "trigger.remove", params, NULL, 0, CTL_TIMEOUT_MS, &result, NULL);
	if (r == TRACERD_E_NOT_FOUND)
		return ctl_fail(ctl, EXIT_NOT_FOUND, "not_found",
			"no such trigger: %s ('tracectl trigger list' shows them)", id);
	if (r != 0)
		return ctl_report(ctl, r, id);
	words = trigger_words(field(result, "trigger"));
	if (!ctl->json)
		(void)printf("removed %s; %" PRIu64 " hits, %" PRIu64 " snapshots\n", words,
			field_number(field(result, "trigger"), "hits"),
			field_number(field(result, "trigger"), "snapshots"));
	json_append(removed, json_object_get(field(result, "trigger")));
	return EXIT_OK;
}

static int remove_exec(struct ctl *ctl, const void *options, const char *const *operands, size_t n)
{
	_cleanup_json_ struct json_object *all = json_object_new_object();
	struct json_object *removed = json_add_new_array(all, "triggers");
	int code = EXIT_OK, r;

	r = ctl_connect(ctl);
	if (r != EXIT_OK)
		return r;
	for (size_t i = 0; i < n; i++) {
		r = remove_one(ctl, operands[i], removed);
		code = code == EXIT_OK ? r : code;
	}
	if (ctl->json && json_object_array_length(removed))
		ctl_print_json(all);
	return code;
}

const struct command cmd_trigger_remove = {
	.name = "trigger remove",
	.args = "TRIGGER...",
	.summary = "remove triggers",
	.doc = "Removes each trigger, named by its id (g3). The snapshots that it took stay.",
	.operand = OPERAND_TRIGGER,
	.min_operands = 1,
	.max_operands = 4096,
	.exec = remove_exec,
};
