/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions that CPython ran, among the native frames of a stack (common/bundle/python.h):
 * their names, and where they belong. Each call of the interpreter's loop runs some of them; what
 * is between two such calls is C. Where the calls and Python's own list do not agree, Python's
 * functions are outermost, behind a frame that says so: no order is invented.
 *
 * Knows neither images nor addresses.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/base/hashmap.h"
#include "common/bundle/python.h"
#include "decode/base/budget.h"
#include "decode/base/stacktab.h"
#include "decode/perf/event.h"

struct json_object;

struct python {
	struct stacktab *st;   /* borrowed */
	struct budget *budget; /* borrowed */
	struct hashmap functions; /* frames by number; FRAME_NONE: it is none */
	uint32_t unnamed, unplaced, unknown, cut;
	uint64_t stacks, frames; /* that have a place */
	uint64_t without_name, without_place, not_found[PYTHON_WHYS], refused;
};

void python_init(struct python *p, struct stacktab *st, struct budget *budget);
void python_fini(struct python *p);

/* The event is a function: from now on it has a name. False: it is something else. */
bool python_take_function(struct python *p, const struct perfevent *ev);

/* Python's part of one stack. */
struct python_part {
	const uint8_t *words; /* behind the head; not aligned */
	uint32_t n, n_calls;  /* words; calls of the interpreter's loop */
	uint32_t why;
	bool native_cut, stopped, runs;
	/* where the calls are among the native ones: see python_place() */
	bool placed, outer;
	uint32_t skip;
};
/* False: the event has none. */
bool python_part_of(const struct perfevent *ev, struct python_part *ret);

/*
 * `n_native` frames are of the interpreter's loop, one of them the innermost of all if `innermost`;
 * `whole`: there are no more.
 */
void python_place(struct python *p, struct python_part *part, uint32_t n_native, bool innermost,
		  bool whole);
/* Pushes what is outside of all native frames. */
uint32_t python_push_outer(struct python *p, const struct python_part *part, uint32_t n_native,
			   uint32_t stack);
/* Pushes what the call of the loop runs that is `inner` such calls away from the innermost. */
uint32_t python_push_call(struct python *p, const struct python_part *part, uint32_t inner,
			  uint32_t stack);

void python_report(const struct python *p, struct json_object *stats, struct json_object *losses);
