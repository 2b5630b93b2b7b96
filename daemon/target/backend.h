/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A back end is one way to record targets: a table of functions. Targets, snapshots and the status
 * know it by this table only. What it keeps hangs on opaque pointers: its state of the machine on
 * what open() returns, a target's on target->recording, a frozen target's on frozen->recording.
 * Another back end may have sampling record waits beside it, by calling the same functions: then
 * what sampling keeps is target->beside and frozen->beside. The table is here, with those who call
 * it: back ends include targets, and targets no back end.
 *
 * An entry that is NULL has nothing to do or to say. All run on the loop except a job's run(),
 * import() and copy().
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "daemon/target/image.h"

struct frozen;
struct frozen_stats;
struct perf_event_header;
struct json_object;
struct perfdata_writer;
struct pausable;
struct target;
struct target_request;
struct targets;

struct backend_stats {
	const char *method;
	uint64_t lookback_ns, samples, switches; /* in the rings now */
	uint64_t ring_bytes;                     /* of its own rings */
	uint64_t lost; /* by rings of its own */
	uint64_t wait_min_ns; /* shorter waits have no stacks; 0: all have */
	/* why it looks back less far than was asked for; NULL: not known, or it does */
	const char *keep_short;
};

/*
 * Work that takes long: run() is called on a thread and touches nothing of the target, which may go
 * meanwhile.
 */
struct backend_job {
	void (*run)(struct backend_job *job);
	void (*free)(struct backend_job *job); /* on the loop, whether it has run or not */
	bool patient;		   /* it reads no process that could hang it */
	const atomic_bool *cancel; /* set while it runs: nobody wants it any more */
	int result;		   /* of look_back(): 0 or -errno */
	uint64_t oldest_ns;	   /* of look_back() */
};

#define BACKEND_RUN (-1000000) /* an answer of arm(): run the job on a thread, then call again */

struct backend {
	const char *name;

	/* ---- the machine */

	/* Finds out what the machine permits: 0, -errno. What it returns is targets_machine()'s. */
	int (*open)(struct targets *targets, void **ret);
	/* The closer's thread has ended. */
	void (*close)(void *machine);
	/*
	 * Whether clients can ask for it here; `why` says how, or why not. NULL: clients cannot ask
	 * for it.
	 */
	bool (*probe)(const struct targets *targets, const char **ret_method, char *why,
		      size_t why_size);
	/* Adds to the status' "capture", and to the list of what the machine lacks. */
	void (*status)(const struct targets *targets, struct json_object *capture,
		       struct json_object *lack);
	void (*losses)(const struct targets *targets, struct json_object *losses);

	/* ---- a target's recording */

	/*
	 * Checks the request and makes target->recording: 0, TARGET_E_*, -errno. Records nothing
	 * yet.
	 */
	int (*init)(struct target *target, const struct target_request *req, char *why,
		    size_t why_size);
	/*
	 * Begins to record, or changes over to what is better now (review()): 0, TARGET_E_*,
	 * -errno, BACKEND_RUN. The target has its first members. *job is NULL at the first call; it
	 * is freed by the caller when all is done.
	 */
	int (*arm)(struct target *target, struct backend_job **job, char *why, size_t why_size);
	/* The recording has moved to this target from another one. */
	void (*moved)(struct target *target);
	/* Whether review() is to be called each second. */
	bool (*is_watched)(const struct target *target);
	/*
	 * Members or stacks have changed: asks for WORK_REARM if it would now record in another
	 * way.
	 */
	void (*review)(struct target *target, bool members_added);
	/* A side-band record of the target that is kept: of a process of it. */
	void (*record)(struct target *target, const struct perf_event_header *h);
	/*
	 * Records of any process may have been lost, none before `whole_ns`. Then, of a target: its
	 * processes have been read again, and record() has got what these have mapped. A later loss
	 * may have come in between.
	 */
	void (*records_lost)(struct targets *targets, uint64_t whole_ns);
	void (*records_whole)(struct target *target);
	/* Files of targets have been opened, or cannot be. */
	void (*images_settled)(struct targets *targets);
	/* Of stacks=auto: whether the target's code keeps frame pointers. */
	void (*frames_known)(struct target *target, enum image_frames frames);
	/* A process has become one of the target's, or is none any more. 0, -errno. */
	int (*member_changed)(struct target *target, pid_t pid);
	/* Ends the recording; what is recorded stays. */
	void (*stop)(struct target *target);
	/* Frees target->recording. The target may be half made. */
	void (*disarm)(struct target *target);

	/*
	 * What of the recording a hit of a trigger can pause at the very instruction
	 * (daemon/perf/pausable.h), borrowed; NULL: nothing, and why.
	 */
	struct pausable *(*pausable)(const struct target *target, const char **ret_why);

	/* ---- what a recording has */

	/* The descriptors that it holds. */
	size_t (*fds)(const struct target *target);
	/* Begins to count what the rings hold, on a thread; whether that goes on. */
	void (*survey)(struct target *target);
	bool (*is_surveying)(const struct target *target);
	/*
	 * A job that finds out how far back the rings reach; what happened before that can be
	 * forgotten. 0, -ENOMEM.
	 */
	int (*look_back)(const struct target *target, struct backend_job **ret);
	/* As far as it is known now. */
	void (*stats)(const struct target *target, struct backend_stats *ret);
	/*
	 * What a Target of the protocol has under the back end's name. NULL on allocation failure.
	 */
	struct json_object *(*describe)(const struct target *target);

	/* ---- a frozen one */

	/*
	 * Beside another back end's recording, just before that is frozen: records the stacks of
	 * the threads that run.
	 */
	void (*stacks)(const struct target *target);
	/* Takes references: frozen->recording. 0, -errno. */
	int (*freeze)(struct target *target, struct frozen *frozen);
	/*
	 * On a thread, soon after it, unless frozen->pending: copies what goes on being written
	 * into memory, at most `max_bytes`. Says how many it took. The loop may join lost records
	 * to `frozen` meanwhile.
	 */
	uint64_t (*set_aside)(struct frozen *frozen, uint64_t max_bytes);
	/*
	 * On the copier thread, before anything is written: copies what must not be waited for. 0,
	 * -errno.
	 */
	int (*take)(struct frozen *frozen);
	/*
	 * Of one that has somebody else's recording: on the copier thread, writes perf.data and
	 * what belongs to it into the bundle's directory. 0, CAPTURE_E_NONE, -errno.
	 */
	int (*import)(struct frozen *frozen, int dir_fd, uint64_t max_bytes,
		      const atomic_bool *cancel, uint64_t *ret_bytes);
	/* On the copier thread: adds its events and records. 0, -errno. */
	int (*copy)(struct frozen *frozen, struct perfdata_writer *writer,
		    struct frozen_stats *stats);
	/* Puts back what only the copy needs. Idempotent. */
	void (*resume)(struct frozen *frozen);
	/* Frees frozen->recording, after resume(). */
	void (*free)(struct frozen *frozen);
	/* Adds to meta.json; the last two are NULL before the copy. */
	void (*meta)(const struct frozen *frozen, struct json_object *events,
		     struct json_object *losses, struct json_object *gaps);
};

/* All of them; "auto" means the first one that this machine has. */
#define BACKENDS 4
extern const struct backend *const backends[BACKENDS];
/* By the name that a client asked for; NULL or "auto": the default. NULL: there is none. */
const struct backend *backend_find(const struct targets *targets, const char *name);

/*
 * Events records nothing itself: it is of targets that nobody armed, whose process has registered
 * event rings.
 */
extern const struct backend backend_pt, backend_sample, backend_step, backend_events;
