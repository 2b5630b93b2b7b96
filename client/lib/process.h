/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes as this user sees them in /proc: the descriptors that prove to the daemon what may be
 * recorded, and what to say about a process that may not.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"

struct process_fds {
	int pidfd; /* -1: not wanted */
	int maps;  /* /proc/PID/maps, -1 where the kernel does not let us */
	int step;  /* the channel of its stepper; -1: none */
};

#define PROCESS_FDS_INIT                                                                           \
	{                                                                                          \
		-1, -1, -1                                                                         \
	}

static inline void process_fds_fini(struct process_fds *p)
{
	p->pidfd = close_fd(p->pidfd);
	p->maps = close_fd(p->maps);
	p->step = close_fd(p->step);
}

/*
 * Opens both for process `pid`. 0 also where only the maps may not be opened; -ESRCH: there is no
 * such process. Both belong to the same process, not to one that got the number in between.
 */
int process_open(pid_t pid, struct process_fds *ret) _must_check_;

/* Opens the maps of a thread; there is no pidfd for one. Same answers. */
int process_open_thread(pid_t tid, struct process_fds *ret) _must_check_;

/* Whether the process that a pidfd was opened for has not ended. */
bool process_lives(const struct process_fds *fds);

/* The effective uid of the process or thread; -ESRCH. */
int process_owner(pid_t pid, uid_t *ret) _must_check_;
