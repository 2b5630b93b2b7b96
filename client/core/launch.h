/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child program that stands still before its first instruction, so that it can be armed: the
 * kernel stops it at its exec. From then on it is the new program, and the right to record it does
 * not end by an exec any more.
 *
 * Until launch_release() it does not outlive this process, however that ends: not one instruction
 * of it runs unless it was armed. From then on nothing of ours is left in it.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "common/base/cleanup.h"

/* Answers of launch_stopped() beside 0 and -errno of our own environment. */
enum {
	LAUNCH_E_EXEC = 1, /* the program could not be executed: *ret_errno says why */
	LAUNCH_E_DIED,     /* it ended before it could be stopped */
};

struct launch {
	pid_t pid;     /* 0: there is none, or it is released */
	int pidfd;     /* of it */
	int guard_fd;  /* when this closes the program ends; -1: not handed over */
	pid_t guard;   /* the process at the other end */
	int signal_fd; /* where the signals arrive that are passed on; -1: not released */
	/* as this process has found them, and the program will */
	sigset_t mask;
	bool ignores_children;
};
#define LAUNCH_INIT {.pidfd = -1, .guard_fd = -1, .signal_fd = -1}

/* Takes back an ignored SIGCHLD that this process inherited: its children must be waited for. */
int launch_prepare(struct launch *ret) _must_check_;

/* Ends a program that was not released, and reaps it. */
void launch_fini(struct launch *launch);

/*
 * Starts argv (ended by NULL; looked up in PATH) and returns when it stands at its first
 * instruction, with the signals blocked and ignored that this process was started with.
 * `traceable`: it may be traced by processes that we start, whatever the kernel says of strangers.
 */
int launch_stopped(struct launch *launch, char *const *argv, bool traceable,
		   int *ret_errno) _must_check_;

/*
 * Ends our tracing; SIGSTOP keeps the program at its first instruction until launch_release(), so
 * that another process can trace it from there. 0, LAUNCH_E_DIED, -errno.
 */
int launch_hand_over(struct launch *launch) _must_check_;

/*
 * Lets the program run, untraced. From here on it gets the signals that this process gets; before,
 * they ended this process. 0 or -errno.
 */
int launch_release(struct launch *launch, pid_t *ret_pid) _must_check_;

/*
 * Waits for the end of the program, passing on the signals that this process gets (those that the
 * terminal sends to both are left alone). Returns the exit code in the shell's way (128 + signal),
 * or -errno. Meanwhile `tick`, where not NULL, is called whenever as many ms have passed as it last
 * answered, the first time at once.
 */
int launch_wait(const struct launch *launch, pid_t pid, int (*tick)(void *arg),
		void *arg) _must_check_;
