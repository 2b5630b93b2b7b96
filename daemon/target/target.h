/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes, threads and units that tracerd records: who they are (a pidfd and a start time,
 * never a bare pid), who armed them, what state they are in. Owns their life from arm to the end
 * of the grace time after exit; how they are recorded is the back end's (daemon/target/backend.h).
 *
 *             arm                     exec of a user's target, credentials changed
 *   (none) ─────────► ARMED ───────────────────────────────────────► SUSPENDED
 *                       │  the process ended; the unit, for exited_keep_s │
 *                       └───────────► EXITED ◄────────────────────────────┘
 *   disarm, or exited_keep_s after the exit: gone (a freeze in flight keeps what it needs)
 *
 * A target that nobody armed has EXITED when its producer's registration has ended, and is ARMED
 * again when the producer comes back.
 *
 * All of it runs on the event loop's thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"

struct config;
struct clockseries;
struct event_base;
struct hub;
struct openings;
struct json_object;
struct producer;
struct producers;
struct quota;
struct target;
struct targets;

enum target_scope { TARGET_PROCESS, TARGET_THREAD, TARGET_UNIT, TARGET_HOST };
/*
 * Of a control group: of a unit, or of the whole host, whose processes are those of the root group.
 */
static inline bool target_scope_is_group(enum target_scope scope)
{
	return scope == TARGET_UNIT || scope == TARGET_HOST;
}
enum target_state { TARGET_ARMED, TARGET_SUSPENDED, TARGET_EXITED };
const char *target_scope_name(enum target_scope scope);
const char *target_state_name(enum target_state state);
enum stacks_mode { STACKS_AUTO, STACKS_FP, STACKS_DWARF, STACKS_BPF };
const char *stacks_mode_name(enum stacks_mode mode);

/* Answers of targets_arm(); `why` has the sentence for the client. */
enum {
	TARGET_E_GONE = 1,      /* no such process, thread or unit (or it ended meanwhile) */
	TARGET_E_NOT_PERMITTED, /* the requester may not see it */
	TARGET_E_QUOTA,
	TARGET_E_UNSUPPORTED, /* this machine or these capabilities cannot record it */
	TARGET_E_EXISTS,      /* it is armed already, or just being armed */
	TARGET_E_BUSY,
	TARGET_E_BAD, /* the request contradicts itself */
	TARGET_E_STOPPING,
};

/*
 * What a client asked for. The descriptors stay the caller's; what is kept is duplicated.
 * A requester that is not admin must pass `maps_fd`, an fd of /proc/PID/maps that it opened.
 */
/* Ranges of code: no processor with PT has more. */
#define TARGET_FILTERS_MAX 4

struct target_request {
	enum target_scope scope;
	pid_t pid; /* 0 if only a pidfd or a unit names the target */
	pid_t tid; /* TARGET_THREAD */
	/* TARGET_UNIT: unit name ("nginx.service") or path below the cgroup2 mount */
	const char *unit;
	int pidfd;        /* -1 if none */
	int maps_fd;      /* -1 if none */
	int step_fd;      /* with the back end "step": the end of a stepper's connection; -1 */
	/*
	 * with kernel_stacks: the names of the kernel's functions; -1: the daemon's own rights
	 * decide
	 */
	int kallsyms_fd;
	int kcore_fd;     /* /proc/kcore, for the kernel's code; -1 */
	uid_t uid;        /* of the requester */
	gid_t gid;
	bool admin;
	enum stacks_mode stacks;
	bool waits;
	bool kernel_stacks; /* also of the kernel; an admin's */
	uint64_t keep_ns; /* how far back it is to reach; 0: as configured */
	const uint64_t *wait_min_ns; /* shorter waits need no stacks; NULL: as configured */
	bool children; /* also what its processes start; of a group always */
	const char *backend; /* NULL, "auto", "pt", "sample" or "step" */
	size_t pt_ring_bytes; /* of a CPU; 0: as configured */
	const char *pt_timing; /* NULL: as configured */
	/* code that alone is traced, as the protocol has it; of the back end pt */
	const char *filters[TARGET_FILTERS_MAX];
	size_t n_filters;
};

#define TARGET_REQUEST_INIT                                                                        \
	{                                                                                          \
		.scope = TARGET_PROCESS, .pidfd = -1, .maps_fd = -1, .step_fd = -1,                \
		.kallsyms_fd = -1, .kcore_fd = -1, .waits = true                                   \
	}

/*
 * `hub` and `openings` may be NULL (tests). What this machine cannot do is no error here: see
 * targets_status().
 */
int targets_new(struct event_base *base, const struct config *config, struct quota *quota,
		struct hub *hub, struct openings *openings, struct targets **ret) _must_check_;
/* Disarms all; frozen recordings must have been freed before. */
struct targets *targets_free(struct targets *targets);

/* Code of a file, as the kernel numbers it, that a process has mapped. */
struct target_mapping {
	pid_t pid;
	uint32_t maj, min;
	uint64_t ino, start, end;
};

/* What others attach to targets. */
struct targets_callbacks {
	/* A process has joined it. May come while records are read: must not arm or disarm. */
	void (*changed)(void *arg, struct target *target);
	/* A process of it has mapped code of a file: likewise. May be NULL. */
	void (*mapped)(void *arg, struct target *target, const struct target_mapping *mapping);
	/* It is gone after the call. */
	void (*gone)(void *arg, struct target *target);
	/* A survey of rings is done. */
	void (*surveyed)(void *arg);
	void *arg;
};
void targets_set_callbacks(struct targets *targets, const struct targets_callbacks *callbacks);

/*
 * Arms. Who is meant and whether the requester may is checked at once: TARGET_E_* with a sentence
 * in `why`, or -errno. 0:
 * it is under way, as reading a large process and opening its events takes a while; `fn` is called
 * once, later, with 0 and the target, or with such an error. With TARGET_E_EXISTS comes the target
 * that the requester armed before, if it records all that is asked for; *ret_existing is that one
 * where it is known at once, else NULL. The target stays owned by `targets`, and is not seen
 * before. The probe for stacks=auto answers later still and switches the target over.
 */
typedef void (*targets_armed_fn)(void *arg, int answer, struct target *target, const char *why);
struct arming;
int targets_arm(struct targets *targets, const struct target_request *req, targets_armed_fn fn,
		void *arg, struct arming **ret, struct target **ret_existing, char *why,
		size_t why_size) _must_check_;
/* `fn` is not called: the requester has gone. */
void targets_arm_cancel(struct arming *arming);
/*
 * Records further processes with a target that is armed, on one timeline; the request names one by
 * pid or pidfd, and has `maps_fd` as for targets_arm(). Under way like that (0), or refused at
 * once; TARGET_E_EXISTS: it is one of the target's.
 */
typedef void (*targets_joined_fn)(void *arg, int answer, struct target *target, const char *why);
struct join;
int targets_join(struct target *target, const struct target_request *req, targets_joined_fn fn,
		 void *arg, struct join **ret, char *why, size_t why_size) _must_check_;
/* `fn` is not called. What joins does so all the same. */
void targets_join_cancel(struct join *join);
/*
 * The daemon stops: refuses armings under way and all later ones. True when all have their answers.
 */
bool targets_stop(struct targets *targets);
/* Ends the recording and forgets the target: the pointer is invalid afterwards. */
void targets_disarm(struct targets *targets, struct target *target);
/*
 * The same for a client. A producer stays, as a target that nobody armed; what an ended one left
 * goes. 0; TARGET_E_BAD: nobody armed it.
 */
int targets_release(struct targets *targets, struct target *target, char *why,
		    size_t why_size) _must_check_;

/*
 * Programs that register event rings (daemon/producer/producer.h): each is a target from then on.
 * Its user's target of the process has the rings; where there is none, one is made that records
 * nothing else (back end "events"), and goes with them. Arming it turns it into one that records,
 * with the same id.
 */
void targets_set_producers(struct targets *targets, struct producers *producers);
void targets_set_clocks(struct targets *targets, const struct clockseries *clocks);
/* For struct producers_callbacks. */
void targets_producer_changed(struct targets *targets, struct producer *producer);
void targets_producer_gone(struct targets *targets, struct producer *producer);
/* The target of that process and owner, one that records before one that does not; NULL. */
struct target *targets_of_producer(const struct targets *targets, pid_t pid, uint64_t start_time,
				   uid_t owner);
/* Whether nobody armed it. */
bool target_is_implicit(const struct target *target);

/*
 * By id ("t3"), or by pid as text ("1234"), among those that this user may see: others may record
 * the same process. A pid names the target that records most of that process. *ret_other, which may
 * be NULL, is another target that records as much of the same process, so that the pid does not say
 * which of them is meant; NULL: there is none. NULL if none.
 */
struct target *targets_find(const struct targets *targets, const char *name, uid_t uid, bool admin,
			    struct target **ret_other);
/*
 * Iteration in order of id, safe over changes in between: the first target whose id is greater
 * than `after` (0: the first), or NULL. target_id() gives the cursor.
 */
struct target *targets_next(const struct targets *targets, uint64_t after);
/* Number of targets in `state`, but for those that nobody armed. */
size_t targets_count(const struct targets *targets, enum target_state state);

uint64_t target_id(const struct target *target);
/* "t3"; owned by the target. */
const char *target_name(const struct target *target);
pid_t target_pid(const struct target *target);
/* As /proc has it: bytes of the target; escape before showing (target_to_json() does). */
const char *target_comm(const struct target *target);
/* As it was asked for; "" where it is none; "/": the host. */
const char *target_unit(const struct target *target);
enum target_scope target_scope(const struct target *target);
/* The thread that alone is recorded, or 0. */
pid_t target_tid(const struct target *target);
/*
 * What of its recording a hit can pause at the very instruction (daemon/perf/pausable.h), borrowed;
 * NULL: nothing, and why, if there is a reason.
 */
struct pausable *target_pausable(const struct target *target, const char **ret_why);
/* The uid of the target's process, and of who armed it. */
uid_t target_uid(const struct target *target);
uid_t target_owner(const struct target *target);
enum target_state target_state(const struct target *target);
/* Its living processes: their number, of which at most `room` are in *ret. */
struct target_process {
	pid_t pid;
	uint64_t start_time;
};
size_t target_processes(const struct target *target, struct target_process *ret, size_t room);
/* Whether this process, of a thread target the thread's, is or was one of the target's. */
bool target_has(const struct target *target, pid_t pid, uint64_t start_time);
/* The targets that it is or was one of: their number, at most `room`. */
size_t targets_having(const struct targets *targets, pid_t pid, uint64_t start_time,
		      struct target **ret, size_t room);
/* Whether a requester may see, freeze and disarm this target. */
bool target_visible(const struct target *target, uid_t uid, bool admin);
/*
 * Whether only administrators may have its snapshots; whether one that is taken for this user is
 * theirs.
 */
bool target_is_admins(const struct target *target);
bool target_gives(const struct target *target, uid_t uid);

/*
 * What rings hold is counted on another thread: begins it for this target (NULL: for all that this
 * user may see), unless that was done a second ago. targets_surveying() says whether it goes on;
 * the callback `surveyed` comes when one is done.
 */
void targets_survey(struct targets *targets, struct target *target, uid_t uid, bool admin);
bool targets_surveying(const struct targets *targets, const struct target *target, uid_t uid,
		       bool admin);

/*
 * A new T of the protocol, with what the last survey said; NULL on allocation failure. Text in it
 * is escaped.
 */
struct json_object *target_to_json(struct target *target);
/*
 * Adds to `status`: "targets" {armed, suspended, exited}, "backends" {sample: {available, method,
 * why}}, "capture" {history, bpf, image fds, ...} and, in the array `lack`, one {what, cost} for
 * each thing this machine or our capabilities do not give.
 */
int targets_status(const struct targets *targets, struct json_object *status,
		   struct json_object *lack);
/* The number of threads that hang in processes that they read. */
size_t targets_readers_hanging(const struct targets *targets);
/* Adds counters of losses by kind to `losses`. */
int targets_losses(const struct targets *targets, struct json_object *losses);
