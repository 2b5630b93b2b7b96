/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way of a target to its events: what is asked for, what of that the processor and the budgets
 * allow, in phases that a thread helps with, and samples instead where nobody asked for PT in
 * particular. Both as in struct backend.
 */
#pragma once

#include <stddef.h>

#include "common/base/cleanup.h"

struct backend_job;
struct target;
struct target_request;

int pt_arm_init(struct target *target, const struct target_request *req, char *why,
		size_t why_size) _must_check_;
int pt_arm(struct target *target, struct backend_job **job, char *why,
	   size_t why_size) _must_check_;
