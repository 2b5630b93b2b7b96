/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of targets, opened by tracerd-open with the rights of the target's process (open/main.c says why). Here is the
 * daemon's side: one worker for each set of rights, a queue for each worker, a deadline for each request.
 *
 * A file system that hangs costs its user's requests: the worker is killed and another takes what waits behind, but
 * a user whose workers hang in the kernel, where nothing can end them, gets no more of them until they are gone.
 *
 * Refuses to know why a file is wanted. Runs on the loop, never blocks.
 */
#pragma once

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/decoder/opener_protocol.h"
#include "daemon/base/cred.h"

struct json_object;
struct opening;
struct openings;

/* Bytes that a single file may have to be copied from a file system that users can serve. */
#define OPENING_MAX_COPY (64ULL << 20)

/*
 * Starts tracerd-open. Where it cannot be started every request is answered by "no" and why, and the status says it. To be
 * called before the daemon gives up what only the opener needs. `program`: NULL, but in tests.
 */
int openings_new(struct event_base *base, const char *program, struct openings **ret) _must_check_;
/* Nobody is called any more. */
struct openings *openings_free(struct openings *o);
DEFINE_CLEANUP(struct openings *, openings_free)

struct opening_request {
	struct cred *cred; /* referenced */
	int root_fd;	   /* O_PATH directory, or -1; duplicated, as is the next */
	int mapped_fd;	   /* O_PATH of the mapped file, or -1 */
	const struct file_request *file; /* copied */
	uint64_t max_copy;
};

/*
 * Called once, on the loop, never before opening_start() is back. `fd` is the callee's, -1 where the file was not opened,
 * with the reason in answer->answer.why. No call on it can hang; see open/filesystem.h.
 */
typedef void (*opening_fn)(void *arg, const struct opener_reply *answer, int fd);

/* 0, -ENOMEM, -EMFILE, -EBUSY (more requests than are kept). */
int opening_start(struct openings *o, const struct opening_request *request, opening_fn fn, void *arg, struct opening **ret)
	_must_check_;
/* It will not be called. After the call there is no such opening. */
struct opening *opening_cancel(struct opening *opening);

/* Adds "opener" to the status, and what is lacking to `lack`. */
void openings_status(const struct openings *o, struct json_object *status, struct json_object *lack);
