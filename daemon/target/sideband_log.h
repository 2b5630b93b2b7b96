/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The side-band log of one target: the records (mmap, comm, fork, exit, namespaces) that explain
 * its samples, in the order they came, up to a limit. Chunks are only appended to, so a frozen view
 * reads them on another thread while the log grows.
 *
 * Records keep the kernel's layout, with SIDEBAND_LOG_ID as their event's id: the events that
 * brought them may be closed and opened again.
 *
 * Compaction forgets what no retained sample can need: threads and processes that ended before the
 * oldest data, and mappings that were replaced before it.
 */
#pragma once

#include <linux/perf_event.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

/* No id of the kernel's, which counts from 1. */
#define SIDEBAND_LOG_ID 0x4000000000000001ULL

struct sideband_log_chunk;

struct sideband_log {
	struct sideband_log_chunk *first, *last;
	size_t bytes, limit;
	size_t compacted_at; /* bytes after the last compaction */
	uint64_t dropped;    /* records over the limit */
	uint64_t records;    /* that it holds */
};

/* What a log held at one moment. */
struct sideband_log_view {
	struct sideband_log_block {
		struct sideband_log_chunk *chunk; /* referenced */
		size_t used;
	} *blocks;
	size_t n_blocks;
	uint64_t dropped, records;
};

void sideband_log_init(struct sideband_log *log, size_t limit);
void sideband_log_fini(struct sideband_log *log);

/*
 * Appends one whole record (its trailer's id is replaced). Over the limit it is dropped and
 * counted. 0 or -ENOMEM.
 */
int sideband_log_append(struct sideband_log *log,
			const struct perf_event_header *record) _must_check_;
/* Whether appending will soon drop unless there is something to forget. */
int sideband_log_is_full(const struct sideband_log *log);

int sideband_log_freeze(const struct sideband_log *log, struct sideband_log_view *ret) _must_check_;
/* Adds what `from` has to a view; `from` is empty then. 0 or -ENOMEM (nothing changed). */
int sideband_log_view_join(struct sideband_log_view *view,
			   struct sideband_log_view *from) _must_check_;
/*
 * Forgetting, in two halves, as a log may be long: any thread makes a new log of a view, without
 * what ended before `oldest_ns`; the log's own takes that instead, with what it got since. 0 or
 * -ENOMEM (nothing changed).
 */
int sideband_log_compact(const struct sideband_log_view *view, uint64_t oldest_ns,
			 struct sideband_log *ret) _must_check_;
int sideband_log_replace(struct sideband_log *log, const struct sideband_log_view *view,
			 struct sideband_log *compact) _must_check_;
void sideband_log_view_fini(struct sideband_log_view *view);
/* The n-th block of whole records, or NULL past the last. Any thread. */
const void *sideband_log_view_block(const struct sideband_log_view *view, size_t n,
				    size_t *ret_len);

/* The time in the trailer of a record that the log holds. */
uint64_t sideband_log_time(const struct perf_event_header *record);
