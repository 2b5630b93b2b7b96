/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times between those of packets. A packet of time is followed by many branches, and all that is
 * known of those is that they happened before the next one: they are spread over the time between
 * both by the instructions that were executed, and marked. Nothing is spread over a time in which
 * the thread was not traced or something was lost. Owns what is known of the last stamp; must not
 * know clocks and threads.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "decode/pt/flow.h"

/* All zero but `max`: tracing is off. */
struct interpolation {
	/*
	 * more events between two stamps keep the time of the first: they would all have to be held
	 * back
	 */
	uint32_t max;
	bool on;	/* since `time`, at `insns`, it was traced without a gap */
	bool too_many;	/* since `time` */
	uint64_t time, insns;
};

/*
 * The next events of a flow, in its order. Answers how many of them are final: those after that
 * must be given again, before what follows them.
 */
size_t interpolation_events(struct interpolation *s, struct ptflow_event *events, size_t n);

/*
 * Nothing follows those that were left over: the last `n` of the flow. It went on (PTFLOW_ON) until
 * `time` (0: not known), when `insns` had been executed.
 */
void interpolation_end(struct interpolation *s, struct ptflow_event *events, size_t n,
		       uint64_t time, uint64_t insns);

/*
 * Events between two stamps, the first of which is `from`, get times of no more digits than they
 * are worth: multiples of a step, a power of two, that goes INTERPOLATION_STEPS times or more into
 * the mean distance of two events. None gets later, two that were apart stay apart. Digits that
 * mean nothing were more than half of a trace. A mean distance of less than INTERPOLATION_FINE has
 * none to spare.
 */
#define INTERPOLATION_STEPS 1u
#define INTERPOLATION_FINE 64u
void interpolation_round(uint64_t from, struct ptflow_event *events, size_t n);
