/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks that are unwound in the kernel: where each process has mapped the files that have tables
 * (unwind_objects.h). Follows the side-band records of sampled targets; what a process has no table
 * for is copied. Python's functions are looked for where stacks are unwound, goroutines of Go
 * programs everywhere.
 */
#pragma once

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "daemon/backend/sample/bpf/unwind.h"
#include "daemon/backend/sample/unwind_doubt.h"

struct filter;
struct json_object;
struct python;
struct target;
struct targets;
struct unwind;

/* `filter` unwinds (filter_unwinds()), and outlives it. */
int unwind_new(struct targets *targets, const struct filter *filter,
	       struct unwind **ret) _must_check_;
/* The sampler's thread has ended. */
struct unwind *unwind_free(struct unwind *u);

/* Of a process of the target: it maps, forks, executes. */
void unwind_record(struct unwind *u, const struct target *target,
		   const struct perf_event_header *h);
/*
 * Records may have been lost, none before `whole_ns`: stacks are copied until unwind_whole(), and
 * what was unwound since then is in doubt.
 */
void unwind_lost(struct unwind *u, uint64_t whole_ns);
void unwind_whole(struct unwind *u, pid_t pid);
/*
 * Whether stacks of the process are to be unwound; it is asked for whenever that may have changed.
 */
void unwind_want(struct unwind *u, pid_t pid, bool wanted);
/* The same of what goroutines its threads run. */
void unwind_want_goroutines(struct unwind *u, pid_t pid, bool wanted);
/* No target has the process any more. */
void unwind_forget(struct unwind *u, pid_t pid);
/* Files have been opened, or cannot be. */
void unwind_images_settled(struct unwind *u);

/* How the stacks of a process ended since it is recorded; adds. */
struct unwind_counts {
	uint64_t whys[UNWIND_WHYS];
	uint64_t frame_pointers;
	/* code that it has mapped: with a table, to come, without */
	uint64_t files, waiting, without;
};
void unwind_count(const struct unwind *u, pid_t pid, struct unwind_counts *sum);
/* The same in words. NULL on allocation failure. */
struct json_object *unwind_counts_json(const struct unwind_counts *counts);

/*
 * The Python interpreter of a process, and how often its frames were found; NULL: it has none, or
 * they are not looked for.
 */
struct json_object *unwind_python_json(const struct unwind *u, pid_t pid);
/*
 * The Go program that a process is, and how often goroutines were read; NULL: it is none, or they
 * are not read.
 */
struct json_object *unwind_go_json(const struct unwind *u, pid_t pid);
/* NULL: Python's frames are not found. */
struct python *unwind_python(const struct unwind *u);

/* A copy for another thread. */
int unwind_copy_doubts(const struct unwind *u, struct unwind_doubts *ret) _must_check_;

void unwind_status(const struct unwind *u, struct json_object *status);
