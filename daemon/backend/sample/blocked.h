/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the threads of a target that sleep are waiting in, when it is armed and when it is frozen: of a wait that began before the
 * rings do they have no stack. Nothing is stopped: the kernel tells the registers of who sleeps, the stack is read as memory, and what has left a CPU
 * meanwhile is not believed. Owns the thread's work and its results; knows no rings.
 */
#pragma once

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "daemon/backend/sample/bpf/filter.h"

/* More threads are counted, and have none. */
#define BLOCKED_THREADS_MAX 4096

struct frozen;
struct target;
struct blocked;

/* One of them. */
struct blocked_stack {
	struct filter_task task;
	uint64_t seen_ns; /* the newest record that the rings have of it; 0: none */
	bool slept;	  /* all the time while its stack was read */
	uint32_t size;	  /* of what could be read, from the stack pointer on */
	uint8_t *bytes;	  /* owned */
};

/*
 * Both begin to take them on a thread that reads processes. 0, -EOPNOTSUPP: this machine cannot; -EBUSY: too many threads hang in
 * processes of this user; -errno. One that hangs keeps others of its user from being tried: they can be armed still.
 *
 * At arming they are kept, for waits that end later; if those of all targets are too many bytes there are none.
 */
int blocked_at_arming(const struct target *target, size_t stack_bytes, struct blocked **ret) _must_check_;
/* A frozen target waits for it (frozen_waits()). *slot is set, and to NULL where it takes too long. */
int blocked_at_freeze(const struct target *target, struct frozen *frozen, size_t stack_bytes, struct blocked **slot) _must_check_;
struct blocked *blocked_ref(struct blocked *blocked);
/* A thread that hangs keeps what it has. */
struct blocked *blocked_put(struct blocked *blocked);
bool blocked_is_done(const struct blocked *blocked);
/* When all of them slept; 0: it is not done yet, or there are none. */
uint64_t blocked_asleep_ns(const struct blocked *blocked);

/* ---- when it is done, on the copier thread */

/* The thread's, NULL: it has none. */
struct blocked_stack *blocked_find(struct blocked *blocked, uint32_t tid);
/* The next of those that have slept since before `complete_ns`; NULL at the end. *pos begins at 0. */
const struct blocked_stack *blocked_next(const struct blocked *blocked, uint64_t complete_ns, size_t *pos);
/* How many slept and could not be read, or were too many. */
uint64_t blocked_missing(const struct blocked *blocked);
/* The event of their records, like `attr` with registers and a stack; and one of the records, which must have BLOCKED_RECORD_MAX bytes. Returns its size. */
#define BLOCKED_RECORD_MAX 65536u
void blocked_attr(const struct blocked *blocked, struct perf_event_attr *attr);
size_t blocked_record(const struct blocked *blocked, const struct blocked_stack *stack, uint64_t id, uint64_t time_ns, void *record);
