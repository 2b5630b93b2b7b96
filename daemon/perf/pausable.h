/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tracing events that a member of their group can pause at the very instruction (aux_pause of
 * perf_event_open(2), kernel 6.13). Whoever has such members is given this; whose events they are,
 * and how they go on again, he does not know.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct closer;
struct pausable;

struct pausable_ops {
	/* The loop. */
	void (*ref)(struct pausable *pausable);
	void (*put)(struct pausable *pausable);
	/*
	 * Closes what has joined, before it is put: no member of a group may outlive its leader,
	 * since a thread that is born then is not.
	 */
	struct closer *(*closer)(struct pausable *pausable);
	/*
	 * Before leader() is asked of these threads of one process: 0, or -errno where nothing can
	 * be paused. Any thread.
	 */
	int (*prepare)(struct pausable *pausable, const pid_t *tids, size_t n);
	/*
	 * For struct eventset_spec: the events that may be tracing the thread on the CPU of that
	 * number, and can go on again. What joins the group pauses it, if it inherits as that does
	 * and has its clock (CLOCK_MONOTONIC_RAW). Valid as long as it is referenced. Any thread.
	 */
	int (*leader)(struct pausable *pausable, pid_t tid, int cpu, size_t attempt);
	/* A member has paused the thread there at `ns`: it is to go on soon. The loop. */
	void (*paused)(struct pausable *pausable, int cpu, uint32_t tid, uint64_t ns);
	/* Members may have paused others, of whom nobody knows. The loop. */
	void (*lost)(struct pausable *pausable, uint64_t ns);
};

struct pausable {
	const struct pausable_ops *ops;
};
