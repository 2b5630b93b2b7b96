/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks that are unwound in the kernel: which files' tables are wanted and which are there, and where each process has mapped
 * them. Follows the side-band records of targets with stacks=bpf or auto; what a process has no table for is copied.
 *
 * An object is a file by device, inode, size and times: its table is made once, for all processes, and stays.
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
struct target;
struct targets;
struct unwind;

/* `filter` unwinds (filter_unwinds()), and outlives it. */
int unwind_new(struct targets *targets, const struct filter *filter, struct unwind **ret) _must_check_;
/* The sampler's thread has ended. */
struct unwind *unwind_free(struct unwind *u);

/* Of a process of the target: it maps, forks, executes. */
void unwind_record(struct unwind *u, const struct target *target, const struct perf_event_header *h);
/* Whether stacks of the process are to be unwound; it is asked for whenever that may have changed. */
void unwind_want(struct unwind *u, pid_t pid, bool wanted);
/* No target has the process any more. */
void unwind_forget(struct unwind *u, pid_t pid);
/* Files have been opened, or cannot be. */
void unwind_images_settled(struct unwind *u);

/* How the stacks of a process ended since it is recorded; adds. */
struct unwind_counts {
	uint64_t whys[UNWIND_WHYS];
	uint64_t frame_pointers;
	uint64_t files, waiting, without; /* code that it has mapped: with a table, to come, without */
};
void unwind_count(const struct unwind *u, pid_t pid, struct unwind_counts *sum);
/* The same in words. NULL on allocation failure. */
struct json_object *unwind_counts_json(const struct unwind_counts *counts);

/* A copy for another thread. */
int unwind_copy_doubts(const struct unwind *u, struct unwind_doubts *ret) _must_check_;

void unwind_status(const struct unwind *u, struct json_object *status);
