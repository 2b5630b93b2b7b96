// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/pt/who_ran.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/hashmap.h"
#include "common/bundle/schedev.h"
#include "decode/base/bytes.h"
#include "decode/perf/data.h"
#include "decode/perf/event.h"

#define MAX_CPUS 4096u

/* Who runs from then on; until the next of the same CPU. */
struct change {
	uint64_t time;
	uint32_t pid, tid;
	bool known;
};

struct cpu_changes {
	struct change *v;
	size_t n, cap;
};

struct who_ran {
	struct budget *budget;
	uint64_t charged;
	struct cpu_changes cpus[MAX_CPUS];
	struct hashmap pids; /* by tid: the pid as a pointer */
};

static int add(struct who_ran *o, uint32_t cpu, const struct change *c)
{
	struct cpu_changes *l;
	struct change *v;

	if (cpu >= MAX_CPUS)
		return 0;
	l = &o->cpus[cpu];
	/* Both sides of one switch report it; the one that knows more stays. */
	if (l->n && l->v[l->n - 1].time == c->time) {
		if (c->known)
			l->v[l->n - 1] = *c;
		return 0;
	}
	if (l->n && c->known && l->v[l->n - 1].known && l->v[l->n - 1].tid == c->tid)
		return 0;
	if (l->n == l->cap) {
		const size_t cap = l->cap ? l->cap * 2 : 64;

		if (!budget_take(o->budget, (cap - l->cap) * sizeof(*v)))
			return -ENOMEM;
		o->charged += (cap - l->cap) * sizeof(*v);
		v = reallocarray(l->v, cap, sizeof(*v));
		if (!v)
			return -ENOMEM;
		l->v = v;
		l->cap = cap;
	}
	l->v[l->n++] = *c;
	return 0;
}

static int on_sched(struct who_ran *o, const struct perfevent *ev)
{
	struct tracerd_sched_event e;
	struct change c = {.time = ev->time, .known = true};

	memcpy(&e, ev->sample.raw, sizeof(e));
	if (e.kind == SCHEDEV_IN) {
		c.pid = e.pid;
		c.tid = e.tid;
	} else if (e.kind == SCHEDEV_OUT) {
		c.pid = e.other_pid;
		c.tid = e.other_tid;
		c.known = e.other_tid != SCHEDEV_MASKED_ID;
	} else {
		return 0;
	}
	return add(o, e.cpu, &c);
}

static int on_switch(struct who_ran *o, const struct perfevent *ev)
{
	struct change c = {.time = ev->time, .pid = ev->pid, .tid = ev->tid, .known = true};

	if (ev->sw.out) {
		c.known = ev->sw.has_other;
		c.pid = ev->sw.other_pid;
		c.tid = ev->sw.other_tid;
	}
	return add(o, ev->cpu, &c);
}

static int on_start(struct who_ran *o, const struct perfevent *ev)
{
	const struct change c = {.time = ev->time, .pid = ev->pid, .tid = ev->tid, .known = true};

	return ev->pid == UINT32_MAX ? 0 : add(o, ev->cpu, &c);
}

/*
 * A thread that executes a program has the number of its process from then on, and no switch says
 * so.
 */
static int on_exec(struct who_ran *o, const struct perfevent *ev)
{
	const struct change c = {.time = ev->time, .pid = ev->pid, .tid = ev->tid, .known = true};
	const struct cpu_changes *l = ev->cpu < MAX_CPUS ? &o->cpus[ev->cpu] : NULL;

	return l && l->n && l->v[l->n - 1].known && l->v[l->n - 1].pid == ev->pid
		       ? add(o, ev->cpu, &c)
		       : 0;
}

int who_ran_new(struct budget *budget, struct who_ran **ret)
{
	struct who_ran *o = calloc(1, sizeof(*o));

	if (!o)
		return -ENOMEM;
	o->budget = budget;
	*ret = o;
	return 0;
}

int who_ran_record(struct who_ran *o, const struct perfevent *ev)
{
	if (ev->pid != UINT32_MAX && ev->pid != 0 && ev->tid != 0 &&
	    (uintptr_t)hashmap_pointer(&o->pids, ev->tid) != ev->pid) {
		int r = hashmap_put_pointer(&o->pids, ev->tid, (void *)(uintptr_t)ev->pid);

		if (r < 0)
			return r;
	}
	if (!ev->has_time || ev->cpu == PERFEVENT_NO_CPU)
		return 0;
	if (ev->kind == PERFEVENT_SWITCH)
		return on_switch(o, ev);
	if (ev->kind == PERFEVENT_ITRACE_START)
		return on_start(o, ev);
	if (ev->kind == PERFEVENT_COMM && ev->comm.exec && ev->time)
		return on_exec(o, ev);
	if (ev->kind == PERFEVENT_SAMPLE && perfattr_is_bpf_output(ev->attr) &&
	    ev->sample.raw_size >= sizeof(struct tracerd_sched_event) &&
	    load_u32(ev->sample.raw) == SCHEDEV_MAGIC)
		return on_sched(o, ev);
	return 0;
}

int who_ran_end(struct who_ran *o, uint64_t time, uint32_t nobody)
{
	const struct change c = {.time = time, .pid = nobody, .tid = nobody, .known = true};
	int r = 0;

	for (uint32_t cpu = 0; r == 0 && cpu < MAX_CPUS; cpu++)
		if (o->cpus[cpu].n && o->cpus[cpu].v[o->cpus[cpu].n - 1].time <= time)
			r = add(o, cpu, &c);
	return r;
}

struct who_ran *who_ran_free(struct who_ran *o)
{
	if (!o)
		return NULL;
	for (size_t i = 0; i < MAX_CPUS; i++)
		free(o->cpus[i].v);
	hashmap_fini(&o->pids);
	budget_give(o->budget, o->charged);
	free(o);
	return NULL;
}

unsigned int who_ran_find(const struct who_ran *o, int32_t cpu, uint64_t from, uint64_t to,
			  struct who_ran_span *ret, unsigned int room)
{
	const struct cpu_changes *l;
	size_t low = 0, high;
	unsigned int n = 0;

	if (cpu < 0 || (uint32_t)cpu >= MAX_CPUS)
		return 0;
	l = &o->cpus[cpu];
	high = l->n;
	/* the first change after `from`; the one before it is in force */
	while (low < high) {
		const size_t mid = low + (high - low) / 2;

		if (l->v[mid].time <= from)
			low = mid + 1;
		else
			high = mid;
	}
	for (size_t i = low ? low - 1 : 0;
	     i < l->n && n < room && (l->v[i].time <= to || i + 1 == low); i++) {
		const struct change *c = &l->v[i];

		if (!c->known)
			continue;
		ret[n++] = (struct who_ran_span){.from = c->time,
			.to = i + 1 < l->n ? l->v[i + 1].time : UINT64_MAX,
			.pid = c->pid,
			.tid = c->tid};
	}
	return n;
}

bool who_ran_knows(const struct who_ran *o, int32_t cpu, uint64_t to)
{
	return cpu >= 0 && (uint32_t)cpu < MAX_CPUS && o->cpus[cpu].n &&
	       o->cpus[cpu].v[0].time <= to;
}

bool who_ran_stayed(const struct who_ran *o, int32_t other_than, uint32_t tid, uint64_t from,
		    uint64_t to)
{
	for (int32_t cpu = 0; (uint32_t)cpu < MAX_CPUS; cpu++) {
		struct who_ran_span span;

		if (cpu != other_than && o->cpus[cpu].n &&
		    who_ran_find(o, cpu, from, from, &span, 1) == 1 && span.tid == tid &&
		    span.from <= from && span.to >= to)
			return true;
	}
	return false;
}

uint32_t who_ran_process(const struct who_ran *o, uint32_t tid)
{
	return (uint32_t)(uintptr_t)hashmap_pointer(&o->pids, tid);
}
