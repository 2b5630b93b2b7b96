/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of a Go trace's events: times of different threads are not to be compared to the
 * nanosecond, so each event says what must have been before it, by sequence numbers and by the
 * state of what it is about. Knows goroutines, processors, threads, tasks and ranges; what an event
 * says is checked against them. The rules are those of Go's internal/trace/order.go.
 */
#pragma once

#include "common/base/cleanup.h"
#include "decode/base/budget.h"
#include "decode/go/event.h"

struct goorder;

/* As it was read; `m` is the thread that wrote it. */
struct goraw_event {
	uint8_t type;
	const struct gofmt_spec *spec; /* of the type */
	uint64_t m, time;
	uint64_t args[GOFMT_MAX_ARGS];
	struct goorder_m *thread; /* that, once the order knows it: the order's own */
};

enum goorder_answer {
	GOORDER_DONE,	/* it is next */
	GOORDER_MORE,	/* it is, and makes more than one event: goorder_next() */
	GOORDER_WAIT,	/* something else must come first */
	GOORDER_BROKEN, /* it cannot be: `why` says so */
};

/*
 * Two places that outlive it: `g` has the generation that the events are of, one after the other;
 * `why` is told why something is broken. 0 or -ENOMEM.
 */
int goorder_new(struct budget *budget, const struct gogeneration *g, char *why, size_t size,
		struct goorder **ret) _must_check_;
struct goorder *goorder_free(struct goorder *o);
DEFINE_CLEANUP(struct goorder *, goorder_free)

/*
 * enum goorder_answer, or -ENOMEM. Nothing has changed unless it is next; then *ret is the first
 * event that it makes.
 */
int goorder_advance(struct goorder *o, struct goraw_event *ev, struct goevent *ret) _must_check_;
/* What the last one has made besides, in turn; false: no more. */
bool goorder_next(struct goorder *o, struct goevent *ret);
