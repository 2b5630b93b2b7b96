/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run of tracerd-decode for a snapshot, on the loop: starts it at a bundle under construction,
 * answers what it needs (images kept by the frozen recording at once, what is in the bundle on the
 * copier thread, everything else by an opener with the rights of the target's user), ends it after
 * a time. Knows no states of a snapshot.
 */
#pragma once

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/decoder/decoder.h"
#include "daemon/base/copier.h"

struct build_ids;
struct config;
struct decoding;
struct frozen;
struct objects;

struct decoding_request {
	struct event_base *base;
	struct copier *copier;
	const struct config *config;
	const char *program;	/* from decoder_find() */
	int bundle_fd;		/* the directory; borrowed during the call */
	struct frozen *frozen;	/* borrowed; decoding_free() before frozen_free() */
	struct objects *objects; /* borrowed; NULL: nothing is collected */
	struct build_ids *build_ids; /* the same */
};

struct decoding_callbacks {
	void (*on_progress)(const struct decoder_progress *progress, void *arg);
	/*
	 * Once. With DECODER_DONE the trace is in the bundle as BUNDLE_TRACE; else there is none.
	 */
	void (*on_end)(const struct decoder_outcome *outcome, bool timed_out, void *arg);
};

int decoding_start(const struct decoding_request *request,
		   const struct decoding_callbacks *callbacks, void *arg,
		   struct decoding **ret) _must_check_;

/* Kills what runs; no callback any more. May be called in on_end. NULL is fine. */
void decoding_free(struct decoding *d);
