/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registers the program with the daemon as a producer. There is one non-blocking connection: the
 * program passes its ring memory on it, and then it stays open.
 *
 *	             timer                        accepted
 *	WAITING ─────────────► ASKING ───────────────────────────► LIVE
 *	   ▲  ▲                  │ refused, nonsense, silence         │
 *	   │  └──────────────────┘ 1 s, doubling to 10 s              │
 *	   └──────────────────────────────────────────────────────────┘
 *	                 hang-up, nonsense: 0.1 s
 *
 * Owns the socket, a timer, the two in one epoll descriptor, and the descriptor of the control
 * page. Knows nothing of the rings but their descriptors, starts no thread and takes no lock: one
 * thread at a time calls. What the daemon says is checked like a stranger's text, and its page is
 * read by pread(): nothing that it does can stop, fault or fill up the program.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/bundle/ringabi.h"

struct registration;

struct registration_callbacks {
	/*
	 * Returns the descriptors of the memory and of the eventfd, which stay the callee's. Called
	 * at each attempt, when a daemon listens. 0 or -errno.
	 */
	int (*prepare)(void *arg, int *ret_rings, int *ret_wake);
	/*
	 * Reports the daemon's page after a registration and after each change: a private copy
	 * whose magic and version were checked. NULL: the daemon is gone.
	 */
	void (*control)(void *arg, const struct ring_control *control);
	/*
	 * Reports whether the registration is live. `error` is why the last attempt failed, for
	 * tracerd_error_name(), or 0.
	 */
	void (*changed)(void *arg, bool live, int error);
	void *arg;
};

/* Does not connect: the first registration_dispatch() does. -ENAMETOOLONG, -ENOMEM, -errno. */
int registration_new(const char *socket, const struct registration_callbacks *callbacks,
	struct registration **ret) _must_check_;

/* Closes the connection. Calls no callback. NULL is allowed. */
void registration_free(struct registration *r);
DEFINE_CLEANUP(struct registration *, registration_free)

/*
 * Whether its descriptors still are its own. A program that closes all descriptors, as some daemons
 * do, closes these, too; then the numbers may be those of other files. registration_free() and
 * registration_abandon() check it themselves.
 */
bool registration_is_intact(const struct registration *r);

/*
 * In a forked child: closes the descriptors, which are copies of the parent's, and forgets the
 * rest. It frees nothing, because a thread of the parent may have been inside malloc().
 */
void registration_abandon(struct registration *r);

/* Readable when registration_dispatch() has something to do. */
int registration_fd(const struct registration *r);

/*
 * Handles a bounded part of what is pending. Never blocks. 0; -errno: a system call that it cannot
 * do without fails, as under a seccomp filter, and another call would find the same.
 */
int registration_dispatch(struct registration *r) _must_check_;

/* Nobody will dispatch it any more, and why: hangs up and calls the callbacks. */
void registration_give_up(struct registration *r, int error);
