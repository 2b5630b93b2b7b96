/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots: the operation freeze -> copy -> re-arm -> bundle -> decode -> publish, as something
 * that has an id and a state and can be listed, watched, cancelled and, once it is on disk, fetched
 * and deleted.
 *
 *   queued -> freezing -> copying -> decoding -> publishing -> done
 *      \         \           \          \            \-> failed
 *       \---------\-----------\----------\-> failed | cancelled
 *
 * An end, whatever causes it, only marks the operation. What follows from it is done by one event
 * of the loop, in this order: cleaning up, calling who waits, forgetting, freeing, starting what
 * can start. So a snapshot that was found stays valid until the loop is entered again, whatever is
 * called meanwhile.
 *
 * A decoder that fails, hangs or crashes does not take the recording with it: the moment cannot be
 * recorded again. The bundle is published without trace.pftrace, the state is failed, the error
 * decode_failed, and `tracectl decode` may be tried on what was fetched.
 */
#pragma once

#include <event2/event.h>
#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "daemon/base/clockseries.h"
#include "daemon/base/copier.h"
#include "daemon/snapshot/cause.h"
#include "daemon/snapshot/spool.h"

struct config;
struct hub;
struct quota;
struct target;
struct targets;
struct snapshot;
struct snapshots;

#define SNAPSHOT_MAX_REASON CAUSE_REASON_MAX
#define SNAPSHOTS_REMEMBERED 100

enum snapshot_state {
	SNAPSHOT_QUEUED,
	SNAPSHOT_FREEZING,
	SNAPSHOT_COPYING,
	SNAPSHOT_COPIED, /* waits for a decoder: "queued" again for clients */
	SNAPSHOT_DECODING,
	SNAPSHOT_PUBLISHING,
	SNAPSHOT_DONE,
	SNAPSHOT_FAILED,
	SNAPSHOT_CANCELLED,
	_SNAPSHOT_STATE_MAX,
};
const char *snapshot_state_to_string(enum snapshot_state state);

enum {
	SNAPSHOT_E_QUOTA = 1, /* the uid has too many of them queued, or too much in the spool */
	SNAPSHOT_E_BUSY,      /* the daemon's queue is full */
	SNAPSHOT_E_NO_SPACE,
	SNAPSHOT_E_GONE,      /* the target; or, for find: no such snapshot that this uid may see */
	SNAPSHOT_E_STATE,     /* cancel of what has ended, delete or fetch of what has not */
};

struct snapshot_request {
	uid_t uid;
	bool admin;
	const char *reason; /* may be NULL; bytes from a client, at most SNAPSHOT_MAX_REASON */
	const struct cause *cause; /* NULL: a client's, with that reason */
	bool with_objects;
	uint64_t asked_raw_ns; /* when it was asked for; 0, or what cannot be: now */
};

/*
 * Called once when the snapshot has ended, by the loop; the snapshot stays valid during the call.
 */
typedef void (*snapshot_done_fn)(struct snapshot *snapshot, void *arg);

/* All pointers are borrowed and must outlive the snapshots. */
struct snapshots_context {
	struct event_base *base;
	const struct config *config;
	struct quota *quota;
	struct hub *hub;
	struct targets *targets;
	struct spool *spool;
	struct clockseries *clocks;
	struct copier *copier;
	/* for what must not wait behind the copier's files: rings are overwritten meanwhile */
	struct copier *hurry;
	/* ended ones that left nothing, of which the error is kept; 0: SNAPSHOTS_REMEMBERED */
	unsigned remembered;
};

int snapshots_new(const struct snapshots_context *context, struct snapshots **ret) _must_check_;

/*
 * For the daemon's end: cancels what runs, kills decoders; nothing half-made is left. Both threads
 * must have been freed before (no job may run any more). No done callback is called.
 */
void snapshots_free(struct snapshots *s);
DEFINE_CLEANUP(struct snapshots *, snapshots_free)

/* Cancels all that have not ended (SIGTERM); true once all have ended. */
bool snapshots_stop(struct snapshots *s);

/*
 * Creates the operation for a target that the caller has found to be visible to that user. `done`
 * may be NULL. 0 or SNAPSHOT_E_*; *ret is borrowed and valid at least until the loop is entered
 * again. `why` gets plain words.
 */
int snapshots_create(struct snapshots *s, struct target *target,
		     const struct snapshot_request *request, snapshot_done_fn done, void *arg,
		     struct snapshot **ret, char *why, size_t why_size) _must_check_;

/* The waiter with this `arg` is gone: its callback will not be called. */
void snapshots_forget_waiter(struct snapshots *s, void *arg);

/* Finds a snapshot that this uid may see: 0 or SNAPSHOT_E_GONE. */
int snapshots_find(struct snapshots *s, const char *id, uid_t uid, bool admin,
		   struct snapshot **ret) _must_check_;

/*
 * 0 or SNAPSHOT_E_STATE; the table in state.c says what they do in each state. Cancelled while it
 * publishes it ends as its step on the disk decides: cancelled, or done if that had passed the
 * point of no return. After delete it is found no more.
 */
int snapshot_cancel(struct snapshot *snapshot);
int snapshot_delete(struct snapshot *snapshot) _must_check_;

const char *snapshot_id(const struct snapshot *snapshot);
enum snapshot_state snapshot_state(const struct snapshot *snapshot);

/* S of the protocol; `files` lists the bundle's files too (a directory is read: not for lists). */
struct json_object *snapshot_to_json(struct snapshot *snapshot, bool files);

/*
 * A page of S, newest first: those after the id `cursor` (NULL or "": from the start). *ret_next is
 * "" at the end.
 */
int snapshots_list(struct snapshots *s, uid_t uid, bool admin, const char *cursor, unsigned limit,
		   struct json_object **ret_array, char ret_next[SPOOL_ID_LEN + 1]) _must_check_;

/*
 * fetch: names and sizes; one file, read-only. SNAPSHOT_E_STATE if nothing is on disk, -ENOENT for
 * an unknown name.
 */
int snapshot_files(struct snapshot *snapshot, struct json_object **ret) _must_check_;
int snapshot_open_file(struct snapshot *snapshot, const char *name, int *ret_fd,
		       uint64_t *ret_size) _must_check_;

/* Adds "snapshots", "spool" and "decoder" to the status object; metrics are made from it. */
void snapshots_status(struct snapshots *s, struct json_object *status);

/* For the watchdog: every deadline is armed and the copier is not stuck past `limit_ns`. */
bool snapshots_healthy(struct snapshots *s, uint64_t limit_ns);
