/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a Perfetto trace back, written from the format's description and not from our encoder, and
 * checks what an importer relies on: packets whole, names defined before use, tracks declared,
 * times in order on each track, slices that nest and all end, at most 512 deep. Out of that order
 * only a slice may begin that is around others: at its time nothing is open but others that are out
 * of order, too. Slices are sorted as an importer does it, by time, and those of one time as they
 * come.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define READ_TRACKS 1024

struct read_track {
	uint32_t parent;
	uint32_t pid, tid; /* of a process or thread track */
	char name[64];
	uint32_t max_depth;
	uint64_t last_ts;
	bool in_order; /* all of its slices */
	uint64_t slices;
	uint64_t longest; /* of its slices */
	uint8_t declared;
	struct read_slice {
		uint64_t ts;
		char name[40]; /* empty: an end */
		bool late; /* told after something of a later time */
	} *events;
	size_t n_events, max_events;
};

struct read_trace {
	struct read_track *tracks; /* READ_TRACKS of them, by uuid */
	uint64_t packets, slices, instants, counters, flows_begun, flows_ended;
	uint64_t switches, wakings, compressed, interned, args;
	uint64_t first_ts, last_ts;
	char error[256]; /* the first thing that is wrong */
};

/* 0, or -1 with `error` set. */
int read_trace(struct read_trace *t, const uint8_t *data, size_t len);
void read_trace_fini(struct read_trace *t);

/* A track by name, NULL if there is none. */
const struct read_track *read_track_named(const struct read_trace *t, const char *name);
