/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the relation between the clock of the input (MONOTONIC_RAW in a sampled bundle, else what
 * the perf.data says) and MONOTONIC, on which the trace is written. It is made of brackets: moments
 * at which several clocks were read together. Between two brackets time is interpolated, outside
 * the nearest pair's rate is carried on; the result never runs backwards.
 *
 * It refuses to know who read the clocks and what is timed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

enum clock_source {
	CLOCK_SOURCE_UNKNOWN,	    /* perf.data that does not say: perf's own clock */
	CLOCK_SOURCE_MONOTONIC,	    /* identity */
	CLOCK_SOURCE_MONOTONIC_RAW, /* slewed against MONOTONIC by some ppm */
	CLOCK_SOURCE_BOOTTIME,
	CLOCK_SOURCE_REALTIME,
	CLOCK_SOURCE_TSC,
};

/* One moment on several clocks, all in ns; 0 = not read. */
struct clock_bracket {
	uint64_t source; /* the input's clock */
	uint64_t monotonic;
	uint64_t raw;
	uint64_t realtime;
	uint64_t boottime;
	uint64_t width; /* how long the reading took: the bracket's uncertainty */
};

struct clock_map;

int clock_map_new(enum clock_source source, struct clock_map **ret) _must_check_;
struct clock_map *clock_map_free(struct clock_map *m);
DEFINE_CLEANUP(struct clock_map *, clock_map_free)

/*
 * Adds a bracket, in any order; one that contradicts its neighbours (source or monotonic not
 * rising) is dropped and counted at clock_map_finish(). At most CLOCK_MAP_MAX are kept.
 */
#define CLOCK_MAP_MAX 65536
int clock_map_add(struct clock_map *m, const struct clock_bracket *b) _must_check_;

/* Sorts and checks; must be called once, before the first conversion. */
void clock_map_finish(struct clock_map *m);

/*
 * The input's time on MONOTONIC. Without a usable bracket it is the input's time unchanged
 * (clock_map_known() is false then, and the trace says so). Not for two threads at once: it
 * remembers the last segment.
 */
uint64_t clock_map_monotonic(struct clock_map *m, uint64_t source);
/* The other way round: the input's time of that moment, to within a nanosecond. */
uint64_t clock_map_from_monotonic(struct clock_map *m, uint64_t monotonic);
/*
 * CLOCK_REALTIME of that moment as the nearest bracket has it, and how far it may be off if nobody
 * has set that clock meanwhile. 0: not known. Any thread may ask.
 */
uint64_t clock_map_realtime(const struct clock_map *m, uint64_t source, uint64_t *ret_doubt);
bool clock_map_known(const struct clock_map *m);

/* The largest error of a conversion between two brackets: reading plus interpolation, in ns. */
uint64_t clock_map_error(const struct clock_map *m);
uint64_t clock_map_dropped(const struct clock_map *m);

const char *clock_source_to_string(enum clock_source source);
enum clock_source clock_map_source(const struct clock_map *m);

/* The bracket nearest to the input's time, or NULL; for the writer's clock snapshots. */
const struct clock_bracket *clock_map_nearest(const struct clock_map *m, uint64_t source);
