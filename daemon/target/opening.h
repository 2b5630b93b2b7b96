/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of targets, opened by tracerd-open with the rights of the target's process (open/main.c
 * says why). This is the daemon's side: one worker for each set of rights, with a queue and a
 * deadline for each request.
 *
 * A file system that hangs costs only its user: the worker is killed and another takes over its
 * queue. A user whose workers hang in the kernel, where nothing can end them, gets no new ones
 * until they are gone.
 *
 * A worker can also ask what the kernel says to its user about a process.
 *
 * Does not know why a file is wanted. Runs on the loop and never blocks.
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
 * Starts tracerd-open. If that fails, every request gets "no" with the reason, and the status
 * reports it. Call it before the daemon drops the capabilities that only the opener needs.
 * `program`: NULL, but in tests.
 */
int openings_new(struct event_base *base, const char *program, struct openings **ret) _must_check_;
/* Calls nobody. */
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
 * Called once, on the loop, after opening_start() has returned. `fd` is the callee's, -1 where the
 * file was not opened, with the reason in answer->answer.why. No call on it can hang; see
 * open/filesystem.h. answer->id is 0 where nobody has answered, in time or at all: later somebody
 * may.
 */
typedef void (*opening_fn)(void *arg, const struct opener_reply *answer, int fd);

/* 0, -ENOMEM, -EMFILE, -EBUSY (more requests than are kept). */
int opening_start(struct openings *o, const struct opening_request *request, opening_fn fn,
		  void *arg, struct opening **ret) _must_check_;
/*
 * Asks the kernel whether somebody with these rights may look into a process, given by its /proc
 * directory (duplicated): the answer is in `may` of the reply, and there is no file. Otherwise like
 * opening_start(); no answer in time is a no.
 */
int opening_ask(struct openings *o, struct cred *cred, int process_fd, opening_fn fn, void *arg,
		struct opening **ret) _must_check_;
/* Its callback is not called. Frees the opening. */
struct opening *opening_cancel(struct opening *opening);

/* Whether a worker of this user hangs. */
bool openings_hang(const struct openings *o, uid_t uid);

/* Adds "opener" to the status, and to `lack` if there is none. */
void openings_status(const struct openings *o, struct json_object *status,
		     struct json_object *lack);
