/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One sample's stack, as a number of the stack table: from its registers and stack bytes where it
 * has them, else from the kernel's call chain. Kernel addresses become functions where their names
 * are known (resolver_set_kallsyms()), else one frame "[kernel]". What is wrong is cut off and
 * counted; a stack whose outer part is not known says so by its outermost frame, so that it is
 * never taken for a whole one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/perf/event.h"
#include "decode/stack/missing_caller.h"
#include "decode/stack/python.h"
#include "decode/stack/resolve.h"
#include "decode/stack/unwind.h"

struct json_object;

struct stackwalk {
	struct resolver *resolver; /* borrowed */
	struct stacktab *st;       /* borrowed */
	struct budget *budget;     /* borrowed */
	struct python *python;	   /* borrowed; NULL: Python's functions are not drawn */
	uint64_t stacks;           /* that were asked for */
	uint64_t without;          /* samples that carry no stack at all */
	uint64_t cut;              /* stacks with a wrong frame */
	uint64_t frames_cut;       /* frames that were not drawn for it */
	uint64_t limited; /* chains as long as the kernel makes them: the outer part is missing */
	uint64_t kernel_unnamed; /* with addresses of the kernel, whose functions have no names */
	struct missing_caller_stats missing_callers; /* that frame pointers had passed over */
	uint64_t unwound[UNWIND_N_ENDS];
	uint32_t frames[UNWIND_MAX_FRAMES + 4];
	uint32_t inlined[UNWIND_MAX_FRAMES + 4]; /* in each of them: resolver_inlines() */
	/*
	 * Of the last sample's stack, the innermost first; only if they are wanted. One that is
	 * known to be missing has no ip.
	 */
	bool want_places;
	bool after_signal; /* the frame before is the way back from a handler */
	bool places_cut, places_full; /* the outer part is missing; for want of room */
	uint32_t n_places;
	struct stack_place places[UNWIND_MAX_FRAMES + 2];
};

/*
 * The stack of the sample, STACKTAB_ROOT if it has none. `with_kernel`: where it was in the kernel,
 * its innermost frames say so (for a wait, which is always there, only by name, and without the
 * scheduler).
 */
uint32_t stackwalk_sample(
	struct stackwalk *w, struct code *code, const struct perfevent *ev, bool with_kernel);

/* Adds what was lost, by reason. */
void stackwalk_report(const struct stackwalk *w, struct json_object *losses);
