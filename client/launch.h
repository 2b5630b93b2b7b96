/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child program that stands still before its first instruction, so that it can be armed: it asks
 * to be traced and executes; the kernel stops it at the exec. From then on it is the new program,
 * and the right to record it does not end by an exec any more.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "common/cleanup.h"

/* Answers of launch_stopped() beside 0 and -errno of our own environment. */
enum {
	LAUNCH_E_EXEC = 1, /* the program could not be executed: *ret_errno says why */
	LAUNCH_E_DIED,     /* it ended before it could be stopped */
};

struct launch {
	int signal_fd; /* where the signals arrive that are passed on; -1: not prepared */
	/* as this process has found them, and the program will */
	sigset_t mask;
	bool ignores_children;
};
#define LAUNCH_INIT {.signal_fd = -1}

/* Blocks the signals that will be passed on, and waits for children whatever its parent thinks of
 * them. */
int launch_prepare(struct launch *ret) _must_check_;
void launch_fini(struct launch *launch);

/*
 * Starts argv (ended by NULL; looked up in PATH) and returns when it stands at its first
 * instruction, with the signals blocked and ignored that this process was started with.
 * `traceable`: it may be traced by processes that we start, whatever the kernel says of strangers.
 */
int launch_stopped(const struct launch *launch, char *const *argv, bool traceable, pid_t *ret_pid,
	int *ret_errno) _must_check_;

/* Lets it run, not traced any more. 0 or -errno. */
int launch_release(pid_t pid) _must_check_;

/*
 * It is not traced any more and stands all the same, by SIGSTOP, at its first instruction, until
 * launch_continue(): another process can trace it from there. 0, LAUNCH_E_DIED, -errno.
 */
int launch_hand_over(pid_t pid) _must_check_;
int launch_continue(pid_t pid) _must_check_;

/* Ends one that was not released and reaps it. */
void launch_kill(pid_t pid);

/*
 * Waits for the end of the program, passing on the signals that this process gets (those that the
 * terminal sends to both are left alone). Returns the exit code in the shell's way (128 + signal),
 * or -errno.
 */
int launch_wait(const struct launch *launch, pid_t pid) _must_check_;
