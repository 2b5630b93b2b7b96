/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stepper's end of the channel (common/control/stepabi.h): sends statistics, and answers
 * requests for copies of the recording. Owns the socket, and never blocks on it. Refuses to know
 * how one steps.
 */
#pragma once

#include <sys/types.h>

#include "common/base/cleanup.h"
#include "step/step.h"

struct step_control;
/* Takes `fd` over, a SOCK_SEQPACKET socket, or -EPROTOTYPE. There is one channel in a process. */
int step_control_new(int *fd, struct step_control **ret) _must_check_;
struct step_control *step_control_free(struct step_control *c);
DEFINE_CLEANUP(struct step_control *, step_control_free)

/* Sends the first packet: it steps `pid`, or `error` (a negative errno) and `why` say why not. */
int step_control_hello(struct step_control *c, pid_t pid, int error, const char *why) _must_check_;

/*
 * Steps and answers until the other end is closed, and detaches. When all threads have exited it
 * stays to answer requests, unless step_ask_end() is called once more.
 */
void step_control_run(struct step_control *c, struct step *s);
