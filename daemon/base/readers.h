/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that read /proc and open events of other processes. A process can make whoever reads its
 * memory map wait for as long as it likes: it holds its own lock over a page of a file system that
 * does not answer. One thread does all jobs in turn. If a job takes longer than READERS_PATIENCE_S,
 * it keeps its thread and another thread goes on with the rest. When it comes back after all, its
 * owner may go on with it.
 *
 * So that no user holds all threads, the processes of a user may keep READERS_HANGING_UID of them,
 * those of all users READERS_HANGING; further jobs of theirs wait.
 */
#pragma once

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "common/base/cleanup.h"

#define READERS_PATIENCE_S 2
#define READERS_HANGING_UID 2
#define READERS_HANGING 16

struct readers;

/*
 * Embedded by its owner, who does not free it between readers_submit() and done(). run() is called
 * on a thread and touches nothing but what is the job's own: when it hangs it outlives all else.
 * hangs() is called on the loop when another thread goes on, done() on the loop after run(), once;
 * neither in readers_submit().
 */
struct reader_job {
	void (*run)(struct reader_job *job);
	void (*done)(struct reader_job *job);
	void (*hangs)(struct reader_job *job); /* may be NULL */
	uid_t uid;	/* whose process it reads */
	bool patient;	/* it waits for no process: it takes its time */
	bool is_hanging; /* the readers' from here: between hangs() and done() */
	/* when run() begins another of this user's hangs: what is not needed had better not */
	bool risks_last;
	TAILQ_ENTRY(reader_job) link;
};

int readers_new(struct event_base *base, struct readers **ret) _must_check_;
/*
 * For the daemon's end, after the owners have cancelled what they can: done() is called for all
 * jobs, run or not, but for those whose thread does not come back within a second. These are left
 * with their threads: see copiers_left().
 */
struct readers *readers_free(struct readers *readers);
DEFINE_CLEANUP(struct readers *, readers_free)

void readers_submit(struct readers *readers, struct reader_job *job);
/* Whether a job of this user's would not wait for one that hangs. */
bool readers_may(const struct readers *readers, uid_t uid);
size_t readers_hanging(const struct readers *readers);
