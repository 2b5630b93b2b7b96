// SPDX-License-Identifier: Apache-2.0
/*
 * Targets by name.
 */
#include "client/core/target.h"

#include <errno.h>

#include "client/lib/process.h"
#include "client/ui/option.h"

int target_parse(const char *word, uint64_t *ret_pid, const char **ret_id)
{
	uint64_t n;

	if (word[0] == 't' && option_parse_u64(word + 1, 0, UINT64_MAX, &n) == 0) {
		*ret_pid = 0;
		*ret_id = word;
		return 0;
	}
	/* the greatest process id that Linux can use */
	if (option_parse_u64(word, 1, 1 << 22, &n) < 0)
		return -EINVAL;
	*ret_pid = n;
	*ret_id = NULL;
	return 0;
}

int target_check_operands(struct ctl *ctl, const char *const *words, size_t n)
{
	const char *id;
	uint64_t pid;

	for (size_t i = 0; i < n; i++) {
		if (target_parse(words[i], &pid, &id) < 0)
			return ctl_fail(ctl, EXIT_USAGE, "usage",
				"neither a target (t3) nor a process id: '%s'", words[i]);
	}
	return EXIT_OK;
}

int target_call(struct ctl *ctl, const char *method, const char *word, struct json_object *params,
	struct json_object **ret_result)
{
	const char *id = NULL;
	uint64_t pid = 0;
	uid_t owner;
	int r;

	if (!params)
		params = json_object_new_object();
	r = target_parse(word, &pid, &id);
	if (r < 0) {
		json_putp(&params);
		return target_check_operands(ctl, &word, 1);
	}
	if (id)
		json_add_string(params, "target", id);
	else
		json_add_uint(params, "target", pid);
	r = ctl_call(ctl, method, params, NULL, 0, CTL_TIMEOUT_MS, ret_result, NULL);
	if (r == 0)
		return EXIT_OK;
	if (r == TRACERD_E_NOT_FOUND && id)
		return ctl_fail(ctl, EXIT_NOT_FOUND, "not_found",
			"no such target: %s ('tracectl list' shows them)", id);
	if (r == TRACERD_E_NOT_FOUND && process_owner((pid_t)pid, &owner) == -ESRCH)
		return ctl_fail(ctl, EXIT_NOT_FOUND, "not_found", "no such process: %s", word);
	if (r == TRACERD_E_NOT_FOUND)
		return ctl_fail(ctl, EXIT_NOT_FOUND, "not_found",
			"process %s is not armed: 'tracectl arm %s' first", word, word);
	return ctl_report(ctl, r, id ? id : NULL);
}
