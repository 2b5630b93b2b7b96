/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One piece of work on a target, for daemon/target/work.c, which decides whose turn it is, and
 * daemon/target/scan.c, whose steps read processes. What the thread touches is the work's own: the
 * target may go at any time.
 */
#pragma once

#include "daemon/base/readers.h"
#include "daemon/target/target_internal.h"

struct closer;
struct scan_entry;

enum turn {
	TURN_ON,     /* the next step at once, if there is time */
	TURN_LATER,  /* it has asked to be called again */
	TURN_THREAD, /* w->run() goes first */
	TURN_END,
};

/* What is to be read of a target's processes, and how far that has got. */
struct scan {
	int maps_fd; /* of who has to prove that he may read it; -1 */
	char *unit; /* its name, or the path of the control group that it had */
	bool host; /* all processes instead */
	int mount_fd; /* the targets' */
	struct cgroup cgroup;
	pid_t *pids; /* owned, sorted: who is in it */
	size_t n_pids, next_pid;
	uint64_t listed_ns; /* before they were read */
	pid_t *roots; /* owned: of a family, whose children are looked for */
	size_t n_roots, n_joined; /* entries that there were then */
	bool added;
	struct scan_entry *entries; /* owned: who is read */
	size_t n_entries, entries_room;
	pid_t tid;
	bool follow, children;
	uint64_t time_ns;
	unsigned int records; /* enum proc_records_what */
	size_t block, at; /* of the view, what is kept next */
};
#define SCAN_INIT                                                                                  \
	{                                                                                          \
		.maps_fd = -1, .mount_fd = -1, .cgroup = CGROUP_INIT                               \
	}

struct work {
	struct reader_job job; /* first */
	TAILQ_ENTRY(work) link; /* while it is not the current one */
	struct work_queue *queue; /* back pointer */
	void (*run)(struct work *w);
	enum turn (*next)(struct work *w, uint64_t deadline); /* NULL: nothing is under way */
	struct target *target; /* NULL: it went meanwhile */
	enum target_work what;
	bool on_thread;
	/* in and out of the thread */
	atomic_bool cancel;
	int result;
	struct scan scan;
	uint64_t armed_ns, oldest_ns;
	struct sideband_log log;
	struct sideband_log_view view;
	struct backend_job *backend_job; /* owned; NULL: none was begun */
};

/* ---- work.c */
/* Has the next step called soon: for a step that answers TURN_LATER. */
void work_kick(struct work *w);
/* Ends an arming. */
enum turn work_refuse(struct work *w, int answer, const char *why);
/* Goes on with the back end, when a target that is armed has been read. */
enum turn work_begin_arm(struct work *w);

/* ---- scan.c */
/* The first step of an arming or of a look at who is in a unit. */
enum turn scan_begin(struct work *w);
/* The first step where the kernel lost records. */
enum turn scan_begin_resync(struct work *w);
/*
 * Whoever waits for lost records of the target waits no longer. `log` has what was read again;
 * NULL: nothing was.
 */
void scan_resync_end(struct target *target, const struct sideband_log *log);
void scan_fini(struct scan *scan, struct closer *closer);
