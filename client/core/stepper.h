/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting tracerd-step for a process: as the user of that process, so that the kernel decides what
 * it may trace, in a session of its own, so that it outlives us. What it says first is waited for;
 * then its channel is passed to the daemon, and whoever holds that holds the recording
 * (common/control/stepabi.h).
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "common/base/cleanup.h"

/* It was started and says, in a sentence, why it does not step. */
enum { STEPPER_E_REFUSED = 1 };

#define STEPPER_WHY_SIZE 256

/*
 * 0 and the channel (the caller's; closing the last copy of it lets the process go on by itself),
 * STEPPER_E_REFUSED with `why` and *ret_error, a negative errno, or a negative errno of our own
 * environment with a `why`.
 */
int stepper_start(
	pid_t pid, int *ret_channel, int *ret_error, char why[STEPPER_WHY_SIZE]) _must_check_;
