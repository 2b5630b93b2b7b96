/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of a Go trace's events: times of different threads are not to be compared to the nanosecond, so each event says what
 * must have been before it, by sequence numbers and by the state of what it is about. Knows goroutines, processors, threads,
 * tasks and ranges; what an event says is checked against them. The rules are those of Go's internal/trace/order.go.
 */
#pragma once

#include "common/base/cleanup.h"
#include "decode/base/budget.h"
#include "decode/go/event.h"

struct goorder;

/* As it was read; `m` is the thread that wrote it. */
struct goraw_event {
	uint8_t type;
	uint64_t m, time;
	uint64_t args[GOFMT_MAX_ARGS];
};

enum goorder_answer {
	GOORDER_DONE,	/* it is next */
	GOORDER_WAIT,	/* something else must come first */
	GOORDER_BROKEN, /* it cannot be: `why` says so */
};

int goorder_new(struct budget *budget, struct goorder **ret) _must_check_;
struct goorder *goorder_free(struct goorder *o);
DEFINE_CLEANUP(struct goorder *, goorder_free)

/* enum goorder_answer, or -ENOMEM. Nothing has changed unless it is done; then *ret is the first event that it makes. */
int goorder_advance(struct goorder *o, const struct gogeneration *g, const struct goraw_event *ev, struct goevent *ret, char *why,
		    size_t size) _must_check_;
/* What the last one has made besides, in turn; false: no more. */
bool goorder_next(struct goorder *o, struct goevent *ret);
