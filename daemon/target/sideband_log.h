/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The history of one target: the side-band records (maps, comm, fork, exit, namespaces) that
 * explain its samples, kept in the order they came in, bounded. Chunks are only ever appended to, so
 * a frozen view reads them on another thread while the log goes on.
 *
 * Records are stored as the kernel lays them out, with HISTLOG_ID as their event's id: the
 * events that brought them may be closed and opened again.
 *
 * Compaction forgets what no retained sample can need: threads and processes that ended before
 * the oldest data, mappings that were replaced before it.
 */
#pragma once

#include <linux/perf_event.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

/* No id of the kernel's, which counts from 1. */
#define HISTLOG_ID 0x4000000000000001ULL

struct histlog_chunk;

struct histlog {
	struct histlog_chunk *first, *last;
	size_t bytes, limit;
	size_t compacted_at; /* bytes after the last compaction */
	uint64_t dropped;    /* records over the limit */
	uint64_t records;    /* that it holds */
};

/* What a log held at one moment. */
struct histlog_view {
	struct histlog_block {
		struct histlog_chunk *chunk; /* referenced */
		size_t used;
	} *blocks;
	size_t n_blocks;
	uint64_t dropped, records;
};

void histlog_init(struct histlog *log, size_t limit);
void histlog_fini(struct histlog *log);

/* Appends one whole record (its trailer's id is replaced). Over the limit it is dropped and counted. 0 or -ENOMEM. */
int histlog_append(struct histlog *log, const struct perf_event_header *record) _must_check_;
/* Whether appending will soon drop unless there is something to forget. */
int histlog_is_full(const struct histlog *log);

int histlog_freeze(const struct histlog *log, struct histlog_view *ret) _must_check_;
/* Adds what `from` has to a view; `from` is empty then. 0 or -ENOMEM (nothing changed). */
int histlog_view_join(struct histlog_view *view, struct histlog_view *from) _must_check_;
/*
 * Forgetting, in two halves, as a log may be long: any thread makes a new log of a view, without what ended before
 * `oldest_ns`; the log's own takes that instead, with what it got since. 0 or -ENOMEM (nothing changed).
 */
int histlog_compact(const struct histlog_view *view, uint64_t oldest_ns, struct histlog *ret) _must_check_;
int histlog_replace(struct histlog *log, const struct histlog_view *view, struct histlog *compact) _must_check_;
void histlog_view_fini(struct histlog_view *view);
/* The n-th block of whole records, or NULL past the last. Any thread. */
const void *histlog_view_block(const struct histlog_view *view, size_t n, size_t *ret_len);

/* The time in the trailer of a record that the log holds. */
uint64_t histlog_time(const struct perf_event_header *record);
