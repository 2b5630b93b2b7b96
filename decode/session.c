// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/session.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <time.h>

#include "common/escape.h"
#include "common/json.h"
#include "common/schedev.h"
#include "decode/idmap.h"
#include "decode/perfevent.h"
#include "decode/resolve.h"
#include "decode/stackwalk.h"

#define MAX_CPUS 4096u
#define PROGRESS_EVENTS 4096u
#define NAME_SIZE 256u

struct process {
	struct code code;
	uint32_t pid, ppid;
	bool told;
	bool exited;
	char name[NAME_SIZE];
	struct process *next; /* all of them, for freeing */
};

struct thread {
	uint32_t tid;
	struct process *process; /* borrowed */
	bool told;
	bool exited;
	char name[NAME_SIZE];
	struct thread *next;
};

struct cpu {
	uint64_t last;	    /* time of its last record */
	uint64_t throttled; /* since when; 0: not */
};

struct session {
	struct session_options o;
	struct idmap processes, threads;
	struct process *all_processes;
	struct thread *all_threads;
	uint32_t n_processes;
	struct resolver *resolver;
	struct stackwalk walk;
	struct cpu *cpus;
	size_t next_note;
	bool begun; /* the first sample or switch is behind us */
	bool sched; /* the recording has "sched" events: SWITCH records say less and are passed over */
	uint64_t samples, idle_samples, untimed, switches, wakeups, mmaps, maps_refused, no_memory;
	uint64_t lost, throttled, aux_truncated, bad_sched, ignored;
};

int session_new(const struct session_options *options, struct session **ret)
{
	_cleanup_(session_freep) struct session *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->o = *options;
	s->cpus = calloc(MAX_CPUS, sizeof(*s->cpus));
	if (!s->cpus)
		return -ENOMEM;
	r = resolver_new(s->o.st, s->o.images, s->o.need, s->o.symbols, s->o.budget, &s->resolver);
	if (r < 0)
		return r;
	s->walk.resolver = s->resolver;
	s->walk.st = s->o.st;
	s->walk.budget = s->o.budget;
	*ret = take_ptr(s);
	return 0;
}

struct session *session_free(struct session *s)
{
	if (!s)
		return NULL;
	while (s->all_processes) {
		struct process *p = s->all_processes;

		s->all_processes = p->next;
		code_fini(&p->code);
		free(p);
	}
	while (s->all_threads) {
		struct thread *t = s->all_threads;

		s->all_threads = t->next;
		free(t);
	}
	idmap_fini(&s->processes);
	idmap_fini(&s->threads);
	resolver_free(s->resolver);
	free(s->cpus);
	free(s);
	return NULL;
}

/* ---- processes and threads */

/* A process that is new under its pid; an older one of the same pid is no longer found. */
static struct process *process_add(struct session *s, uint32_t pid, uint32_t ppid, struct space *space)
{
	struct process *p;

	if (!budget_take(s->o.budget, sizeof(*p)))
		return NULL;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->pid = pid;
	p->ppid = ppid;
	p->code.pid = pid;
	p->code.nspid = s->o.nspid ? s->o.nspid(s->o.nspid_arg, pid) : 0;
	p->code.perfmap_tried = !s->o.perfmaps;
	p->code.serial = ++s->n_processes;
	if (space)
		p->code.space = space_ref(space);
	else if (space_new(s->o.budget, &p->code.space) < 0)
		goto fail;
	if (idmap_put(&s->processes, pid, p) < 0)
		goto fail;
	p->next = s->all_processes;
	s->all_processes = p;
	return p;
fail:
	code_fini(&p->code);
	free(p);
	return NULL;
}

static struct process *process_get(struct session *s, uint32_t pid)
{
	struct process *p = idmap_get(&s->processes, pid);

	if (!p)
		p = process_add(s, pid, 0, NULL);
	if (!p)
		s->no_memory++;
	return p;
}

static struct thread *thread_get(struct session *s, uint32_t pid, uint32_t tid)
{
	struct thread *t = idmap_get(&s->threads, tid);
	struct process *p;

	if (t && t->process->pid == pid) {
		t->exited = false;
		return t;
	}
	p = process_get(s, pid);
	if (!p)
		return NULL;
	if (t) { /* the number was given out again */
		t->process = p;
		t->told = t->exited = false;
		t->name[0] = '\0';
		return t;
	}
	if (!budget_take(s->o.budget, sizeof(*t)) || !(t = calloc(1, sizeof(*t)))) {
		s->no_memory++;
		return NULL;
	}
	t->tid = tid;
	t->process = p;
	if (idmap_put(&s->threads, tid, t) < 0) {
		free(t);
		s->no_memory++;
		return NULL;
	}
	t->next = s->all_threads;
	s->all_threads = t;
	return t;
}

static int timeline_answer(int r)
{
	return r < 0 ? r : 0; /* positive ones are counted by the timeline */
}

static int process_tell(struct session *s, struct process *p, uint64_t ts)
{
	if (p->told)
		return 0;
	p->told = true;
	return timeline_answer(timeline_process(s->o.tl, p->pid, p->ppid, p->name, ts));
}

static int thread_tell(struct session *s, struct thread *t, uint64_t ts)
{
	int r;

	if (t->told)
		return 0;
	r = process_tell(s, t->process, ts);
	if (r < 0)
		return r;
	t->told = true;
	return timeline_answer(timeline_thread(s->o.tl, t->process->pid, t->tid,
		t->name[0] ? t->name : t->process->name, ts));
}

/* At the first sample or switch: who is there already. */
static int begin(struct session *s, uint64_t ts)
{
	struct thread *t;
	uint32_t pos = 0;
	int r = 0;

	s->begun = true;
	while (s->o.whole_target && r >= 0 && (t = idmap_next(&s->threads, &pos)))
		if (!t->exited && t->tid)
			r = thread_tell(s, t, ts);
	return r;
}

static int on_comm(struct session *s, const struct perfevent *ev)
{
	struct thread *t = thread_get(s, ev->pid, ev->tid);
	struct process *p;
	int r;

	if (!t)
		return 0;
	p = t->process;
	if (ev->comm.exec) {
		struct space *space;

		/* exec: the old program is gone, with all of its maps */
		if (space_new(s->o.budget, &space) < 0) {
			s->no_memory++;
		} else {
			code_fini(&p->code);
			p->code.space = space;
			p->code.perfmap_tried = !s->o.perfmaps;
			p->code.serial = ++s->n_processes;
		}
	}
	escape_text(t->name, sizeof(t->name), ev->comm.name, ev->comm.name_len);
	if (t->told) {
		t->told = false;
		r = thread_tell(s, t, ev->time);
		if (r < 0)
			return r;
	}
	if (ev->pid == ev->tid) {
		memcpy(p->name, t->name, sizeof(p->name));
		if (p->told) {
			p->told = false;
			return process_tell(s, p, ev->time);
		}
	}
	return 0;
}

static int on_fork(struct session *s, const struct perfevent *ev)
{
	struct process *parent = idmap_get(&s->processes, ev->fork.ppid);
	struct process *p = idmap_get(&s->processes, ev->pid);
	struct thread *t, *creator;

	if (ev->pid == ev->fork.ppid || (p && !p->exited && ev->pid != ev->tid)) {
		t = thread_get(s, ev->pid, ev->tid);
	} else {
		/* recorders that describe what already runs give a fork for it: its maps follow */
		p = process_add(s, ev->pid, ev->fork.ppid, parent ? parent->code.space : NULL);
		if (!p) {
			s->no_memory++;
			return 0;
		}
		if (parent)
			memcpy(p->name, parent->name, sizeof(p->name));
		t = thread_get(s, ev->pid, ev->tid);
		if (t && t->process != p) {
			t->process = p;
			t->told = false;
			t->name[0] = '\0';
		}
	}
	creator = idmap_get(&s->threads, ev->fork.ptid);
	if (t && creator && !t->name[0])
		memcpy(t->name, creator->name, sizeof(t->name));
	return t && s->begun && s->o.whole_target ? thread_tell(s, t, ev->time) : 0;
}

static int on_task_exit(struct session *s, const struct perfevent *ev)
{
	struct thread *t = idmap_get(&s->threads, ev->tid);

	if (!t)
		return 0;
	t->exited = true;
	if (ev->pid == ev->tid)
		t->process->exited = true;
	if (!t->told)
		return 0;
	t->told = false;
	return timeline_answer(timeline_thread_exit(s->o.tl, ev->tid, ev->time));
}

static void on_mmap(struct session *s, const struct perfevent *ev)
{
	const struct perfevent_mmap *m = &ev->mmap;
	struct space_map map = { .start = m->addr, .pgoff = m->pgoff };
	struct process *p;

	/* the kernel's own maps */
	if (ev->pid == (uint32_t)-1 || (int64_t)m->addr < 0)
		return;
	s->mmaps++;
	if (m->len == 0 || __builtin_add_overflow(m->addr, m->len, &map.end))
		return;
	p = process_get(s, ev->pid);
	if (!p)
		return;
	if (m->exec) {
		const struct image_key key = { .maj = m->maj,
			.min = m->min,
			.ino = m->ino,
			.build_id = m->build_id,
			.build_id_size = m->build_id_size,
			.path = m->path,
			.path_len = m->path_len,
			.pid = ev->pid };

		map.image = images_get(s->o.images, &key);
		if (!map.image) {
			s->maps_refused++;
			return;
		}
	}
	if (space_set(&p->code.space, &map) != 0)
		s->maps_refused++;
}

/* ---- samples, switches, losses */

static uint32_t event_cpu(const struct perfevent *ev)
{
	return ev->cpu == PERFEVENT_NO_CPU ? TL_CPU_UNKNOWN : ev->cpu;
}

static enum tl_wait wait_of(const struct tracerd_sched_event *e)
{
	if ((e->flags & SCHEDEV_PREEMPT) || e->state == 0)
		return TL_WAIT_PREEMPTED;
	if (e->state & (SCHEDEV_STATE_DEAD | SCHEDEV_STATE_ZOMBIE))
		return TL_WAIT_DEAD;
	if (e->state & (SCHEDEV_STATE_STOPPED | SCHEDEV_STATE_TRACED))
		return TL_WAIT_STOPPED;
	if (e->state & SCHEDEV_STATE_UNINTERRUPTIBLE)
		return TL_WAIT_DISK;
	return e->state & SCHEDEV_STATE_INTERRUPTIBLE ? TL_WAIT_SLEEPING : TL_WAIT_UNKNOWN;
}

static int on_sched(struct session *s, const struct perfevent *ev)
{
	struct tracerd_sched_event e;
	char other[NAME_SIZE];
	uint32_t stack, other_tid;
	struct thread *t, *of_stack;

	memcpy(&e, ev->sample.raw, sizeof(e));
	t = e.tid ? thread_get(s, e.pid, e.tid) : NULL;
	if (!t) {
		s->bad_sched++;
		return 0;
	}
	escape_text(other, sizeof(other), e.other_comm, strnlen(e.other_comm, sizeof(e.other_comm)));
	other_tid = e.other_tid == SCHEDEV_MASKED_ID ? TL_TID_OTHER : e.other_tid;
	switch (e.kind) {
	case SCHEDEV_OUT: {
		int r = thread_tell(s, t, ev->time);

		if (r < 0)
			return r;
		s->switches++;
		stack = stackwalk_sample(&s->walk, &t->process->code, ev, false);
		return timeline_answer(timeline_switch_out(
			s->o.tl, e.tid, ev->time, e.cpu, wait_of(&e), stack, other_tid, other));
	}
	case SCHEDEV_IN: {
		int r = thread_tell(s, t, ev->time);

		if (r < 0)
			return r;
		s->switches++;
		return timeline_answer(timeline_switch_in(s->o.tl, e.tid, ev->time, e.cpu, other_tid, other));
	}
	case SCHEDEV_WAKEUP: {
		int r = thread_tell(s, t, ev->time);

		if (r < 0)
			return r;
		s->wakeups++;
		stack = STACKTAB_ROOT;
		if (e.flags & SCHEDEV_WAKER_TARGET) {
			of_stack = thread_get(s, e.other_pid, e.other_tid);
			if (of_stack) {
				r = thread_tell(s, of_stack, ev->time);
				if (r < 0)
					return r;
				stack = stackwalk_sample(&s->walk, &of_stack->process->code, ev, false);
			}
		}
		return timeline_answer(timeline_wakeup(s->o.tl, e.tid, ev->time, e.cpu, other_tid,
			e.other_pid == SCHEDEV_MASKED_ID ? TL_TID_OTHER : e.other_pid, other,
			(e.flags & SCHEDEV_IRQ_KNOWN) && (e.flags & SCHEDEV_IN_IRQ), stack));
	}
	default:
		s->bad_sched++;
		return 0;
	}
}

static bool attr_is_bpf_output(const struct perfattr *a)
{
	return a->type == PERF_TYPE_SOFTWARE && a->config == PERF_COUNT_SW_BPF_OUTPUT;
}

static bool event_is_sched(const struct perfevent *ev)
{
	return attr_is_bpf_output(ev->attr) && ev->sample.raw_size >= sizeof(struct tracerd_sched_event) &&
	       load_u32(ev->sample.raw) == SCHEDEV_MAGIC;
}

static int on_sample(struct session *s, const struct perfevent *ev)
{
	struct thread *t;
	uint32_t stack;
	int r;

	if (!ev->has_time) {
		s->untimed++;
		return 0;
	}
	if (event_is_sched(ev))
		return on_sched(s, ev);
	if (attr_is_bpf_output(ev->attr) ||
		(ev->attr->type == PERF_TYPE_SOFTWARE && ev->attr->config == PERF_COUNT_SW_DUMMY)) {
		s->ignored++;
		return 0;
	}
	if (ev->tid == 0) {
		s->idle_samples++;
		return 0;
	}
	t = thread_get(s, ev->pid, ev->tid);
	if (!t)
		return 0;
	r = thread_tell(s, t, ev->time);
	if (r < 0)
		return r;
	s->samples++;
	stack = stackwalk_sample(&s->walk, &t->process->code, ev, true);
	return timeline_answer(timeline_sample(s->o.tl, ev->tid, ev->time, event_cpu(ev), stack));
}

static int on_switch(struct session *s, const struct perfevent *ev)
{
	uint32_t other = ev->sw.has_other ? ev->sw.other_tid : TL_TID_UNKNOWN;
	const struct thread *o;
	struct thread *t;
	int r;

	if (s->sched || ev->tid == 0 || !ev->has_time)
		return 0;
	t = thread_get(s, ev->pid, ev->tid);
	if (!t)
		return 0;
	r = thread_tell(s, t, ev->time);
	if (r < 0)
		return r;
	s->switches++;
	o = ev->sw.has_other ? idmap_get(&s->threads, other) : NULL;
	if (!ev->sw.out)
		return timeline_answer(timeline_switch_in(
			s->o.tl, ev->tid, ev->time, event_cpu(ev), other, o ? o->name : NULL));
	return timeline_answer(timeline_switch_out(s->o.tl, ev->tid, ev->time, event_cpu(ev),
		ev->sw.preempt ? TL_WAIT_PREEMPTED : TL_WAIT_UNKNOWN, STACKTAB_ROOT, other, o ? o->name : NULL));
}

static int on_lost(struct session *s, const struct perfevent *ev, const struct cpu *cpu)
{
	uint64_t begin = cpu && cpu->last ? cpu->last : ev->time;

	s->lost += ev->lost.count;
	/* perf itself adds one without a time, for what the counters say at the end */
	if (!ev->has_time || ev->time == 0 || ev->lost.count == 0)
		return 0;
	return timeline_answer(timeline_loss(s->o.tl, 0, begin, ev->time,
		ev->lost.samples ? "samples lost" : "records lost", ev->lost.count));
}

static int on_throttle(struct session *s, const struct perfevent *ev, struct cpu *cpu)
{
	uint64_t begin;

	if (!ev->throttle.on)
		s->throttled++;
	if (!cpu || !ev->has_time)
		return 0;
	begin = cpu->throttled;
	cpu->throttled = ev->throttle.on ? 0 : ev->time;
	if (!ev->throttle.on || !begin)
		return 0;
	return timeline_answer(timeline_loss(s->o.tl, 0, begin, ev->time, "sampling throttled", 1));
}

static int on_event(struct session *s, const struct perfevent *ev)
{
	struct cpu *cpu = ev->cpu < MAX_CPUS ? &s->cpus[ev->cpu] : NULL;
	int r = 0;

	if (!s->begun && ev->has_time && (ev->kind == PERFEVENT_SAMPLE || ev->kind == PERFEVENT_SWITCH)) {
		r = begin(s, ev->time);
		if (r < 0)
			return r;
	}
	switch (ev->kind) {
	case PERFEVENT_SAMPLE:
		r = on_sample(s, ev);
		break;
	case PERFEVENT_MMAP:
		on_mmap(s, ev);
		break;
	case PERFEVENT_COMM:
		r = on_comm(s, ev);
		break;
	case PERFEVENT_FORK:
		r = on_fork(s, ev);
		break;
	case PERFEVENT_EXIT:
		r = on_task_exit(s, ev);
		break;
	case PERFEVENT_SWITCH:
		r = on_switch(s, ev);
		break;
	case PERFEVENT_LOST:
		r = on_lost(s, ev, cpu);
		break;
	case PERFEVENT_THROTTLE:
		r = on_throttle(s, ev, cpu);
		break;
	case PERFEVENT_AUX:
		s->o.pd->losses.aux_records++;
		if (ev->aux.flags & PERF_AUX_FLAG_TRUNCATED)
			s->aux_truncated++;
		break;
	case PERFEVENT_NAMESPACES:
	case PERFEVENT_OTHER:
		break;
	}
	if (cpu && ev->has_time)
		cpu->last = ev->time;
	return r;
}

/* Notes whose time has come, before the event at `ts`. */
static int notes_until(struct session *s, uint64_t ts)
{
	while (s->next_note < s->o.n_notes && s->o.notes[s->next_note].end <= ts) {
		const struct session_note *n = &s->o.notes[s->next_note++];
		int r = n->mark ? timeline_mark(s->o.tl, n->end, n->text) :
				  timeline_loss(s->o.tl, 0, n->begin, n->end, n->text, n->count);

		if (r < 0)
			return r;
	}
	return 0;
}

int session_run(struct session *s)
{
	struct perfevent ev;
	uint64_t n = 0;
	int r;

	for (uint32_t i = 0; i < s->o.pd->n_attrs; i++)
		s->sched |= attr_is_bpf_output(&s->o.pd->attrs[i]) && !s->o.pd->attrs[i].context_switch;
	for (size_t i = 0; i < s->o.n_notes; i++)
		if (!s->o.notes[i].mark)
			timeline_incomplete(s->o.tl, s->o.notes[i].begin, s->o.notes[i].end);
	for (size_t i = 0; i < s->o.n_notes; i++)
		if (!s->o.notes[i].mark && s->o.notes[i].begin < s->o.notes[i].end)
			timeline_incomplete(s->o.tl, s->o.notes[i].begin, s->o.notes[i].end);
	while (perfdata_next(s->o.pd, &ev)) {
		if (ev.has_time && ev.kind == PERFEVENT_SAMPLE) {
			r = notes_until(s, ev.time);
			if (r < 0)
				return r;
		}
		r = on_event(s, &ev);
		if (r < 0)
			return r;
		r = resolver_error(s->resolver);
		if (r < 0)
			return r;
		if (++n % PROGRESS_EVENTS == 0 && s->o.progress) {
			r = s->o.progress(s->o.progress_arg, n, s->o.pd->n_index);
			if (r < 0)
				return r;
		}
	}
	return notes_until(s, UINT64_MAX);
}

static void add_count(struct json_object *o, const char *key, uint64_t n)
{
	if (n)
		json_add_uint(o, key, n);
}

void session_report(const struct session *s, struct json_object *stats, struct json_object *losses)
{
	const struct perfdata_losses *l = &s->o.pd->losses;
	const struct resolve_stats *rs = resolver_stats(s->resolver);
	const struct images_stats *is = images_stats(s->o.images);

	json_add_uint(stats, "records", s->o.pd->n_index);
	json_add_uint(stats, "samples", s->samples);
	json_add_uint(stats, "switches", s->switches);
	json_add_uint(stats, "wakeups", s->wakeups);
	json_add_uint(stats, "mmaps", s->mmaps);
	json_add_uint(stats, "processes", s->processes.n);
	json_add_uint(stats, "threads", s->threads.n);
	json_add_uint(stats, "images", is->ready);
	json_add_uint(stats, "debug_files", is->debug_found);
	json_add_uint(stats, "perf_maps", rs->perfmaps);
	json_add_uint(stats, "addresses", rs->addresses);
	json_add_uint(stats, "stacks", s->walk.stacks);
	add_count(stats, "idle_samples", s->idle_samples);

	add_count(losses, "torn_records", l->torn);
	add_count(losses, "malformed_records", l->malformed);
	add_count(losses, "unknown_records", l->unknown);
	add_count(losses, "unknown_ids", l->unknown_ids);
	add_count(losses, "compressed_records_unreadable", l->compressed);
	add_count(losses, "records_over_memory", l->no_memory + s->no_memory);
	add_count(losses, "features_unreadable", l->features);
	add_count(losses, "aux_records_ignored", l->aux_records);
	add_count(losses, "aux_bytes_ignored", l->aux_bytes);
	add_count(losses, "aux_truncated", s->aux_truncated);
	add_count(losses, "bytes_unread", l->unread_bytes);
	add_count(losses, "samples_without_time", s->untimed);
	add_count(losses, "bad_sched_events", s->bad_sched);
	add_count(losses, "records_lost", s->lost);
	add_count(losses, "throttled", s->throttled);
	add_count(losses, "maps_refused", s->maps_refused);
	add_count(losses, "debug_files_wrong", is->debug_wrong);
	add_count(losses, "frames_unmapped", rs->unknown_no_map);
	add_count(losses, "frames_without_image", rs->unknown_no_image);
	add_count(losses, "frames_without_symbol", rs->unknown_no_symbol);
	add_count(losses, "frames_without_jit_name", rs->unknown_jit);
	add_count(losses, "frames_wrong", rs->wrong);
	stackwalk_report(&s->walk, losses);
	images_report(s->o.images, losses);
}

/* ---- what the attributes say of the whole recording */

static bool attr_is_clock(const struct perfattr *a)
{
	return a->type == PERF_TYPE_SOFTWARE &&
	       (a->config == PERF_COUNT_SW_CPU_CLOCK || a->config == PERF_COUNT_SW_TASK_CLOCK);
}

uint64_t session_period_ns(const struct perfdata *pd)
{
	for (uint32_t i = 0; i < pd->n_attrs; i++) {
		const struct perfattr *a = &pd->attrs[i];

		if (a->type == PERF_TYPE_SOFTWARE && !attr_is_clock(a))
			continue;
		if (a->freq && a->period && a->period <= 1000000000)
			return 1000000000 / a->period;
		if (!a->freq && attr_is_clock(a) && a->period && a->period <= 60000000000u)
			return a->period;
	}
	return 0;
}

bool session_has_switches(const struct perfdata *pd)
{
	for (uint32_t i = 0; i < pd->n_attrs; i++)
		if (pd->attrs[i].context_switch || attr_is_bpf_output(&pd->attrs[i]))
			return true;
	return false;
}

enum clock_source session_clock(const struct perfdata *pd)
{
	for (uint32_t i = 0; i < pd->n_attrs; i++) {
		if (!pd->attrs[i].use_clockid)
			continue;
		switch (pd->attrs[i].clockid) {
		case CLOCK_MONOTONIC:
			return CLOCK_SOURCE_MONOTONIC;
		case CLOCK_MONOTONIC_RAW:
			return CLOCK_SOURCE_MONOTONIC_RAW;
		case CLOCK_BOOTTIME:
			return CLOCK_SOURCE_BOOTTIME;
		case CLOCK_REALTIME:
			return CLOCK_SOURCE_REALTIME;
		default:
			break;
		}
	}
	return CLOCK_SOURCE_UNKNOWN;
}
