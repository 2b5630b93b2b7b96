/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our end of the connection with a tracerd-step (common/control/stepabi.h): what it last said of itself, and the requests
 * to copy its recording. Owns the descriptor; knows no target and no snapshot.
 *
 * The other end is a user's process, and others may hold ours, too: nothing here blocks whatever they do with it, what is
 * read in a second is bounded, and numbers are only passed on.
 */
#pragma once

#include <event2/event.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/control/stepabi.h"

#define STEP_CHANNEL_E_BAD 1 /* with the sentence in `why` */

struct step_channel;

struct step_channel_callbacks {
	/* It has said something new of itself. May free the channel. */
	void (*stats)(void *arg);
	/* The connection is over, `why` as the end of a sentence. May free the channel. */
	void (*ended)(void *arg, const char *why);
	void *arg;
};

/* `fd` is duplicated. 0, STEP_CHANNEL_E_BAD if it is no connected SOCK_SEQPACKET socket, -errno. */
int step_channel_new(struct event_base *base, int fd, const struct step_channel_callbacks *callbacks,
		    struct step_channel **ret, char *why, size_t why_size) _must_check_;
/* Closes the connection: the stepper lets go of what it steps. */
struct step_channel *step_channel_free(struct step_channel *c);
DEFINE_CLEANUP(struct step_channel *, step_channel_free)

/* As it said, numbers within what JSON holds; zeroes before the first word. */
const struct stepabi_stats *step_channel_stats(const struct step_channel *c);

/*
 * Asks for a copy of at most `max_bytes`: *ret_fd is where its answer comes. -EAGAIN if it has not read the requests
 * before, -EPIPE and others if it is gone.
 */
int step_channel_freeze(struct step_channel *c, uint64_t max_bytes, int *ret_fd) _must_check_;

/* Bounds what a stepper said of itself. */
void step_channel_bound(struct stepabi_stats *stats);
