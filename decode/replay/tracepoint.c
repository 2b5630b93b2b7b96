// SPDX-License-Identifier: Apache-2.0
/*
 * Events that happen, of a foreign perf.data: they are no samples of time. The scheduler's
 * tracepoints (perf sched record) are switches and wake-ups; any other is a moment of its thread.
 *
 * Their payload is the kernel's own struct, the same since 4.14. It is believed where it repeats
 * what the record says around it.
 */
#include "config.h"

#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>

#include "common/base/escape.h"
#include "decode/perf/event.h"
#include "decode/replay/session_internal.h"

/* All begin with this. */
#define COMMON_FLAGS 2u /* u8 */
#define COMMON_TID 4u	/* u32 */
#define IN_IRQ_FLAGS (0x08u | 0x10u | 0x40u) /* hard, soft, NMI */

/*
 * The record's, of a thread that has exited: the kernel has taken its number away. Its payload
 * still has it.
 */
#define NO_TID UINT32_MAX

enum { COMM_SIZE = 16 };
enum switch_field {
	SWITCH_PREV_TID = 24,
	SWITCH_STATE = 32,
	SWITCH_NEXT_COMM = 40,
	SWITCH_NEXT_TID = 56,
	SWITCH_SIZE = 64
};
enum waking_field { WAKING_COMM = 8, WAKING_TID = 24, WAKING_SIZE = 36 };

/* What sched_switch says of the one who leaves; 0 is "still runnable", as is what lies above. */
#define STATE_SLEEPING 0x1u
#define STATE_DISK 0x2u
#define STATE_STOPPED (0x4u | 0x8u)
#define STATE_DEAD (0x10u | 0x20u)
#define STATE_PARKED 0x40u
#define STATE_IDLE 0x80u
#define STATES 0xffu

enum tracepoint attr_tracepoint(const struct perfattr *a)
{
	static const struct {
		const char *name;
		enum tracepoint is;
	} known[] = {
		{"sched:sched_switch", TRACEPOINT_SWITCH},
		{"sched:sched_waking", TRACEPOINT_WAKING},
		{"sched:sched_wakeup", TRACEPOINT_WAKEUP},
		{"sched:sched_wakeup_new", TRACEPOINT_WAKEUP_NEW},
	};

	if (a->type != PERF_TYPE_TRACEPOINT || !(a->sample_type & PERF_SAMPLE_RAW))
		return TRACEPOINT_OTHER;
	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (strcmp(a->name, known[i].name) == 0)
			return known[i].is;
	return TRACEPOINT_OTHER;
}

bool attr_is_sampling(const struct perfattr *a)
{
	switch (a->type) {
	case PERF_TYPE_HARDWARE:
	case PERF_TYPE_HW_CACHE:
	case PERF_TYPE_RAW:
		return true;
	case PERF_TYPE_SOFTWARE:
		return a->config == PERF_COUNT_SW_CPU_CLOCK ||
		       a->config == PERF_COUNT_SW_TASK_CLOCK;
	case PERF_TYPE_TRACEPOINT:
	case PERF_TYPE_BREAKPOINT:
		return false;
	default: /* a kprobe fires each time, a processor's own unit each so many times */
		return a->freq || a->period > 1;
	}
}

static enum off_cpu wait_of(uint64_t state)
{
	state &= STATES;
	if (state == 0)
		return OFF_CPU_PREEMPTED;
	if (state & STATE_DEAD)
		return OFF_CPU_DEAD;
	if (state & STATE_STOPPED)
		return OFF_CPU_STOPPED;
	if (state & STATE_DISK)
		return OFF_CPU_UNINTERRUPTIBLE;
	return state & (STATE_SLEEPING | STATE_PARKED | STATE_IDLE) ? OFF_CPU_SLEEPING
								    : OFF_CPU_UNKNOWN;
}

static void copy_comm(char *dst, size_t size, const uint8_t *comm)
{
	escape_text(dst, size, (const char *)comm, strnlen((const char *)comm, COMM_SIZE));
}

/* The thread of that number; of one that is new the process is not known, and it stands for it. */
static struct thread *thread_named(struct session *s, uint32_t tid, const char *name)
{
	struct thread *t = hashmap_pointer(&s->threads, tid);

	if (!t || t->exited)
		t = session_thread(s, tid, tid);
	if (t && !t->name[0])
		(void)snprintf(t->name, sizeof(t->name), "%s", name);
	if (t && t->process->pid == tid)
		session_name_process(s, tid, name);
	return t;
}

static int on_switch(struct session *s, const struct perfevent *ev)
{
	const uint8_t *raw = ev->sample.raw;
	const uint32_t next_tid = load_u32(raw + SWITCH_NEXT_TID);
	const uint32_t cpu = ev->cpu == PERFEVENT_NO_CPU ? TL_CPU_UNKNOWN : ev->cpu;
	char next_name[SESSION_NAME_SIZE];
	struct thread *prev = NULL, *next;
	uint32_t stack;
	int r = 0;

	copy_comm(next_name, sizeof(next_name), raw + SWITCH_NEXT_COMM);
	s->switches++;
	if (ev->tid == NO_TID) {
		r = timeline_answer(
			timeline_switch_gone(s->o.tl, ev->time, cpu, next_tid, next_name));
	} else if (ev->tid) {
		prev = session_thread(s, ev->pid, ev->tid);
		r = prev ? session_declare_thread(s, prev, ev->time) : 0;
		if (!prev || r < 0)
			return r;
		r = session_stack(s, prev, ev, false, &stack);
		if (r < 0)
			return r;
		r = timeline_answer(timeline_switch_out(s->o.tl, ev->tid, ev->time, cpu,
			wait_of(load_u64(raw + SWITCH_STATE)), stack, next_tid, next_name));
	}
	if (r < 0 || !next_tid)
		return r;
	next = thread_named(s, next_tid, next_name);
	r = next ? session_declare_thread(s, next, ev->time) : 0;
	if (!next || r < 0)
		return r;
	return timeline_answer(timeline_switch_in(s->o.tl, next_tid, ev->time, cpu,
						  load_u32(raw + SWITCH_PREV_TID),
						  prev ? prev->name : NULL));
}

static int on_waking(struct session *s, const struct perfevent *ev)
{
	const uint8_t *raw = ev->sample.raw;
	const uint32_t tid = load_u32(raw + WAKING_TID);
	const bool in_irq = raw[COMMON_FLAGS] & IN_IRQ_FLAGS;
	struct thread *waker = NULL, *wakee;
	char name[SESSION_NAME_SIZE];
	uint32_t stack = STACKTAB_ROOT;
	int r = 0;

	copy_comm(name, sizeof(name), raw + WAKING_COMM);
	s->wakeups++;
	if (ev->tid && ev->tid != NO_TID && !in_irq) {
		waker = session_thread(s, ev->pid, ev->tid);
		r = waker ? session_declare_thread(s, waker, ev->time) : 0;
		if (!waker || r < 0)
			return r;
		r = session_stack(s, waker, ev, false, &stack);
		if (r < 0)
			return r;
	}
	wakee = thread_named(s, tid, name);
	r = wakee ? session_declare_thread(s, wakee, ev->time) : 0;
	if (!wakee || r < 0)
		return r;
	return timeline_answer(timeline_wakeup(
		s->o.tl, tid, ev->time, ev->cpu == PERFEVENT_NO_CPU ? TL_CPU_UNKNOWN : ev->cpu,
		load_u32(raw + COMMON_TID), ev->pid, waker ? waker->name : NULL, in_irq, stack));
}

/* The kernel says twice who ran, and a name ends. */
static bool is_believed(const struct perfevent *ev, uint32_t size, uint32_t comm, uint32_t tid)
{
	const struct perfevent_sample *s = &ev->sample;

	return s->raw_size >= size &&
	       (ev->tid == NO_TID || load_u32(s->raw + COMMON_TID) == ev->tid) &&
	       memchr(s->raw + comm, 0, COMM_SIZE) && load_u32(s->raw + tid) <= INT32_MAX;
}

static int on_moment(struct session *s, const struct perfevent *ev)
{
	struct thread *t = session_thread(s, ev->pid, ev->tid);
	char name[SESSION_NAME_SIZE];
	int r = t ? session_declare_thread(s, t, ev->time) : 0;

	if (!t || r < 0)
		return r;
	escape_text(name, sizeof(name), ev->attr->name, strlen(ev->attr->name));
	return timeline_answer(timeline_moment(s->o.tl, ev->tid, ev->time, "event",
					       *name ? name : "event without a name", NULL, 0));
}

int session_on_tracepoint(struct session *s, const struct perfevent *ev)
{
	const enum tracepoint is = attr_tracepoint(ev->attr);

	switch (is) {
	case TRACEPOINT_SWITCH:
		if (is_believed(ev, SWITCH_SIZE, SWITCH_NEXT_COMM, SWITCH_NEXT_TID) &&
		    load_u32(ev->sample.raw + SWITCH_PREV_TID) ==
			    load_u32(ev->sample.raw + COMMON_TID))
			return on_switch(s, ev);
		s->bad_sched++;
		return 0;
	case TRACEPOINT_WAKING:
	case TRACEPOINT_WAKEUP:
	case TRACEPOINT_WAKEUP_NEW:
		/* Both report each wake-up; sched_waking runs in its waker. */
		if (is == TRACEPOINT_WAKEUP && s->has_waking)
			return 0;
		if (is_believed(ev, WAKING_SIZE, WAKING_COMM, WAKING_TID))
			return on_waking(s, ev);
		s->bad_sched++;
		return 0;
	case TRACEPOINT_OTHER:
		break;
	}
	s->moments++;
	return ev->tid && ev->tid != NO_TID ? on_moment(s, ev) : 0;
}
