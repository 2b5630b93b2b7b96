// SPDX-License-Identifier: Apache-2.0
/*
 * `tracectl disarm`: end recordings. What is in memory is forgotten; snapshots stay.
 */
#include <stdio.h>
#include <stdlib.h>

#include "client/core/ctl.h"
#include "client/core/target.h"
#include "client/ui/command.h"
#include "client/ui/view.h"

static int disarm_exec(struct ctl *ctl, const void *options, const char *const *operands, size_t n)
{
	_cleanup_json_ struct json_object *all = json_object_new_object();
	struct json_object *targets = json_add_new_array(all, "targets");
	int code = EXIT_OK, r;

	r = target_check_operands(ctl, operands, n);
	if (r == EXIT_OK)
		r = ctl_connect(ctl);
	if (r != EXIT_OK)
		return r;
	for (size_t i = 0; i < n; i++) {
		_cleanup_json_ struct json_object *result = NULL;
		_cleanup_free_ char *name = NULL;

		r = target_call(ctl, "target.disarm", operands[i], NULL, &result);
		code = code == EXIT_OK ? r : code;
		if (r != EXIT_OK)
			continue;
		name = view_target_name(field(result, "target"));
		if (!ctl->json)
			(void)printf("disarmed %s\n", name);
		json_append(targets, json_object_get(field(result, "target")));
	}
	if (ctl->json && json_object_array_length(targets))
		ctl_print_json(all);
	return code;
}

const struct command cmd_disarm = {
	.name = "disarm",
	.args = "TARGET...",
	.summary = "stop recording",
	.doc = "Ends the recording of each target, named by its id (t3) or its process id. What "
	       "was recorded and is not in a snapshot is forgotten.",
	.operand = OPERAND_TARGET,
	.min_operands = 1,
	.max_operands = 4096,
	.exec = disarm_exec,
};
