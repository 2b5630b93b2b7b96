/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happened in a Go program, one event after the other: what decode/go/reader.h makes of a
 * trace. Names are those of Go's package internal/trace.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "decode/go/generation.h"

enum goevent_kind {
	GOEVENT_SYNC, /* a generation begins, or the trace ends */
	GOEVENT_METRIC,
	GOEVENT_LABEL,
	GOEVENT_STACK_SAMPLE,
	GOEVENT_RANGE_BEGIN,
	GOEVENT_RANGE_ACTIVE, /* it began before the trace, or an earlier generation */
	GOEVENT_RANGE_END,
	GOEVENT_TASK_BEGIN,
	GOEVENT_TASK_END,
	GOEVENT_REGION_BEGIN,
	GOEVENT_REGION_END,
	GOEVENT_LOG,
	GOEVENT_TRANSITION, /* of a goroutine or a processor */
	GOEVENT_EXPERIMENTAL,
};

enum goscope { GOSCOPE_NONE, GOSCOPE_GOROUTINE, GOSCOPE_PROC };

enum gostate { /* of goroutines; processors have the first three, and RUNNING */
	GOSTATE_UNDETERMINED,
	GOSTATE_NOT_EXIST,
	GOSTATE_IDLE, /* of processors only */
	GOSTATE_RUNNABLE,
	GOSTATE_RUNNING,
	GOSTATE_WAITING,
	GOSTATE_SYSCALL,
};

/*
 * What is said depends on the kind; all else is zero. Texts and stacks are of the generation
 * (`reader` knows it) and valid until the next event is asked for. Times are ns of CLOCK_MONOTONIC
 * on Linux, each later than the one before.
 */
struct goevent {
	enum goevent_kind kind;
	uint8_t type;	  /* enum gofmt_type */
	/* thread (its tid in its pid namespace), processor, goroutine; GOFMT_NO_ID: none */
	uint64_t m, p, g;
	uint64_t time;
	uint64_t raw_time; /* as the thread has written it */
	uint64_t args[GOFMT_MAX_ARGS];

	/* not of every event, from here on */
	enum goscope scope; /* of ranges, labels and transitions: what it is about */
	/* of that; of a task, a region and a log: the task; of a sync: its number */
	uint64_t id;
	uint64_t parent;    /* of a task; GOFMT_NO_ID: none */
	uint64_t value, value2; /* of a metric; of the end of a sweep: bytes swept and reclaimed */
	enum gostate from, to;
	struct gostring name; /* of a metric, range, label, task, region; category of a log */
	struct gostring kind_of; /* of a stop of the world: why, beside its name */
	struct gostring text; /* of a log; the reason of a transition */
	uint64_t stack, new_stack; /* 0: none; the latter is of a transition */
	const struct goclock *clock; /* of a sync; NULL: it has none */
};
