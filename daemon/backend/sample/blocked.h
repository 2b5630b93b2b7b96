/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the threads of a target that sleep are waiting in, when it is armed and when it is frozen:
 * of a wait that began before the rings do they have no stack. Nothing is stopped: the kernel tells
 * the registers of who sleeps, the stack is read as memory, and who has left a CPU meanwhile is not
 * believed. Owns the thread's work and its results; knows no rings.
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
struct hashmap;
struct target;
struct blocked;

/* One of them. */
struct blocked_stack {
	struct filter_task task;
	bool slept;	  /* all the time while its stack was read */
	uint32_t size;	  /* of what could be read, from the stack pointer on */
	uint8_t *bytes;	  /* owned */
};

/*
 * Both begin to take them on a thread that reads processes. 0, -EOPNOTSUPP: this machine cannot;
 * -EBUSY: too many threads hang in processes of this user; -errno. One that hangs keeps others of
 * its user from being tried: they can be armed still.
 *
 * At arming they are kept, for waits that end later; if those of all targets are too many bytes
 * there are none. A freeze does not wait: the rings go on meanwhile.
 */
int blocked_at_arming(const struct target *target, size_t stack_bytes,
		      struct blocked **ret) _must_check_;
int blocked_at_freeze(const struct target *target, const struct frozen *frozen, size_t stack_bytes,
		      struct blocked **ret) _must_check_;
struct blocked *blocked_ref(struct blocked *blocked);
/* A thread that hangs keeps what it has. */
struct blocked *blocked_put(struct blocked *blocked);
bool blocked_is_done(const struct blocked *blocked);

/* ---- on the copier thread: once this says that it is done, within so many ms at most */

bool blocked_await(struct blocked *blocked, unsigned int ms);
/* When all of them slept. */
uint64_t blocked_asleep_ns(const struct blocked *blocked);
/*
 * The next of those that have slept since before `complete_ns`; NULL at the end. `seen` has the
 * newest record that the rings have of a thread, by its id; NULL: nobody knows. *pos begins at 0.
 */
const struct blocked_stack *blocked_next(const struct blocked *blocked, const struct hashmap *seen,
					 uint64_t complete_ns, size_t *pos);
/* The thread has left a CPU since then: it is in another wait. False also if it is not there. */
bool blocked_is_later(const struct blocked *blocked, uint32_t tid, uint64_t switches);
/*
 * The one of a thread, if it has slept since it left a CPU for the `switches`th time; NULL: it is
 * not there.
 */
const struct filter_task *blocked_task(const struct blocked *blocked, uint32_t tid,
				       uint64_t switches);
/* How many slept and could not be read, or were too many. */
uint64_t blocked_missing(const struct blocked *blocked);
/*
 * The event of their records, like `attr` with registers and a stack; and one of the records, which
 * must have BLOCKED_RECORD_MAX bytes. `kernel`: with the kernel's part of the stack, if it was
 * asked for. Returns its size.
 */
#define BLOCKED_RECORD_MAX 65536u
void blocked_attr(const struct blocked *blocked, struct perf_event_attr *attr);
size_t blocked_record(const struct blocked *blocked, const struct blocked_stack *stack, bool kernel,
		      uint64_t id, uint64_t time_ns, void *record);
