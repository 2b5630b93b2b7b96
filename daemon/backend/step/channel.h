/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's end of the connection to a tracerd-step (common/control/stepabi.h): receives its
 * statistics and requests copies of its recording. Owns the descriptor; knows no target and no
 * snapshot.
 *
 * The other end is a user's process, and other processes may hold our end, too. So nothing here
 * blocks, the packets read in a second are bounded, and nothing depends on the numbers.
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
	/* There are new statistics. May free the channel. */
	void (*stats)(void *arg);
	/* The connection is closed, for the reason `why` (a clause). May free the channel. */
	void (*ended)(void *arg, const char *why);
	void *arg;
};

/* Duplicates `fd`. 0, STEP_CHANNEL_E_BAD if it is no connected SOCK_SEQPACKET socket, -errno. */
int step_channel_new(struct event_base *base, int fd,
		     const struct step_channel_callbacks *callbacks, struct step_channel **ret,
		     char *why, size_t why_size) _must_check_;
/* Closes the connection: the stepper detaches from its threads. */
struct step_channel *step_channel_free(struct step_channel *c);
DEFINE_CLEANUP(struct step_channel *, step_channel_free)

/* The last statistics, within the range of JSON numbers; zeros before the first. */
const struct stepabi_stats *step_channel_stats(const struct step_channel *c);

/*
 * Requests a copy of at most `max_bytes`; the reply comes to *ret_fd. -EAGAIN if the stepper has
 * not read the earlier requests, -EPIPE and others if it is gone.
 */
int step_channel_freeze(struct step_channel *c, uint64_t max_bytes, int *ret_fd) _must_check_;

/* Brings a stepper's numbers into that range. */
void step_channel_bound(struct stepabi_stats *stats);
