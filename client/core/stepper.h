/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts tracerd-step for a process: as the user of that process, so that the kernel decides what
 * it may trace, and in a session of its own, so that it outlives us. Waits for its first packet
 * (common/control/stepabi.h). The caller passes the channel to the daemon; whoever holds it holds
 * the recording.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "common/base/cleanup.h"

/* It has started, but cannot trace the process and says why. */
enum { STEPPER_E_REFUSED = 1 };

#define STEPPER_WHY_SIZE 256

/*
 * 0 and the channel, which the caller owns: when its last copy is closed, the process runs on
 * freely. STEPPER_E_REFUSED with `why` and *ret_error, a negative errno. Else a negative errno of
 * our own, with `why`.
 */
int stepper_start(
	pid_t pid, int *ret_channel, int *ret_error, char why[STEPPER_WHY_SIZE]) _must_check_;
