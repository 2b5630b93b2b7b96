/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls about a target that the user named by its id or by a process id, and the sentences for one
 * that is not there.
 */
#pragma once

#include "client/core/ctl.h"

/*
 * An operand that names a target: a process id or "t" and a number. Returns 0 and either *ret_pid
 * (> 0, *ret_id then NULL) or *ret_id; -EINVAL for anything else.
 */
int target_parse(const char *word, uint64_t *ret_pid, const char **ret_id) _must_check_;

/* EXIT_OK if each word can name a target, else EXIT_USAGE, reported. */
int target_check_operands(struct ctl *ctl, const char *const *words, size_t n);

/*
 * Calls `method` with "target" set to what `word` names, on the connection. `params` is consumed
 * (NULL: no others). Returns an exit code; a failure has been reported ("no such process: 1234",
 * "process 1234 is not armed ...").
 */
int target_call(struct ctl *ctl, const char *method, const char *word, struct json_object *params,
	struct json_object **ret_result) _must_check_;
