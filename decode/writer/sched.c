/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A switch in the compact form says only who comes; who leaves is the comer of that CPU's previous
 * switch. So a CPU's first switch, and a wake-up whose waker is not who runs there, are written in
 * the long form, where both are named; else the importer would count them as skipped.
 */
#include "config.h"

#include "decode/writer/sched.h"

#include <errno.h>

#define BUNDLE_EVENTS 512u
#define MAX_CPUS 8192u
#define COMM_MAX 64u /* 15 bytes, escaped */
#define PRIO 120u    /* the default one: ours does not say */

enum {
	BUNDLE_CPU = 1,
	BUNDLE_EVENT = 2,
	BUNDLE_COMPACT = 4,

	EVENT_TIMESTAMP = 1,
	EVENT_PID = 2,
	EVENT_SWITCH = 4,
	EVENT_COMMON_FLAGS = 5,
	EVENT_WAKING = 20,

	SWITCH_PREV_COMM = 1,
	SWITCH_PREV_PID = 2,
	SWITCH_PREV_PRIO = 3,
	SWITCH_PREV_STATE = 4,
	SWITCH_NEXT_COMM = 5,
	SWITCH_NEXT_PID = 6,
	SWITCH_NEXT_PRIO = 7,

	WAKING_COMM = 1,
	WAKING_PID = 2,
	WAKING_PRIO = 3,
	WAKING_SUCCESS = 4,
	WAKING_TARGET_CPU = 5,

	COMPACT_SWITCH_TIMESTAMP = 1,
	COMPACT_SWITCH_PREV_STATE = 2,
	COMPACT_SWITCH_NEXT_PID = 3,
	COMPACT_SWITCH_NEXT_PRIO = 4,
	COMPACT_INTERN_TABLE = 5,
	COMPACT_SWITCH_NEXT_COMM = 6,
	COMPACT_WAKING_TIMESTAMP = 7,
	COMPACT_WAKING_PID = 8,
	COMPACT_WAKING_TARGET_CPU = 9,
	COMPACT_WAKING_PRIO = 10,
	COMPACT_WAKING_COMM = 11,
	COMPACT_WAKING_COMMON_FLAGS = 12,

	FLAG_HARDIRQ = 0x08, /* of ftrace's common_flags */
};

struct switch_event {
	uint64_t ts;
	struct writer_switch s;
};

struct waking_event {
	uint64_t ts;
	struct writer_waking k;
};

struct bundle {
	struct switch_event switches[BUNDLE_EVENTS];
	struct waking_event wakings[BUNDLE_EVENTS];
	uint32_t n_switches, n_wakings;
	bool begun; /* the CPU's first switch is written */
};

struct writer_sched {
	struct bundle **cpus;
	uint32_t n_cpus;
	uint32_t preempted;
};

int writer_sched_new(struct writer_sched **ret)
{
	struct writer_sched *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	*ret = s;
	return 0;
}

void writer_sched_set_preempted(struct writer_sched *s, uint32_t preempted)
{
	s->preempted = preempted;
}

struct writer_sched *writer_sched_free(struct writer_sched *s)
{
	if (!s)
		return NULL;
	for (uint32_t i = 0; i < s->n_cpus; i++)
		free(s->cpus[i]);
	free(s->cpus);
	free(s);
	return NULL;
}

static int bundle_get(struct writer_sched *s, uint32_t cpu, struct bundle **ret)
{
	if (cpu >= MAX_CPUS)
		return -ERANGE;
	if (cpu >= s->n_cpus) {
		struct bundle **p = reallocarray(s->cpus, cpu + 1, sizeof(*p));

		if (!p)
			return -ENOMEM;
		for (uint32_t i = s->n_cpus; i <= cpu; i++)
			p[i] = NULL;
		s->cpus = p;
		s->n_cpus = cpu + 1;
	}
	if (!s->cpus[cpu]) {
		s->cpus[cpu] = calloc(1, sizeof(struct bundle));
		if (!s->cpus[cpu])
			return -ENOMEM;
	}
	*ret = s->cpus[cpu];
	return 0;
}

int writer_sched_switch(struct writer_sched *s, uint32_t cpu, uint64_t ts,
			const struct writer_switch *sw)
{
	struct bundle *b;
	int r = bundle_get(s, cpu, &b);

	if (r < 0)
		return r;
	b->switches[b->n_switches++] = (struct switch_event){.ts = ts, .s = *sw};
	return b->n_switches == BUNDLE_EVENTS ? WRITER_SCHED_FULL : 0;
}

int writer_sched_waking(struct writer_sched *s, uint32_t cpu, uint64_t ts,
			const struct writer_waking *k)
{
	struct bundle *b;
	int r = bundle_get(s, cpu, &b);

	if (r < 0)
		return r;
	b->wakings[b->n_wakings++] = (struct waking_event){.ts = ts, .k = *k};
	return b->n_wakings == BUNDLE_EVENTS ? WRITER_SCHED_FULL : 0;
}

bool writer_sched_next(const struct writer_sched *s, uint32_t *cpu)
{
	for (; *cpu < s->n_cpus; (*cpu)++)
		if (s->cpus[*cpu] && (s->cpus[*cpu]->n_switches || s->cpus[*cpu]->n_wakings))
			return true;
	return false;
}

/* The kernel's letters as numbers. */
static uint32_t prev_state_value(const struct writer_sched *s, enum writer_state state)
{
	switch (state) {
	case WRITER_STATE_SLEEPING:
		return 0x01;
	case WRITER_STATE_DISK:
		return 0x02;
	case WRITER_STATE_STOPPED:
		return 0x04;
	case WRITER_STATE_DEAD:
		return 0x10;
	case WRITER_STATE_PREEMPTED:
		return s->preempted;
	case WRITER_STATE_RUNNABLE:
		break;
	}
	return 0;
}

static void put_comm(struct pb *pb, uint32_t field, const struct strtab *names, uint32_t name)
{
	const char *s = strtab_text(names, name);

	pb_bytes(pb, field, s, strnlen(s, COMM_MAX));
}

static uint8_t *event_begin(struct pb *pb, uint64_t ts, uint32_t tid)
{
	uint8_t *m = pb_open(pb, BUNDLE_EVENT);

	pb_uint(pb, EVENT_TIMESTAMP, ts);
	pb_uint(pb, EVENT_PID, tid);
	return m;
}

static void put_switch_long(const struct writer_sched *s, struct pb *pb,
			    const struct switch_event *e, const struct strtab *names)
{
	uint8_t *m = event_begin(pb, e->ts, e->s.prev_tid), *d;

	d = pb_open(pb, EVENT_SWITCH);
	put_comm(pb, SWITCH_PREV_COMM, names, e->s.prev_name);
	pb_uint(pb, SWITCH_PREV_PID, e->s.prev_tid);
	pb_uint(pb, SWITCH_PREV_PRIO, PRIO);
	pb_uint(pb, SWITCH_PREV_STATE, prev_state_value(s, e->s.prev_state));
	put_comm(pb, SWITCH_NEXT_COMM, names, e->s.next_name);
	pb_uint(pb, SWITCH_NEXT_PID, e->s.next_tid);
	pb_uint(pb, SWITCH_NEXT_PRIO, PRIO);
	pb_close(pb, d);
	pb_close(pb, m);
}

static void put_waking_long(struct pb *pb, uint32_t cpu, const struct waking_event *e,
			    const struct strtab *names)
{
	uint8_t *m = event_begin(pb, e->ts, e->k.waker_tid), *d;

	d = pb_open(pb, EVENT_WAKING);
	put_comm(pb, WAKING_COMM, names, e->k.name);
	pb_uint(pb, WAKING_PID, e->k.tid);
	pb_uint(pb, WAKING_PRIO, PRIO);
	pb_uint(pb, WAKING_SUCCESS, 1);
	pb_uint(pb, WAKING_TARGET_CPU, cpu);
	pb_close(pb, d);
	if (e->k.in_irq)
		pb_uint(pb, EVENT_COMMON_FLAGS, FLAG_HARDIRQ);
	pb_close(pb, m);
}

/* The bundle's own string table: names in order of first use. */
struct comms {
	uint32_t names[2 * BUNDLE_EVENTS];
	uint32_t n;
};

static uint32_t comm_index(struct comms *c, uint32_t name)
{
	for (uint32_t i = 0; i < c->n; i++)
		if (c->names[i] == name)
			return i;
	c->names[c->n] = name;
	return c->n++;
}

static void put_switches(const struct writer_sched *s, struct pb *pb, const struct switch_event *e,
			 uint32_t n, struct comms *comms)
{
	uint64_t last = 0;
	uint8_t *m;

	m = pb_open(pb, COMPACT_SWITCH_TIMESTAMP);
	for (uint32_t i = 0; i < n; i++) {
		pb_raw(pb, e[i].ts - last);
		last = e[i].ts;
	}
	pb_close(pb, m);
	m = pb_open(pb, COMPACT_SWITCH_PREV_STATE);
	for (uint32_t i = 0; i < n; i++)
		pb_raw(pb, prev_state_value(s, e[i].s.prev_state));
	pb_close(pb, m);
	m = pb_open(pb, COMPACT_SWITCH_NEXT_PID);
	for (uint32_t i = 0; i < n; i++)
		pb_raw(pb, e[i].s.next_tid);
	pb_close(pb, m);
	m = pb_open(pb, COMPACT_SWITCH_NEXT_PRIO);
	for (uint32_t i = 0; i < n; i++)
		pb_raw(pb, PRIO);
	pb_close(pb, m);
	m = pb_open(pb, COMPACT_SWITCH_NEXT_COMM);
	for (uint32_t i = 0; i < n; i++)
		pb_raw(pb, comm_index(comms, e[i].s.next_name));
	pb_close(pb, m);
}

static void put_wakings(struct pb *pb, uint32_t cpu, const struct waking_event *e, uint32_t n,
			struct comms *comms)
{
	uint64_t last = 0;
	uint8_t *m;

	m = pb_open(pb, COMPACT_WAKING_TIMESTAMP);
	for (uint32_t i = 0; i < n; i++) {
		pb_raw(pb, e[i].ts - last);
		last = e[i].ts;
	}
	pb_close(pb, m);
	m = pb_open(pb, COMPACT_WAKING_PID);
	for (uint32_t i = 0; i < n; i++)
		pb_raw(pb, e[i].k.tid);
	pb_close(pb, m);
	m = pb_open(pb, COMPACT_WAKING_TARGET_CPU);
	for (uint32_t i = 0; i < n; i++)
		pb_raw(pb, cpu);
	pb_close(pb, m);
	m = pb_open(pb, COMPACT_WAKING_PRIO);
	for (uint32_t i = 0; i < n; i++)
		pb_raw(pb, PRIO);
	pb_close(pb, m);
	m = pb_open(pb, COMPACT_WAKING_COMM);
	for (uint32_t i = 0; i < n; i++)
		pb_raw(pb, comm_index(comms, e[i].k.name));
	pb_close(pb, m);
	m = pb_open(pb, COMPACT_WAKING_COMMON_FLAGS);
	for (uint32_t i = 0; i < n; i++)
		pb_raw(pb, e[i].k.in_irq ? FLAG_HARDIRQ : 0);
	pb_close(pb, m);
}

bool writer_sched_put(struct writer_sched *s, uint32_t cpu, const struct strtab *names,
		      struct pb *pb)
{
	struct bundle *b = s->cpus[cpu];
	struct comms comms = {.n = 0};
	uint32_t n_compact = 0;
	uint8_t *m;

	pb_uint(pb, BUNDLE_CPU, cpu);
	if (!b->begun && b->n_switches) {
		put_switch_long(s, pb, &b->switches[0], names);
		b->begun = true;
		b->n_switches--;
		memmove(b->switches, b->switches + 1, b->n_switches * sizeof(b->switches[0]));
		return b->n_switches || b->n_wakings;
	}
	for (uint32_t i = 0; i < b->n_wakings; i++) {
		if (b->wakings[i].k.waker_is_current && b->begun)
			b->wakings[n_compact++] = b->wakings[i];
		else
			put_waking_long(pb, cpu, &b->wakings[i], names);
	}
	if (b->n_switches || n_compact) {
		m = pb_open(pb, BUNDLE_COMPACT);
		if (b->n_switches)
			put_switches(s, pb, b->switches, b->n_switches, &comms);
		if (n_compact)
			put_wakings(pb, cpu, b->wakings, n_compact, &comms);
		for (uint32_t i = 0; i < comms.n; i++)
			put_comm(pb, COMPACT_INTERN_TABLE, names, comms.names[i]);
		pb_close(pb, m);
	}
	b->n_switches = b->n_wakings = 0;
	return false;
}
