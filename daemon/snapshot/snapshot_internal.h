/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the snapshot operation share: the struct, its creation (create.c), its states
 * (state.c), its steps (run.c), who is next (schedule.c), what leaves the disk (purge.c), and the
 * requests of clients (snapshot.c). Nobody else includes this.
 */
#pragma once

#include <sys/queue.h>

#include "daemon/base/copier.h"
#include "daemon/config.h"
#include "daemon/control/quota.h"
#include "daemon/control/subscribers.h"
#include "daemon/snapshot/bundle.h"
#include "daemon/snapshot/decoding.h"
#include "daemon/snapshot/snapshot.h"

/* What happens to a snapshot from outside. */
enum snapshot_event {
	SNAPSHOT_DEADLINE,
	SNAPSHOT_CANCEL,
	SNAPSHOT_DELETE,
	SNAPSHOT_STOP,
	_SNAPSHOT_EVENT_MAX
};

struct snapshot_reaction {
	enum {
		REACT_REFUSE,	   /* SNAPSHOT_E_STATE */
		REACT_IGNORE,	   /* somebody else sees to it, or nothing is left to be done */
		REACT_END,	   /* in state `end`, at once */
		REACT_KEEP,	   /* publish what is recorded, without a trace */
		/* in state `end`, unless the step on the copier has passed its rename */
		REACT_STEP_DECIDES,
		REACT_REMOVE,	   /* off the disk, if it is there; it is found no more */
	} what;
	enum snapshot_state end;
};

/*
 * What a thread does for a snapshot, one at a time: the first in a hurry, the others on the copier.
 */
enum step { STEP_NONE, STEP_SET_ASIDE, STEP_COPY, STEP_META, STEP_PUBLISH, STEP_ABORT };

struct snapshot {
	TAILQ_ENTRY(snapshot) entry; /* of snapshots.all: oldest first */
	struct snapshots *s;	     /* not owned */
	char id[SPOOL_ID_LEN + 1];
	enum snapshot_state state;

	/* what it is of; text is escaped */
	uint64_t target_id;
	char target[32], comm[64];
	char unit[1024]; /* of a unit or the host, which is "/"; "": it is of neither */
	pid_t pid;
	uid_t uid; /* who may have it: until the freeze the creator */
	uid_t creator;
	bool admin, with_objects;
	struct cause cause;

	/* how it went */
	uint64_t created_ns, frozen_ns, published_ns, bytes, blind_ns; /* REALTIME; 0: not yet */
	uint64_t frozen_raw_ns;
	/*
	 * how much later than it was asked for the recording ends; 0: no later than anybody minds
	 */
	uint64_t asked_raw_ns, late_ns;
	struct decoder_progress progress;
	uint64_t progress_reported_ns;
	const char *error_code; /* of the protocol; NULL: none */
	char error[1024];
	struct json_object *summary;
	bool on_disk; /* it is a kept item of the spool */
	bool deleted; /* found no more; freed by the scheduler once nothing of it is in the works */
	struct json_object *stored; /* of an earlier run: S as its meta.json has it */

	/* while it runs */
	snapshot_done_fn done;
	void *done_arg;
	struct event *deadline; /* NULL: nothing of it is in the works any more */
	struct quota_charge queued, running;
	struct spool_item *item; /* reserved while it publishes */
	struct frozen *frozen;
	struct objects *objects;
	struct build_ids *build_ids;
	struct decoding *decoding;
	struct bundle_build build;
	struct copier_job job;
	enum step step;
	int step_result;
	struct json_object *meta; /* the text that a step writes; owned */
	struct json_object *decoder_meta; /* "decoder" of meta.json */
	bool is_aside; /* what its rings had is set aside, as far as there was memory */
	uint64_t aside_bytes; /* that much, until its copy is done */
	bool all_aside;	      /* there was memory for all of it */
	/* of its creator; NULL: it has not been set aside yet, or is not any more */
	struct aside_share *share;
	bool reported; /* clients know of the state */
	bool has_slot; /* one of snapshots_running */
	bool failed_decode;
	bool stopped;		       /* its step decides: */
	enum snapshot_event stopped_by; /* what asked for that first */
	enum snapshot_state stopped_end;
};

/*
 * What one creator's snapshots have set aside, while one of them has: taken on the thread, given
 * back on the loop.
 */
struct aside_share {
	unsigned int users; /* snapshots; the loop's */
	_Atomic uint64_t bytes;
};

TAILQ_HEAD(snapshot_list, snapshot);

struct snapshots {
	struct snapshots_context c;
	struct snapshot_list all;
	char decoder[4096]; /* path of the program; "" if there is none */
	struct event *schedule; /* does what follows from what happened */
	struct event *expire, *purge_again;
	LIST_HEAD(, purge) purges; /* on the copier */
	unsigned n_slots; /* in use */
	bool copying;	  /* the copier has one of ours */
	/*
	 * set aside for all that wait for their copy; taken on the thread, given back on the loop
	 */
	_Atomic uint64_t aside_bytes;
	bool stopping;
	uint64_t counts[_SNAPSHOT_STATE_MAX]; /* ended since the start, by how */
	uint64_t no_space, decode_failed, timeouts, evicted, cut, lacking, not_aside, go_lost;
};

/* state.c */
bool snapshot_has_ended(const struct snapshot *n);
struct snapshot_reaction snapshot_reaction(const struct snapshot *n, enum snapshot_event event);
/* Enters the first state. */
void snapshot_begin(struct snapshot *n);
/* Logs, counts, asserts that the edge is legal, emits the event, arms the state's deadline. */
void snapshot_set_state(struct snapshot *n, enum snapshot_state state);
/* Emits the event of a state that was entered silently. */
void snapshot_report(struct snapshot *n);
void snapshot_set_progress(struct snapshot *n, const struct decoder_progress *progress);
/* Keeps the first error; the caller changes the state. */
void snapshot_set_error(struct snapshot *n, const char *code, const char *fmt, ...) _printf_(3, 4);
/* S without what is of one moment only: for meta.json. */
struct json_object *snapshot_to_stored(const struct snapshot *n);
void snapshot_from_stored(struct snapshot *n, struct json_object *stored);

/* run.c */
/* 0 or SNAPSHOT_E_STATE, or -errno of a removal. */
int snapshot_happens(struct snapshot *n, enum snapshot_event event) _must_check_;
/* The steps that the scheduler starts. */
void snapshot_freeze(struct snapshot *n);
/* Frozen, and nothing is to be waited for before the copy. */
bool snapshot_is_ready(const struct snapshot *n);
void snapshot_copy(struct snapshot *n);
void snapshot_decode(struct snapshot *n);
/* Of one that has ended and has nothing on the copier; nothing for others. */
void snapshot_clean_up(struct snapshot *n);
/* Frees what only a running one has. The bundle's directory has its name or is gone. */
void snapshot_release(struct snapshot *n);

/* schedule.c */
int snapshots_schedule_init(struct snapshots *s) _must_check_;
/* Something has changed: the scheduler runs once, after whatever the loop runs now. */
void snapshots_schedule(struct snapshots *s);

/* purge.c */
int snapshots_purge_init(struct snapshots *s) _must_check_;
void snapshots_purge_fini(struct snapshots *s);
void snapshots_purge(struct snapshots *s);

/* snapshot.c */
struct snapshot *snapshot_new(struct snapshots *s, const char *id);
void snapshot_free(struct snapshot *n);
/* NULL: none, or deleted */
struct snapshot *snapshots_find_id(struct snapshots *s, const char *id);
/* One that has ended: off the disk, and found no more. 0 or -errno. */
int snapshot_remove(struct snapshot *n) _must_check_;
