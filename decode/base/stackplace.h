/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One place of a thread's stack: who finds stacks (decode/stack/) and who knows calls
 * (decode/calls/) speak of it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct stack_place {
	uint64_t ip; /* 0: not known */
	bool exact;  /* where it runs, or was interrupted: not behind a call */
};
