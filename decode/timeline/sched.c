/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each CPU's newest switch is held back until the next one: only then it is known whether the one
 * who came is also the one who was there until then.
 */
#include "config.h"

#include "decode/timeline/sched.h"

#include <errno.h>

#include "decode/timeline/timeline.h"

#define MAX_CPUS 8192u
#define PSEUDO_TID_BASE 5000000u

enum pseudo { PSEUDO_OTHER, PSEUDO_MIXED, PSEUDO_UNKNOWN, PSEUDO_N };

struct cpu {
	bool known;		   /* a switch was seen; `current` is right */
	/* a recorded thread, not somebody of whom only the moment is known */
	bool current_is_ours;
	bool current_exited;	   /* perhaps no record says when it leaves */
	/* no switch was seen since sched_lost(): what comes next contradicts nothing */
	bool lost;
	struct sched_task current; /* as written: pseudo-threads have their tid */
	uint64_t seen_ts;	   /* until when `current` certainly ran */
	bool has_first;		   /* before the first switch: the first thread seen here */
	struct sched_task first;
	uint64_t first_ts;
	bool has_held;
	uint64_t held_ts;
	struct writer_switch held;
};

struct sched {
	struct writer *w;
	struct cpu *cpus;
	uint32_t n_cpus;
	uint32_t pseudo_names[PSEUDO_N];
	uint32_t idle_name;
	uint64_t inconsistent;
};

int sched_new(struct writer *w, struct sched **ret)
{
	struct sched *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->w = w;
	s->idle_name = writer_name(w, "swapper");
	s->pseudo_names[PSEUDO_OTHER] = writer_name(w, "other");
	s->pseudo_names[PSEUDO_MIXED] = writer_name(w, "idle or other");
	s->pseudo_names[PSEUDO_UNKNOWN] = writer_name(w, "not recorded");
	*ret = s;
	return 0;
}

struct sched *sched_free(struct sched *s)
{
	if (!s)
		return NULL;
	free(s->cpus);
	free(s);
	return NULL;
}

static int cpu_get(struct sched *s, uint32_t cpu, struct cpu **ret)
{
	if (cpu >= MAX_CPUS)
		return SCHED_E_CPU;
	if (cpu >= s->n_cpus) {
		struct cpu *p = reallocarray(s->cpus, cpu + 1, sizeof(*p));

		if (!p)
			return -ENOMEM;
		for (uint32_t i = s->n_cpus; i <= cpu; i++)
			p[i] = (struct cpu){.known = false};
		s->cpus = p;
		s->n_cpus = cpu + 1;
	}
	*ret = &s->cpus[cpu];
	return 0;
}

static struct sched_task pseudo_task(const struct sched *s, enum pseudo p, uint32_t cpu)
{
	return (struct sched_task){.tid = PSEUDO_TID_BASE + (uint32_t)p * MAX_CPUS + cpu,
				   .name = s->pseudo_names[p]};
}

/* A foreigner as written. */
static struct sched_task foreign_task(const struct sched *s, struct sched_task t, uint32_t cpu)
{
	if (t.tid == TL_TID_IDLE)
		return (struct sched_task){.tid = 0, .name = s->idle_name};
	if (t.tid == TL_TID_UNKNOWN)
		return pseudo_task(s, PSEUDO_UNKNOWN, cpu);
	if (t.tid == TL_TID_OTHER || t.tid >= PSEUDO_TID_BASE)
		return pseudo_task(s, PSEUDO_OTHER, cpu);
	return t.name ? t
		      : (struct sched_task){.tid = t.tid, .name = s->pseudo_names[PSEUDO_OTHER]};
}

static void release_held(struct sched *s, uint32_t cpu, struct cpu *c)
{
	if (c->has_held)
		writer_switch(s->w, cpu, c->held_ts, &c->held);
	c->has_held = false;
}

/* `current` leaves in that state, `next` comes. */
static void switch_to(struct sched *s, uint32_t cpu, struct cpu *c, uint64_t ts,
		      enum writer_state state, struct sched_task next, bool ours)
{
	release_held(s, cpu, c);
	c->held = (struct writer_switch){
		.prev_tid = c->current.tid,
		.prev_name = c->current.name,
		.prev_state = state,
		.next_tid = next.tid,
		.next_name = next.name,
	};
	c->held_ts = ts;
	c->has_held = true;
	c->known = true;
	c->current = next;
	c->current_is_ours = ours;
	c->current_exited = c->lost = false;
	c->seen_ts = ts;
}

/* `task` runs there without a switch to it on record: `current` left unseen. */
static void switch_unseen(struct sched *s, uint32_t cpu, struct cpu *c, uint64_t ts,
			  struct sched_task task)
{
	struct sched_task unknown = pseudo_task(s, PSEUDO_UNKNOWN, cpu);

	s->inconsistent += !c->current_exited && !c->lost;
	if (c->current.tid != unknown.tid)
		switch_to(s, cpu, c, c->current_is_ours ? c->seen_ts : ts,
			  c->current_exited ? WRITER_STATE_DEAD : WRITER_STATE_RUNNABLE, unknown,
			  false);
	switch_to(s, cpu, c, ts, WRITER_STATE_SLEEPING, task, true);
}

/* The CPU's first switch: who was there before, and since when. */
static void begin_with(struct sched *s, uint32_t cpu, struct cpu *c, struct sched_task task)
{
	if (c->has_first && c->first.tid == task.tid) {
		c->current = pseudo_task(s, PSEUDO_UNKNOWN, cpu);
		switch_to(s, cpu, c, c->first_ts, WRITER_STATE_SLEEPING, task, true);
	} else {
		c->current = task;
		c->current_is_ours = true;
	}
}

int sched_out(struct sched *s, uint32_t cpu, uint64_t ts, struct sched_task task,
	      enum writer_state state, struct sched_task other)
{
	struct cpu *c;
	int r = cpu_get(s, cpu, &c);

	if (r != 0)
		return r;
	if (!c->known)
		begin_with(s, cpu, c, task);
	else if (c->current.tid != task.tid)
		switch_unseen(s, cpu, c, ts, task);
	switch_to(s, cpu, c, ts, state, foreign_task(s, other, cpu), false);
	return 0;
}

int sched_in(struct sched *s, uint32_t cpu, uint64_t ts, struct sched_task task,
	     struct sched_task other)
{
	struct sched_task from;
	struct cpu *c;
	int r = cpu_get(s, cpu, &c);

	if (r != 0)
		return r;
	from = foreign_task(s, other, cpu);
	if (!c->known) {
		c->current = from;
		c->current_is_ours = false;
	} else if (c->current.tid == task.tid) {
		/* The leaving one has already named the coming one. */
		c->current_is_ours = true;
		c->seen_ts = ts;
		return 0;
	} else if (c->current_is_ours && c->current.tid != from.tid) {
		switch_unseen(s, cpu, c, ts, task);
		return 0;
	} else if (!c->current_is_ours && c->current.tid != from.tid) {
		bool unknown = from.tid == pseudo_task(s, PSEUDO_UNKNOWN, cpu).tid ||
			       c->current.tid == pseudo_task(s, PSEUDO_UNKNOWN, cpu).tid;

		c->current = pseudo_task(s, unknown ? PSEUDO_UNKNOWN : PSEUDO_MIXED, cpu);
		c->held.next_tid = c->current.tid;
		c->held.next_name = c->current.name;
	}
	switch_to(s, cpu, c, ts, c->current_is_ours ? WRITER_STATE_RUNNABLE : WRITER_STATE_SLEEPING,
		  task, true);
	return 0;
}

int sched_seen(struct sched *s, uint32_t cpu, uint64_t ts, struct sched_task task)
{
	struct cpu *c;
	int r = cpu_get(s, cpu, &c);

	if (r != 0)
		return r;
	if (!c->known) {
		if (!c->has_first || c->first.tid != task.tid) {
			c->has_first = true;
			c->first = task;
			c->first_ts = ts;
		}
	} else if (c->current.tid == task.tid) {
		c->seen_ts = ts;
	} else {
		switch_unseen(s, cpu, c, ts, task);
	}
	return 0;
}

void sched_exit(struct sched *s, uint64_t ts, uint32_t tid)
{
	for (uint32_t cpu = 0; cpu < s->n_cpus; cpu++) {
		struct cpu *c = &s->cpus[cpu];

		if (!c->known || !c->current_is_ours || c->current.tid != tid)
			continue;
		c->current_exited = true;
		c->seen_ts = ts;
	}
}

int sched_gone(struct sched *s, uint32_t cpu, uint64_t ts, struct sched_task other)
{
	struct cpu *c;
	int r = cpu_get(s, cpu, &c);

	if (r == 0 && c->current_exited)
		switch_to(s, cpu, c, ts, WRITER_STATE_DEAD, foreign_task(s, other, cpu), false);
	return r;
}

int sched_wake(struct sched *s, uint32_t cpu, uint64_t ts, struct sched_task wakee,
	       struct sched_task waker, bool in_irq)
{
	struct writer_waking k = {.tid = wakee.tid, .name = wakee.name, .in_irq = in_irq};
	struct cpu *c;
	int r = cpu_get(s, cpu, &c);

	if (r != 0)
		return r;
	k.waker_tid = foreign_task(s, waker, cpu).tid;
	/* Held back switches may still change who runs, unless it is one of ours. */
	k.waker_is_current = c->known && c->current_is_ours && c->current.tid == k.waker_tid;
	writer_waking(s->w, cpu, ts, &k);
	return 0;
}

void sched_lost(struct sched *s, uint64_t ts)
{
	for (uint32_t cpu = 0; cpu < s->n_cpus; cpu++) {
		struct cpu *c = &s->cpus[cpu];
		const struct sched_task unknown = pseudo_task(s, PSEUDO_UNKNOWN, cpu);

		c->has_first = false;
		if (!c->known)
			continue;
		if (c->current.tid != unknown.tid)
			switch_to(s, cpu, c, ts > c->seen_ts ? ts : c->seen_ts,
				  c->current_exited ? WRITER_STATE_DEAD : WRITER_STATE_RUNNABLE,
				  unknown, false);
		c->lost = true;
	}
}

void sched_finish(struct sched *s)
{
	for (uint32_t cpu = 0; cpu < s->n_cpus; cpu++)
		release_held(s, cpu, &s->cpus[cpu]);
}

uint64_t sched_inconsistent(const struct sched *s)
{
	return s->inconsistent;
}
