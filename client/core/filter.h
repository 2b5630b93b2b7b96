/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a user calls the code that alone is to be traced, as the request to arm has it: places in
 * files.
 */
#pragma once

#include <json-c/json.h>
#include <sys/types.h>

#include "client/core/ctl.h"

/*
 * Adds "filters" to `params`: `text` is a list, with commas, of functions and of files that process
 * or thread `pid` has mapped. An exit code; a failure has been reported, with what could have been
 * meant.
 */
int filter_add(struct ctl *ctl, pid_t pid, const char *text,
	       struct json_object *params) _must_check_;
