/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the producers share: the list and its life (producer.c), how one gets into it
 * (register.c), what the producers write for us (cause.c, threads.c), numbers for people (json.c),
 * the copy (ring_copy.c). Nobody else includes this.
 */
#pragma once

#include <event2/event.h>
#include <sys/queue.h>

#include "common/base/procfs.h"
#include "daemon/control/quota.h"
#include "daemon/producer/control_page.h"
#include "daemon/producer/producer.h"

#define PRODUCER_BUCKETS 256
#define PID_LIMIT (1u << 22) /* of Linux: no thread has a higher id */

#define GO_VERSION_MAX 260 /* of 64 bytes, escaped */

/*
 * How often one producer may wake us: WAKES_MAX in WAKES_NS, then it waits for the rest of that
 * time.
 */
#define WAKES_MAX 50
#define WAKES_MS 200

/* Threads by the numbers that the producer has for them. */
struct producer_threads {
	pid_t *tids, *inner; /* [n]; inner 0: not known */
	size_t n;
};

struct producer {
	TAILQ_ENTRY(producer) link;	  /* of producers.all: in order of registration */
	LIST_ENTRY(producer) by_pid;
	TAILQ_ENTRY(producer) ended_link; /* of producers.ended: in order of the end */
	TAILQ_ENTRY(producer) paused_link;
	struct producers *ps; /* not owned; NULL: forgotten, somebody still has a reference */
	unsigned int refs;
	uint64_t id;
	_Atomic(enum producer_state) state; /* the copier reads it */
	/* who it is, as of registration */
	pid_t pid, nspid;
	uint64_t start_time;
	uid_t uid, strict_uid;
	char comm[PROC_COMM_MAX];
	/* what it gave us */
	int memory_fd, wake_fd;
	int go_stream_fd; /* -1: none */
	uint64_t go_stream_bytes;
	int pidfd; /* borrowed from the connection while it lives */
	uint32_t clock; /* enum ring_clock */
	struct ring_geometry geometry;
	struct event *on_wake, *on_exit;
	/* what it got */
	struct controlpage *page;
	char go_version[GO_VERSION_MAX]; /* escaped; "": it is none */
	uint64_t go_keep_ns;
	/* of each entry: its count when the threshold was set */
	uint64_t suppressed_at[RING_THRESHOLDS];
	struct producer_connection connection;
	void (*go_drop)(void *request); /* of the last connection */
	/* causes: the last sequence that was taken at each place */
	uint64_t taken[RING_CAUSES];
	uint64_t window_ns; /* MONOTONIC: begin of the time in which wakes are counted */
	unsigned int wakes;
	bool paused;
	struct producer_threads threads; /* threads.c, for causes */
	uint64_t threads_ns; /* MONOTONIC: when they were read; 0: never */
	/* life */
	uint64_t registered_unix_ns, registered_ns, ended_ns; /* the last two: MONOTONIC */
	bool tsc;
	struct quota_charge charge_one, charge_bytes, charge_stream;
};

TAILQ_HEAD(producer_list, producer);

struct producers {
	struct event_base *base;
	const struct config *config;
	struct quota *quota;
	struct clockseries *clocks;
	struct producers_callbacks callbacks;
	struct producer_list all, ended, paused;
	LIST_HEAD(, producer) by_pid[PRODUCER_BUCKETS];
	struct event *expire; /* for the oldest of those that have ended */
	struct event *resume; /* for all that are paused */
	uint64_t last_id;
	size_t n_live, n_ended;
	uint64_t bytes; /* of the memory of all */
	/* threads.c: how many files it has read since then, MONOTONIC */
	uint64_t files_since_ns;
	unsigned int files_read;
	/* counts since the start */
	uint64_t registered, refused[PRODUCER_E_UNSUPPORTED + 1], evicted;
	uint64_t causes, causes_lost, causes_bad, pauses;
};

/* ---- cause.c */
/* What was written before the registration is of nobody's concern. */
void producer_causes_skip(struct producer *producer, uint64_t head);
/* Reads what has come and reports it by the callback. */
void producer_causes_take(struct producer *producer);

/* ---- threads.c */
void producer_threads_fini(struct producer_threads *threads);
/* On any thread: all threads of the process; -E2BIG: more than `max`; -ESRCH: it has ended. */
int producer_threads_read(const struct producer *producer, uint64_t max,
			  struct producer_threads *ret) _must_check_;
/* The thread with that number of the producer's; 0: not known. */
uint32_t producer_threads_find(const struct producer_threads *threads, uint32_t inner);
/* The same on the loop, of any producer: it reads what is needed unless that would take long. */
uint32_t producer_tid_here(struct producer *producer, uint32_t tid);

/* ---- producer.c */
size_t producer_bucket(pid_t pid);
/* Frees everything by which a living one costs or reports something. */
void producer_detach(struct producer *producer);
/* The end, reported to its connection. */
void producer_end_by_itself(struct producer *producer);
void producer_drop_go_stream(struct producer *p);

/* One that has ended goes out of the list; its memory stays for those who have a reference. */
void producer_forget(struct producer *producer);
/* Of the eventfd and the pidfd. */
void producer_on_wake(evutil_socket_t fd, short what, void *arg);
void producer_on_exit(evutil_socket_t fd, short what, void *arg);
/* A u64 of the header, 0 if it cannot be read. */
uint64_t producer_read_u64(const struct producer *producer, size_t offset);
