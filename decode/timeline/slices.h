/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the slices that are open on a thread's track ("lane"), and how one call stack becomes the
 * next: what both share stays open. It must not know why the stack changed and which thread it is.
 * Times on a lane never go back: an earlier one is taken as the last one. Only
 * slices_push_outside() begins a slice before others that have begun already.
 */
#pragma once

#include "decode/base/stacktab.h"
#include "decode/writer/writer.h"

struct slices;

/* A frame that was there all along, and what is said about it. */
struct lane_outside {
	uint32_t frame;
	bool has_arg;
	struct writer_arg arg;
};

/* Embedded in whoever has the track. All zero is an empty lane without a track. */
struct lane {
	uint32_t track;
	uint32_t *open; /* frames, outermost first */
	uint32_t n_open, max_open;
	uint32_t stack;	 /* whose frames those are, if they are all of it */
	uint32_t folded; /* how many frames the leaf "… N frames" stands for; 0 = there is none */
	uint32_t over;	 /* frames that were pushed beyond the depth cap */
	bool leaf;	 /* a slice of the caller is on top */
	uint64_t last_ts;
	uint64_t outside_ts; /* where what shows itself to have been around all since then begins */
	uint32_t deepest;    /* of what has begun since then */
	/* what has, the innermost first: its begin is not written yet */
	struct lane_outside *outside;
	bool base_next;      /* what comes next is the innermost of it */
	bool outside_late;   /* no more of it: it would be too deep */
	/* of those, the last ones have come together */
	uint32_t n_outside, max_outside, outside_from;
};

#define SLICES_MAX_DEPTH 500u /* Perfetto takes 512 on a track; the rest is for leaf and instants */

int slices_new(struct stacktab *st, struct writer *w, uint32_t depth_cap,
	       struct slices **ret) _must_check_;
struct slices *slices_free(struct slices *s);
DEFINE_CLEANUP(struct slices *, slices_free)

void lane_fini(struct lane *l);

/*
 * Makes the lane show `stack`: frames that it does not have end at `close_ts`, those that are new
 * begin at `open_ts`. There must be no leaf. 0 or -ENOMEM.
 */
int slices_draw(struct slices *s, struct lane *l, uint32_t stack, uint64_t close_ts,
		uint64_t open_ts);

/* How many of the lane's outermost frames `stack` shares. */
uint32_t slices_common(struct slices *s, const struct lane *l, uint32_t stack);

/* Closes the leaf, if there is one, and all but the `depth` outermost frames. */
void slices_trim(struct slices *s, struct lane *l, uint32_t depth, uint64_t ts);

/*
 * One frame more, and one less: for calls that are known one by one, where the same function called
 * again is another slice, and says where in its object it is. Beyond the depth cap they are only
 * counted. 0 or -ENOMEM.
 */
int slices_push(struct slices *s, struct lane *l, uint32_t frame, uint64_t ts,
		const struct writer_arg *args, uint32_t n_args);
/*
 * The lane is empty and what comes now is seen in the middle. `in_call`: there may be callers.
 * Then, when it is empty again: a frame was around everything since; `more` of its kind follow,
 * each inside of the one before. All of them, and what comes now, begin in the nanosecond before
 * what comes then; where that is taken, the rest is a nanosecond late. Their begins are written
 * when all are known, the outermost first: at the next resync, or by slices_outside_end(). What
 * would be too deep for a viewer begins at `ts`. *ret_late: so.
 */
int slices_resync(struct slices *s, struct lane *l, uint64_t ts, bool in_call);
int slices_push_outside(struct slices *s, struct lane *l, uint32_t frame, uint64_t ts,
			uint32_t more, const struct writer_arg *arg, bool *ret_late);
int slices_outside_end(struct slices *s, struct lane *l);
/*
 * Those whose argument is the name `was` have `is` instead: what they are is known better by now.
 */
void slices_outside_say(struct lane *l, uint32_t was, uint32_t is);
void slices_pop(struct slices *s, struct lane *l, uint64_t ts, const struct writer_arg *args,
		uint32_t n_args);

/* A slice of the caller on top of all, and a moment. */
void slices_leaf_begin(struct slices *s, struct lane *l, uint64_t ts,
		       const struct writer_event *ev);
void slices_leaf_end(struct slices *s, struct lane *l, uint64_t ts, const struct writer_event *ev);
void slices_instant(struct slices *s, struct lane *l, uint64_t ts, const struct writer_event *ev);

/* The frames that were folded, summed over all stacks drawn. */
uint64_t slices_folded(const struct slices *s);
