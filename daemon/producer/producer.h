/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Producers that have registered their event rings (common/bundle/ringabi.h): the memfd that was
 * checked, the eventfd by which they ask for attention, the control page that they were given, and
 * how long all of it is kept. Owns no target and no trigger; interprets no slot and no name.
 *
 *   register ──► LIVE ── connection or process ends (exit, crash, exec, stop) ──► ENDED ── snapshot taken, or
 *                                                                                           exited_keep_s ──► freed
 *
 * One process has one live producer. The rings of one that has ended are kept for the next
 * snapshot; they go earlier where their user's share is full and another producer of that user
 * wants to register.
 *
 * Everything runs on the loop, but producer_copy(), which is the copier's.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "common/bundle/ringabi.h"

struct clockseries;
struct config;
struct event_base;
struct json_object;
struct peer;
struct producer;
struct producers;
struct quota;

enum producer_state { PRODUCER_LIVE, PRODUCER_ENDED };

/* Answers of producers_register(); `why` has the sentence for the producer. */
enum {
	/* not a memfd, the wrong seals, hugetlb, sizes that contradict each other, no eventfd */
	PRODUCER_E_BAD = 1,
	PRODUCER_E_TOO_LARGE,	/* more bytes, rings or names than the configuration allows */
	PRODUCER_E_QUOTA,	/* of this user */
	PRODUCER_E_BUSY,	/* of the daemon; or the process has a live producer */
	PRODUCER_E_GONE,	/* the process has ended */
	PRODUCER_E_UNSUPPORTED, /* this machine cannot convert the clock of the rings */
};

/* A cause that a producer has written, checked and with its times on MONOTONIC_RAW. */
struct producer_cause {
	enum ring_cause_kind kind;
	uint32_t tid; /* as the daemon sees it; 0: not known */
	uint32_t trigger;
	uint64_t begin_raw_ns, end_raw_ns;
	const char *text; /* escaped; the region's name or the reason */
};

struct producers_callbacks {
	/* A producer came, or ended. */
	void (*changed)(void *arg, struct producer *producer);
	/* One that had ended is forgotten after the call; who has a reference keeps its memory. */
	void (*gone)(void *arg, struct producer *producer);
	/* It wants a snapshot. */
	void (*cause)(void *arg, struct producer *producer, const struct producer_cause *cause);
	void *arg;
};

int producers_new(struct event_base *base, const struct config *config, struct quota *quota,
		  struct clockseries *clocks, struct producers **ret) _must_check_;
struct producers *producers_free(struct producers *ps);
DEFINE_CLEANUP(struct producers *, producers_free)
void producers_set_callbacks(struct producers *ps, const struct producers_callbacks *callbacks);

/*
 * Checks and takes in the rings of the process at the other end of a connection. The descriptors
 * stay the caller's; what is kept is duplicated, but for the peer's pidfd, which must stay open
 * until the producer ends. *ret_control_fd: read-only, the caller's. The caller calls
 * producer_end() when the connection ends. 0, PRODUCER_E_*, -errno.
 */
int producers_register(struct producers *ps, const struct peer *peer, int rings_fd, int wake_fd,
		       struct producer **ret, int *ret_control_fd, char *why,
		       size_t why_size) _must_check_;
/*
 * It is a Go program of that version that answers "go.trace", with traces that go back that far.
 * Right after it has registered.
 */
void producer_set_go(struct producer *producer, const char *version, uint64_t keep_ns);
/*
 * It streams its trace into this memory (common/bundle/gostream.h), besides. It is charged to the
 * user, and that of an earlier connection of the process is given up. 0, PRODUCER_E_BAD,
 * PRODUCER_E_TOO_LARGE or PRODUCER_E_QUOTA with `why`, -errno.
 */
int producer_set_go_stream(struct producer *producer, int fd, char *why,
			   size_t why_size) _must_check_;
void producer_end(struct producer *producer);

/*
 * What came in answer to "go.trace": the result and a descriptor (set it to -1 to take it), or NULL
 * and why.
 */
typedef void (*producer_go_fn)(void *arg, struct json_object *result, const char *why, int *fd);

/* The connection of a live producer. */
struct producer_connection {
	/* Send "control.changed". */
	void (*control)(void *arg);
	/*
	 * Whether the producer still has its end; if not, another of the same process takes its
	 * place.
	 */
	bool (*alive)(void *arg);
	/* The producer has ended by itself: the process is gone. */
	void (*ended)(void *arg);
	/* Sends "go.trace" (takes over `params`); as producer_go_ask(). */
	int (*go_ask)(void *arg, struct json_object *params, producer_go_fn done, void *done_arg,
		      void **ret);
	void (*go_drop)(void *request);
	void *arg;
};
/* NULL: it has none any more. */
void producer_connect(struct producer *producer, const struct producer_connection *connection);

struct producer *producer_ref(struct producer *producer);
struct producer *producer_unref(struct producer *producer);
DEFINE_CLEANUP(struct producer *, producer_unref)

/* Iteration in order of registration: the one after `after`, or the first (NULL). */
struct producer *producers_next(const struct producers *ps, const struct producer *after);
/* The same among those of one process, the newest first. */
struct producer *producers_of(const struct producers *ps, pid_t pid, uint64_t start_time,
			      const struct producer *after);
uint64_t producer_id(const struct producer *producer);
pid_t producer_pid(const struct producer *producer);
uint64_t producer_start_time(const struct producer *producer);
/* As it sees itself. */
pid_t producer_nspid(const struct producer *producer);
/* Bytes of the producer, at registration. */
const char *producer_comm(const struct producer *producer);
uid_t producer_uid(const struct producer *producer);
/*
 * Whether that user may know what is in its rings: it is the user's, and was nothing at its
 * registration that the user may not look into (setuid, file capabilities, not dumpable).
 */
bool producer_is_open_to(const struct producer *producer, uid_t uid);
/* Of its memory. */
uint64_t producer_bytes(const struct producer *producer);
enum producer_state producer_state(const struct producer *producer);
/*
 * "events" of T: {state, programs: 1, threads, threads_max, ring_bytes, bytes, names, clock,
 * registered_at, lost: {events, names, texts}}. Reads the header: numbers are the producer's word.
 */
struct json_object *producer_to_json(struct producer *producer);

/* ---- the execution trace of a Go program */

/* Escaped; NULL: the producer answers no "go.trace". */
const char *producer_go_version(const struct producer *producer);
/* -1: it has none. */
int producer_go_stream(const struct producer *producer, uint64_t *ret_bytes);
/* How far back its traces go, by its own word; never before its registration. */
uint64_t producer_go_keep_ns(const struct producer *producer);
/*
 * Asks it. `done` is called once by the loop, not from within this call, and not after
 * producer_go_drop(). 0; -ESRCH: it has ended; -EBUSY, -ENOMEM.
 */
int producer_go_ask(struct producer *producer, uint64_t max_bytes, uint64_t wait_ns,
		    producer_go_fn done, void *arg, void **ret) _must_check_;
/* Only one that `done` was not called for. */
void producer_go_drop(struct producer *producer, void *request);

/*
 * Thresholds of the control page. `id` is not 0; with one that is in the page the numbers of its
 * entry change (the name must be the same: a hit on its way still finds what it was of), any other
 * was never used in this page. -ENOSPC: all RING_THRESHOLDS are in use; -EINVAL: the name is longer
 * than an entry holds. The owner of the connection (producer_connect()) tells the producer of every
 * change. Of a producer that has ended nothing happens, and nothing fails.
 */
int producer_threshold_set(struct producer *producer, uint32_t id, const char *region,
			   uint64_t threshold_ns, uint64_t cooldown_ns) _must_check_;
void producer_threshold_clear(struct producer *producer, uint32_t id);
/*
 * What the producer kept to itself in the cooldown of that threshold since it was set, by its own
 * word.
 */
uint64_t producer_threshold_suppressed(struct producer *producer, uint32_t id);

/* A snapshot with it is on disk: one that has ended goes now. */
void producer_collected(struct producer *producer);

/* What a copy did. */
struct producer_copy_stats {
	uint64_t rings, bytes;	  /* copied */
	uint64_t rings_left_out;  /* no room: max_bytes */
	uint64_t copy_ns;
	bool ended; /* the producer had ended before */
};
/*
 * Copier thread: writes common/bundle/ringfile.h into `fd`, at most `max_bytes`. -ECANCELED, -errno
 * of the file; what the producer did to its memory is no error.
 */
int producer_copy(struct producer *producer, int fd, uint64_t max_bytes, const atomic_bool *cancel,
		  struct producer_copy_stats *ret) _must_check_;

/* Adds "events" to the status object and what was refused or lost to `losses`. */
void producers_status(const struct producers *ps, struct json_object *status,
		      struct json_object *losses);
