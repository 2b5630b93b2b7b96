/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listening Unix socket: made here or handed over by systemd. Accepts, and passes each new
 * connection to its callback. Must not know the protocol on it.
 *
 * Descriptors run out before anything else does, and the daemon needs some for its own work
 * (images, bundles, a decoder). So accepting pauses when a new descriptor's number comes near the
 * limit, or at EMFILE, and resumes when listener_resume() reports that one was closed.
 */
#pragma once

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"

/* descriptors kept for our own work, or a third of them where that is less */
#define LISTENER_RESERVE 64

struct listener;

/* Takes over `fd`. */
typedef void (*listener_accept)(void *arg, int fd);

struct listener_place {
	const char *dir, *name; /* dir/name */
	mode_t mode;
	gid_t gid; /* (gid_t)-1, or not ours to give: the group gets what others get */
};

/*
 * Makes the socket: bound under a temporary name, given its mode and group, then renamed. 0,
 * -errno.
 */
int listener_bind(const struct listener_place *place, int *ret_fd) _must_check_;

/*
 * Takes over `fd` (on success only), which must be a listening Unix stream socket: -EINVAL
 * otherwise. `unlink_path` NULL: its name is not ours.
 */
int listener_new(struct event_base *base, int fd, const char *unlink_path, listener_accept accept,
		 void *arg, struct listener **ret) _must_check_;
struct listener *listener_free(struct listener *l);

/* A descriptor was closed: accept again if accepting was paused. */
void listener_resume(struct listener *l);

struct listener_stats {
	uint64_t accepted, paused;
	bool is_paused;
};
/* Nothing but zeros without a listener: one that stops has none. */
void listener_get_stats(const struct listener *l, struct listener_stats *ret);
