/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a way of capturing is to the rest: a table of functions. The targets ask for one when they
 * are armed and never look behind it; a frozen recording keeps what its back end needs for the copy.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

struct frozen;
struct frozen_stats;
struct json_object;
struct perfdata_writer;
struct target;
struct targets;

struct backend_stats {
	const char *method;
	uint64_t lookback_ns, samples, switches; /* in the rings now */
	uint64_t ring_bytes;                     /* of its own, and its share of none that are shared */
	uint64_t lost, switch_drops;
};

struct backend {
	const char *name;
	/* Whether anything can be recorded here; `why` says how, or why not. */
	bool (*probe)(const struct targets *targets, const char **ret_method, char *why, size_t why_size);
	/*
	 * Begins recording: 0, TARGET_E_*, -errno. The target has its first members. NULL for samples, whose rings are
	 * chosen before (daemon/backend/sample/choice.h).
	 */
	int (*arm)(struct target *target, char *why, size_t why_size);
	/* What it has recorded is another target's now: `target` has it. May be NULL. */
	void (*moved)(struct target *target);
	/* The members or the wanted stacks have changed: perhaps another method is better now, soon. */
	int (*review)(struct target *target, bool members_added);
	/* What was kept from before a change may go. */
	void (*settle)(struct target *target);
	/* Ends recording; what is in the rings stays readable until release. */
	void (*stop)(struct target *target);
	void (*disarm)(struct target *target);
	/* On the loop: takes references. */
	int (*freeze)(struct target *target, struct frozen *frozen);
	/* On the copier thread. */
	int (*copy)(struct frozen *frozen, struct perfdata_writer *writer, struct frozen_stats *stats);
	/* On the loop. Idempotent. */
	void (*resume)(struct frozen *frozen);
	void (*stats)(struct target *target, struct backend_stats *ret);
	/*
	 * Of one that does not record by itself but has somebody else's recording, NULL in others. `bring`, on the copier
	 * thread, writes perf.data and what belongs to it into the bundle's directory: 0, CAPTURE_E_NONE, -errno.
	 */
	int (*bring)(struct frozen *frozen, int dir_fd, uint64_t max_bytes, const atomic_bool *cancel, uint64_t *ret_bytes);
	/* Adds to a Target of the protocol, and to meta.json; the last two are NULL before the copy. */
	void (*describe)(const struct target *target, struct json_object *o);
	void (*meta)(const struct frozen *frozen, struct json_object *events, struct json_object *losses,
		     struct json_object *gaps);
};

extern const struct backend backend_sample, backend_events, backend_step;
