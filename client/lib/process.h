/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes as this user sees them in /proc: the descriptors that prove to the daemon that the user
 * may record a process.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"

struct process_fds {
	int pidfd; /* -1: not wanted */
	int maps;  /* /proc/PID/maps; -1: the kernel does not permit it */
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
 * Opens both for process `pid`, and makes sure that both are of the same process. 0, also if the
 * kernel does not permit the maps; -ESRCH: there is no such process.
 */
int process_open(pid_t pid, struct process_fds *ret) _must_check_;

/* The process that a thread is of: 0, -ESRCH. */
int process_of_thread(pid_t tid, pid_t *ret) _must_check_;

/* Opens both for the process of a thread. Returns the same; -ESRCH: there is no such thread. */
int process_open_thread(pid_t tid, struct process_fds *ret) _must_check_;

/* Whether the process of a pidfd lives. */
bool process_lives(const struct process_fds *fds);

/* The effective uid of the process or thread; -ESRCH. */
int process_owner(pid_t pid, uid_t *ret) _must_check_;
