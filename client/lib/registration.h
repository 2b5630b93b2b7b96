/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registers the program with the daemon as a producer: one non-blocking connection, on which the program passes its
 * ring memory, and which then stays open.
 *
 *	             timer                        accepted
 *	WAITING ─────────────► ASKING ───────────────────────────► LIVE
 *	   ▲  ▲                  │ refused, nonsense, silence         │
 *	   │  └──────────────────┘ 1 s, doubling to 10 s              │
 *	   └──────────────────────────────────────────────────────────┘
 *	                 hang-up, nonsense: 0.1 s
 *
 * Owns the socket, a timer, the two in one epoll descriptor, and the descriptor of the control page.
 * Knows nothing of the rings but their descriptors, starts no thread and takes no lock: one thread at
 * a time calls. What the daemon says is checked like a stranger's text, and its page is read by pread():
 * nothing that it does can stop, fault or fill up the program.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/bundle/ringabi.h"

struct registration;

struct registration_callbacks {
	/*
	 * A daemon listens: the descriptors of the memory and of the eventfd, which stay the callee's. Called
	 * at each attempt. 0 or -errno.
	 */
	int (*prepare)(void *arg, int *ret_rings, int *ret_wake);
	/*
	 * What the daemon's page says: a private copy, of which magic and version were checked; after a
	 * registration and after each change. NULL: there is no daemon any more.
	 */
	void (*control)(void *arg, const struct ring_control *control);
	/* It is live, or not; `error` is why the last attempt failed (as tracerd_error_name() takes it), or 0. */
	void (*changed)(void *arg, bool live, int error);
	void *arg;
};

/* Does nothing yet: the first attempt is made by the first registration_dispatch(). -ENAMETOOLONG, -ENOMEM, -errno. */
int registration_new(const char *socket, const struct registration_callbacks *callbacks,
	struct registration **ret) _must_check_;

/* Hangs up. Calls nobody back. NULL is allowed. */
void registration_free(struct registration *r);
DEFINE_CLEANUP(struct registration *, registration_free)

/*
 * Whether its descriptors are still what they were: a program that closes all descriptors, as some daemons do, closes
 * these as well, and then the numbers are other files'. registration_free() and registration_abandon() ask
 * themselves.
 */
bool registration_is_intact(const struct registration *r);

/*
 * In a forked child: closes the descriptors, which are copies of the parent's, and forgets the rest. It frees nothing:
 * the parent may have been anywhere in malloc().
 */
void registration_abandon(struct registration *r);

/* Readable when registration_dispatch() has something to do. */
int registration_fd(const struct registration *r);

/* Does a bounded part of what there is to do and returns; never blocks. */
void registration_dispatch(struct registration *r);
