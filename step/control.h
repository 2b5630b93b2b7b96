/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stepper's end of the channel to whoever holds it: common/control/stepabi.h. Owns the socket; no packet is ever waited
 * for or sent while a thread that is stepped waits. Refuses to know how one steps.
 */
#pragma once

#include <sys/types.h>

#include "common/base/cleanup.h"
#include "step/step.h"

struct step_control;
/* `fd` must be a SOCK_SEQPACKET socket (-ENOTSOCK, -EPROTOTYPE), and is taken over; there is one a process. */
int step_control_new(int *fd, struct step_control **ret) _must_check_;
struct step_control *step_control_free(struct step_control *c);
DEFINE_CLEANUP(struct step_control *, step_control_free)

/* Says that it steps `pid`, or (a negative error) why not. */
int step_control_hello(struct step_control *c, pid_t pid, int error, const char *why) _must_check_;

/*
 * Steps and answers until the holder has closed its end, and everything is let go. When nothing is left to step it
 * stays, so that the recording can be had, unless it is asked to end (step_ask_end()) once more.
 */
void step_control_run(struct step_control *c, struct step *s);
