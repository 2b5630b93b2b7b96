/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One generation of a Go trace: the events of its threads, not yet in order, and the tables that
 * their numbers are of. Owns their memory, which is charged to the budget. It does not know what an
 * event means.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"
#include "decode/go/batch.h"
#include "decode/go/idmap.h"

/* Bytes of a file, which may be anything; not ended by a zero. */
struct gostring {
	const char *p;
	uint32_t len;
};

struct goframe {
	uint64_t pc, line;
	struct gostring func, file;
};

/* Of the threads' batches: those of one thread follow each other by `next`. */
struct gochunk {
	uint64_t time;
	uint64_t at;
	uint32_t size;
	uint32_t next; /* index + 1 */
};

struct gothread {
	uint64_t m;
	uint32_t first, last; /* chunks, index + 1 */
};

struct gosample {
	uint64_t time; /* ns once the generation is whole */
	uint64_t m, p, g, stack;
};

struct goclock {
	uint64_t trace, mono, sec, nsec; /* ns; sec and nsec are of REALTIME */
};

struct gogeneration {
	struct budget *budget;
	uint64_t taken;
	uint64_t gen; /* 0: nothing was read */
	bool has_events;
	uint64_t min_time;
	uint64_t frequency; /* 0: not known yet */
	double ns_per_unit;
	bool has_clock;
	uint64_t clock_units;
	struct goclock clock;

	uint8_t *bytes;
	size_t n_bytes, max_bytes;
	struct gochunk *chunks;
	uint32_t n_chunks, max_chunks;
	struct gothread *threads;
	uint32_t n_threads, max_threads;
	struct gosample *samples;
	uint32_t n_samples, max_samples;
	struct gotext {
		uint64_t at;
		uint32_t len;
	} *strings;
	uint32_t n_strings, max_strings;
	struct goraw {
		uint64_t pc, func, file, line;
	} *frames;
	uint32_t n_frames, max_frames;
	uint32_t *places; /* of stacks: indexes of frames */
	uint32_t n_places, max_places;
	struct gostack {
		uint64_t id;
		uint32_t first, n;
	} *stacks;
	uint32_t n_stacks, max_stacks;
	struct idmap by_m, by_string, by_stack;
	struct hashmap by_pc;
};

void gogeneration_init(struct gogeneration *g, struct budget *budget);
/* Ready for the next one: all is forgotten. */
void gogeneration_clear(struct gogeneration *g);
void gogeneration_fini(struct gogeneration *g);

/* What a batch has. 0, 1: it is broken and `why` says how, -ENOMEM: more than the budget has. */
int gogeneration_add(struct gogeneration *g, int version, const struct gobatch *b, char *why,
		     size_t size) _must_check_;
/* It is whole. The same answers. */
int gogeneration_finish(struct gogeneration *g, int version, char *why, size_t size) _must_check_;

/* Units of the trace's clock to ns, cut to whole ones, as Go does it. */
static inline uint64_t gogeneration_ns(const struct gogeneration *g, uint64_t units)
{
	const double ns = (double)units * g->ns_per_unit;

	return ns >= 9223372036854775808.0 ? (uint64_t)INT64_MIN : (uint64_t)(int64_t)ns;
}

/*
 * Valid until the generation is cleared. False: there is no such number. 0 is the empty string, and
 * no stack.
 */
bool gogeneration_string(const struct gogeneration *g, uint64_t id, struct gostring *ret);
static inline bool gogeneration_has_string(const struct gogeneration *g, uint64_t id)
{
	return id == 0 || idmap_has(&g->by_string, id);
}
static inline bool gogeneration_has_stack(const struct gogeneration *g, uint64_t id)
{
	return id == 0 || idmap_has(&g->by_stack, id);
}
uint32_t gogeneration_stack_depth(const struct gogeneration *g, uint64_t id);
void gogeneration_frame(const struct gogeneration *g, uint64_t id, uint32_t i, struct goframe *ret);
