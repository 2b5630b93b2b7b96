/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The execution traces of Go, version 2: the numbers of events, what arguments each has, and
 * limits. The format is defined by Go's internal/trace/tracev2 (events.go, spec.go); headers 1.22,
 * 1.23, 1.25 and 1.26 have it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum gofmt_type {
	GOFMT_NONE,
	GOFMT_EVENT_BATCH,
	GOFMT_STACKS,
	GOFMT_STACK,
	GOFMT_STRINGS,
	GOFMT_STRING,
	GOFMT_CPU_SAMPLES,
	GOFMT_CPU_SAMPLE,
	GOFMT_FREQUENCY,
	GOFMT_PROCS_CHANGE,
	GOFMT_PROC_START,
	GOFMT_PROC_STOP,
	GOFMT_PROC_STEAL,
	GOFMT_PROC_STATUS,
	GOFMT_GO_CREATE,
	GOFMT_GO_CREATE_SYSCALL,
	GOFMT_GO_START,
	GOFMT_GO_DESTROY,
	GOFMT_GO_DESTROY_SYSCALL,
	GOFMT_GO_STOP,
	GOFMT_GO_BLOCK,
	GOFMT_GO_UNBLOCK,
	GOFMT_GO_SYSCALL_BEGIN,
	GOFMT_GO_SYSCALL_END,
	GOFMT_GO_SYSCALL_END_BLOCKED,
	GOFMT_GO_STATUS,
	GOFMT_STW_BEGIN,
	GOFMT_STW_END,
	GOFMT_GC_ACTIVE,
	GOFMT_GC_BEGIN,
	GOFMT_GC_END,
	GOFMT_GC_SWEEP_ACTIVE,
	GOFMT_GC_SWEEP_BEGIN,
	GOFMT_GC_SWEEP_END,
	GOFMT_GC_MARK_ASSIST_ACTIVE,
	GOFMT_GC_MARK_ASSIST_BEGIN,
	GOFMT_GC_MARK_ASSIST_END,
	GOFMT_HEAP_ALLOC,
	GOFMT_HEAP_GOAL,
	GOFMT_GO_LABEL,
	GOFMT_USER_TASK_BEGIN,
	GOFMT_USER_TASK_END,
	GOFMT_USER_REGION_BEGIN,
	GOFMT_USER_REGION_END,
	GOFMT_USER_LOG,
	GOFMT_GO_SWITCH,
	GOFMT_GO_SWITCH_DESTROY,
	GOFMT_GO_CREATE_BLOCKED,
	GOFMT_GO_STATUS_STACK,
	GOFMT_EXPERIMENTAL_BATCH,
	GOFMT_SYNC,
	GOFMT_CLOCK_SNAPSHOT,
	GOFMT_END_OF_GENERATION,
	GOFMT_SPAN = 128, /* of the experiment AllocFree */
	GOFMT_GOROUTINE_STACK_FREE = 136,
	GOFMT_N_TYPES,
};

#define GOFMT_MAX_BATCH 65536u
#define GOFMT_MAX_STRING 1024u
#define GOFMT_MAX_FRAMES 128u
#define GOFMT_MAX_ARGS 4u

/* No thread, processor or goroutine. */
#define GOFMT_NO_ID UINT64_MAX

/*
 * What follows an event's time: names by Go's own, of which "..._string" is a number of the
 * strings, "stack" and "new_stack" of the stacks.
 */
struct gofmt_spec {
	const char *name; /* NULL: there is no such event */
	bool timed;
	uint8_t n_args;
	uint8_t strings, stacks; /* which of them are: bits */
	const char *args[GOFMT_MAX_ARGS];
};

extern const struct gofmt_spec gofmt_specs[GOFMT_N_TYPES];

/* Never NULL; of what there is not it has no name. */
static inline const struct gofmt_spec *gofmt_spec(uint64_t type)
{
	return &gofmt_specs[type < GOFMT_N_TYPES ? type : GOFMT_NONE];
}

static inline bool gofmt_is_experimental(uint32_t type)
{
	return type >= GOFMT_SPAN && type <= GOFMT_GOROUTINE_STACK_FREE;
}

int gofmt_long_uvarint(const uint8_t *p, uint64_t size, uint64_t *ret);

/*
 * A number of up to 10 bytes of 7 bits, lowest first. How many bytes it took; 0: it is cut; -1: it
 * is too large.
 */
static inline int gofmt_uvarint(const uint8_t *p, uint64_t size, uint64_t *ret)
{
	if (size > 0 && p[0] < 0x80) {
		*ret = p[0];
		return 1;
	}
	if (size > 1 && p[1] < 0x80) {
		*ret = (p[0] & 0x7fu) | (uint64_t)p[1] << 7;
		return 2;
	}
	return gofmt_long_uvarint(p, size, ret);
}

#define GOFMT_SHORT_UVARINT 4u

/*
 * The same without a look at the end, which must be further away than a short one is long; 0: it is
 * longer than that.
 */
static inline unsigned int gofmt_short_uvarint(const uint8_t *p, uint64_t *ret)
{
	uint32_t v = 0;

#pragma GCC unroll 4
	for (unsigned int i = 0; i < GOFMT_SHORT_UVARINT; i++) {
		v |= (uint32_t)(p[i] & 0x7f) << 7 * i;
		if (p[i] < 0x80) {
			*ret = v;
			return i + 1;
		}
	}
	return 0;
}
