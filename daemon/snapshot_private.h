/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the snapshot operation share: the struct, its states (snapshot_state.c), its steps (snapshot_run.c),
 * the requests of clients (snapshot.c). Nobody else includes this.
 */
#pragma once

#include <sys/queue.h>

#include "daemon/bundle.h"
#include "daemon/config.h"
#include "daemon/copier.h"
#include "daemon/decoding.h"
#include "daemon/quota.h"
#include "daemon/snapshot.h"
#include "daemon/subscribe.h"

/* Ended ones that left nothing on disk are remembered for a while, so that their error can be asked for. */
#define MAX_REMEMBERED 100

/* What the copier does for a snapshot, one at a time. */
enum step { STEP_NONE, STEP_COPY, STEP_META, STEP_PUBLISH, STEP_ABORT };

struct snapshot {
	TAILQ_ENTRY(snapshot) entry; /* of snapshots.all: oldest first */
	struct snapshots *s;	     /* not owned */
	char id[SPOOL_ID_LEN + 1];
	enum snapshot_state state;

	/* what it is of; text is escaped */
	uint64_t target_id;
	char target[32], comm[64];
	pid_t pid;
	uid_t uid; /* who may have it: until the freeze the requester */
	uid_t requester;
	bool admin, with_objects;
	struct cause cause;

	/* how it went */
	uint64_t created_ns, frozen_ns, published_ns, bytes, blind_ns; /* REALTIME; 0: not yet */
	uint64_t frozen_raw_ns;
	struct declink_progress progress;
	uint64_t progress_told_ns;
	const char *error_code; /* of the protocol; NULL: none */
	char error[1024];
	struct json_object *summary;
	bool on_disk; /* it is an item of the spool */
	struct json_object *stored; /* of an earlier run: S as its meta.json has it */

	/* while it runs */
	snapshot_done_fn done;
	void *done_arg;
	struct event *deadline;
	struct quota_charge queued, running, spool_bytes;
	struct frozen *frozen;
	struct objects *objects;
	struct decoding *decoding;
	struct bundle_build build;
	struct copier_job job;
	enum step step;
	int step_result;
	struct json_object *meta; /* the text that a step writes; owned */
	struct json_object *decoder_meta; /* "decoder" of meta.json */
	bool ready;    /* frozen, and nothing is to be waited for before the copy */
	bool copied;   /* waits for a decoder, or is past that */
	bool has_slot; /* one of snapshots_running */
	bool failed_decode;
	bool hidden; /* deleted while a step was still being cleaned up */
};

TAILQ_HEAD(snapshot_list, snapshot);

struct snapshots {
	struct snapshots_context c;
	struct snapshot_list all;
	char decoder[4096]; /* path of the program; "" if there is none */
	struct event *expire;
	struct copier_job purge;
	unsigned n_slots; /* in use */
	bool copying;	  /* the copier has one of ours, or is promised to one */
	bool stopping;
	uint64_t counts[_SNAPSHOT_STATE_MAX]; /* ended since the start, by how */
	uint64_t no_space, decode_failed, timeouts, evicted, cut, lacking;
};

/* snapshot_state.c */
uint64_t snapshot_now_ns(void);
bool snapshot_has_ended(const struct snapshot *n);
/* Enters the first state. */
void snapshot_begin(struct snapshot *n);
/* Logs, counts, asserts that the edge is legal, tells the hub, arms the state's deadline. */
void snapshot_set_state(struct snapshot *n, enum snapshot_state state);
void snapshot_set_progress(struct snapshot *n, const struct declink_progress *progress);
/* Remembers the first error; the caller changes the state. */
void snapshot_set_error(struct snapshot *n, const char *code, const char *fmt, ...) _printf_(3, 4);
/* S without what is of one moment only: for meta.json. */
struct json_object *snapshot_to_stored(const struct snapshot *n);
void snapshot_from_stored(struct snapshot *n, struct json_object *stored);

/* snapshot_run.c */
void snapshots_pump(struct snapshots *s);
/* Freezes for one that is still to be made, if nothing is before it: what else that needs can wait, this cannot. NULL: not now. */
struct frozen *snapshots_freeze_early(struct snapshots *s, struct target *target, bool admin);
/* Ends it in a terminal state at once; what it has in the works is cleaned up behind it. */
void snapshot_end(struct snapshot *n, enum snapshot_state state);
void snapshot_on_deadline(struct snapshot *n);
void snapshot_release(struct snapshot *n);

/* snapshot.c */
void snapshot_free(struct snapshot *n);
/* After an end: calls the waiter, forgets the oldest of what left nothing. */
void snapshot_ended(struct snapshot *n);
void snapshots_purge(struct snapshots *s);
