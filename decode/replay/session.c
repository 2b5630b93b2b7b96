// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/replay/session_internal.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/escape.h"
#include "common/bundle/schedev.h"
#include "decode/object/process_maps.h"
#include "decode/perf/event.h"
#include "decode/replay/prescan.h"
#include "decode/replay/pt.h"
#include "decode/replay/syscalls.h"

#define MAX_CPUS 4096u
#define PROGRESS_EVENTS 4096u

int session_new(const struct session_options *options, struct session **ret)
{
	_cleanup_(session_freep) struct session *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->o = *options;
	s->threads.ordered = true; /* session_begin() draws them in the map's order */
	s->cpus = calloc(MAX_CPUS, sizeof(*s->cpus));
	if (!s->cpus)
		return -ENOMEM;
	r = resolver_new(s->o.st, s->o.images, s->o.files, s->o.symbols, s->o.budget, &s->resolver);
	if (r == 0)
		resolver_set_source(s->resolver, s->o.source);
	if (r == 0 && s->o.inlined)
		resolver_set_inlines(s->resolver);
	if (r == 0)
		resolver_set_kallsyms(s->resolver, s->o.kallsyms);
	if (r < 0)
		return r;
	s->walk.resolver = s->resolver;
	s->walk.st = s->o.st;
	s->walk.budget = s->o.budget;
	python_init(&s->python, s->o.st, s->o.budget);
	s->walk.python = s->o.symbols ? &s->python : NULL;
	s->walk.want_places = s->o.pt != NULL;
	*ret = take_ptr(s);
	return 0;
}

struct session *session_free(struct session *s)
{
	if (!s)
		return NULL;
	session_free_tasks(s);
	python_fini(&s->python);
	resolver_free(s->resolver);
	free(s->cpus);
	free(s);
	return NULL;
}

/* ---- samples, switches, losses */

static uint32_t event_cpu(const struct perfevent *ev)
{
	return ev->cpu == PERFEVENT_NO_CPU ? TL_CPU_UNKNOWN : ev->cpu;
}

static enum off_cpu wait_of(const struct tracerd_sched_event *e)
{
	if ((e->flags & SCHEDEV_PREEMPT) || e->state == 0)
		return e->flags & SCHEDEV_THROTTLED ? OFF_CPU_THROTTLED : OFF_CPU_PREEMPTED;
	if (e->state & (SCHEDEV_STATE_DEAD | SCHEDEV_STATE_ZOMBIE))
		return OFF_CPU_DEAD;
	if (e->state & (SCHEDEV_STATE_STOPPED | SCHEDEV_STATE_TRACED))
		return OFF_CPU_STOPPED;
	if (e->state & SCHEDEV_STATE_UNINTERRUPTIBLE)
		return OFF_CPU_UNINTERRUPTIBLE;
	return e->state & SCHEDEV_STATE_INTERRUPTIBLE ? OFF_CPU_SLEEPING : OFF_CPU_UNKNOWN;
}

/* What the dump of calls says of it. */
static int report_off_cpu(struct session *s, uint32_t tid, uint64_t ns, enum off_cpu wait)
{
	int r = s->o.pt ? replay_pt_reach(s->o.pt, s, tid, ns) : 0;

	return r == 0 && s->o.pt ? replay_pt_off_cpu(s->o.pt, tid, ns, off_cpu_label(wait)) : r;
}

int session_stack(struct session *s, const struct thread *t, const struct perfevent *ev,
		  bool with_kernel, uint32_t *ret)
{
	uint32_t calls;
	int r;

	*ret = STACKTAB_ROOT;
	if (!s->o.pt) {
		*ret = stackwalk_sample(&s->walk, session_code(s, t->process, ev->time), ev,
					with_kernel);
		return 0;
	}
	r = replay_pt_reach(s->o.pt, s, t->tid, ev->time);
	if (r < 0)
		return r;
	calls = replay_pt_stack(s->o.pt, t->tid);
	/* Where the calls are known they are the stack, and nobody misses another one. */
	if (calls == STACKTAB_ROOT || ev->sample.n_chain || ev->sample.regs_abi) {
		*ret = stackwalk_sample(&s->walk, session_code(s, t->process, ev->time), ev,
					with_kernel);
		r = replay_pt_seen(s->o.pt, s, t->tid, ev->time, &s->walk);
		if (r < 0)
			return r;
		calls = replay_pt_stack(s->o.pt, t->tid);
	}
	/* A sample is a moment, and may be in the kernel. */
	if (calls != STACKTAB_ROOT && (!with_kernel || *ret == STACKTAB_ROOT))
		*ret = calls;
	return 0;
}

/*
 * By the upper bits of a mode, inode(7); those that are no file in a file system (epoll, eventfd,
 * ...) have none.
 */
static const char *const file_kinds[SCHEDEV_FILE_MASK + 1] = {
	[S_IFIFO >> 12] = "pipe",      [S_IFCHR >> 12] = "character device",
	[S_IFDIR >> 12] = "directory", [S_IFBLK >> 12] = "block device",
	[S_IFREG >> 12] = "file",      [S_IFSOCK >> 12] = "socket",
};

struct call_name {
	char unnamed[32];
	const char *name;
	bool fd;
};

static void name_call(const struct tracerd_sched_event *e, struct call_name *ret)
{
	const uint32_t number = (e->call & SCHEDEV_CALL_MASK) - 1;
	const struct syscall_info *call = syscall_info(number);

	(void)snprintf(ret->unnamed, sizeof(ret->unnamed), "system call %u", (unsigned int)number);
	ret->name = call ? call->name : ret->unnamed;
	ret->fd = call && call->fd;
}

static void wait_in(struct session *s, const struct tracerd_sched_event *e)
{
	const uint32_t arg = e->call >> SCHEDEV_CALL_BITS;
	const char *kind = NULL;
	struct call_name call;

	name_call(e, &call);
	if ((e->call & SCHEDEV_CALL_MASK) == SCHEDEV_CALL_FUTEX + 1)
		timeline_wait_for(s->o.tl, e->tid, arg);
	if (!call.fd || !arg) {
		timeline_wait_in(s->o.tl, e->tid, call.name, TL_NO_FD, NULL);
	} else {
		if (e->flags & SCHEDEV_FILE_KNOWN)
			kind = file_kinds[e->flags >> SCHEDEV_FILE_SHIFT & SCHEDEV_FILE_MASK];
		timeline_wait_in(s->o.tl, e->tid, call.name, arg - 1, kind);
	}
}

static void wake_in(struct session *s, const struct tracerd_sched_event *e)
{
	struct call_name call;

	name_call(e, &call);
	timeline_wake_in(s->o.tl, e->tid, call.name);
}

static int on_sched(struct session *s, const struct perfevent *ev)
{
	struct tracerd_sched_event e;
	char other[SESSION_NAME_SIZE];
	uint32_t stack, other_tid;
	struct thread *t, *of_stack;

	memcpy(&e, ev->sample.raw, sizeof(e));
	t = e.tid ? session_thread(s, e.pid, e.tid) : NULL;
	if (!t) {
		s->bad_sched++;
		return 0;
	}
	escape_text(
		other, sizeof(other), e.other_comm, strnlen(e.other_comm, sizeof(e.other_comm)));
	other_tid = e.other_tid == SCHEDEV_MASKED_ID ? TL_TID_OTHER : e.other_tid;
	switch (e.kind) {
	case SCHEDEV_OUT: {
		int r = session_declare_thread(s, t, ev->time);

		if (r < 0)
			return r;
		s->switches++;
		r = report_off_cpu(s, e.tid, ev->time, wait_of(&e));
		if (r < 0)
			return r;
		r = session_stack(s, t, ev, false, &stack);
		if (r < 0)
			return r;
		if (stack == STACKTAB_ROOT && (e.flags & SCHEDEV_STACK_LATER))
			stack = TL_STACK_LATER;
		session_in_goroutine(s, t, ev->time, stack);
		r = timeline_answer(timeline_switch_out(
			s->o.tl, e.tid, ev->time, e.cpu, wait_of(&e), stack, other_tid, other));
		if (r == 0 && (e.call & SCHEDEV_CALL_MASK))
			wait_in(s, &e);
		return r;
	}
	case SCHEDEV_IN: {
		int r = session_declare_thread(s, t, ev->time);

		if (r < 0)
			return r;
		s->switches++;
		if (e.flags & SCHEDEV_WAITED) {
			r = session_stack(s, t, ev, false, &stack);
			if (r == 0)
				r = timeline_waited(s->o.tl, e.tid, ev->time, SCHEDEV_WAITED_NS(&e),
						    stack);
			if (r < 0)
				return r;
		}
		return timeline_answer(
			timeline_switch_in(s->o.tl, e.tid, ev->time, e.cpu, other_tid, other));
	}
	case SCHEDEV_WAKEUP: {
		int r = session_declare_thread(s, t, ev->time);

		if (r < 0)
			return r;
		s->wakeups++;
		stack = STACKTAB_ROOT;
		if (e.flags & SCHEDEV_WAKER_TARGET) {
			of_stack = session_thread(s, e.other_pid, e.other_tid);
			if (of_stack) {
				r = session_declare_thread(s, of_stack, ev->time);
				if (r < 0)
					return r;
				r = session_stack(s, of_stack, ev, false, &stack);
				if (r < 0)
					return r;
			}
		}
		r = timeline_answer(timeline_wakeup(s->o.tl, e.tid, ev->time, e.cpu, other_tid,
			e.other_pid == SCHEDEV_MASKED_ID ? TL_TID_OTHER : e.other_pid, other,
			(e.flags & SCHEDEV_IRQ_KNOWN) && (e.flags & SCHEDEV_IN_IRQ), stack));
		if (r == 0 && (e.call & SCHEDEV_CALL_MASK))
			wake_in(s, &e);
		return r;
	}
	case SCHEDEV_GOROUTINE:
		session_on_goroutine(s, t, ev->time, SCHEDEV_GOROUTINE_ID(&e));
		return 0;
	case SCHEDEV_STACK: {
		int r = session_declare_thread(s, t, ev->time);

		return r < 0 || !s->o.pt ? r : session_stack(s, t, ev, false, &stack);
	}
	case SCHEDEV_BLOCKED: {
		int r = session_declare_thread(s, t, ev->time);

		if (r < 0)
			return r;
		r = session_stack(s, t, ev, false, &stack);
		if (r < 0)
			return r;
		r = timeline_answer(timeline_blocked(s->o.tl, e.tid, ev->time, wait_of(&e), stack));
		if (r == 0 && (e.call & SCHEDEV_CALL_MASK))
			wait_in(s, &e);
		return r;
	}
	default:
		s->bad_sched++;
		return 0;
	}
}

static bool event_is_sched(const struct perfevent *ev)
{
	return perfattr_is_bpf_output(ev->attr) &&
	       ev->sample.raw_size >= sizeof(struct tracerd_sched_event) &&
	       load_u32(ev->sample.raw) == SCHEDEV_MAGIC;
}

/* What a freeze has taken of a thread: where it was at this moment, and not that it ran. */
static bool is_stack_alone(const struct session *s, const struct perfevent *ev)
{
	return s->o.pt && perfattr_is_dummy(ev->attr) &&
	       (ev->sample.n_chain || ev->sample.regs_abi);
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
	if (is_stack_alone(s, ev)) {
		t = hashmap_pointer(&s->threads, ev->tid);
		return t ? session_stack(s, t, ev, false, &stack) : 0;
	}
	if (perfattr_is_bpf_output(ev->attr) || perfattr_is_dummy(ev->attr)) {
		s->ignored++;
		return 0;
	}
	if (!attr_is_sampling(ev->attr))
		return session_on_tracepoint(s, ev);
	if (ev->tid == 0) {
		s->idle_samples++;
		return 0;
	}
	/* as in on_switch(): of which thread it was nobody knows any more */
	if (ev->tid == UINT32_MAX) {
		s->samples_of_ended++;
		return 0;
	}
	t = session_thread(s, ev->pid, ev->tid);
	if (!t)
		return 0;
	r = session_declare_thread(s, t, ev->time);
	if (r < 0)
		return r;
	s->samples++;
	r = session_stack(s, t, ev, true, &stack);
	if (r < 0)
		return r;
	session_in_goroutine(s, t, ev->time, stack);
	return timeline_answer(timeline_sample(s->o.tl, ev->tid, ev->time, event_cpu(ev), stack));
}

static int on_switch(struct session *s, const struct perfevent *ev)
{
	uint32_t other = ev->sw.has_other && ev->sw.other_tid != UINT32_MAX ? ev->sw.other_tid
									    : TL_TID_UNKNOWN;
	const struct thread *o;
	struct thread *t;
	int r;

	if (s->sched || ev->tid == 0 || !ev->has_time)
		return 0;
	o = ev->sw.has_other ? hashmap_pointer(&s->threads, other) : NULL;
	/* the kernel has taken its number away when it leaves for the last time */
	if (ev->tid == UINT32_MAX)
		return !ev->sw.out ? 0
				   : timeline_answer(timeline_switch_gone(s->o.tl, ev->time,
									  event_cpu(ev), other,
									  o ? o->name : NULL));
	t = session_thread(s, ev->pid, ev->tid);
	if (!t)
		return 0;
	r = session_declare_thread(s, t, ev->time);
	if (r < 0)
		return r;
	s->switches++;
	if (!ev->sw.out)
		return timeline_answer(timeline_switch_in(
			s->o.tl, ev->tid, ev->time, event_cpu(ev), other, o ? o->name : NULL));
	r = report_off_cpu(s, ev->tid, ev->time,
			   ev->sw.preempt ? OFF_CPU_PREEMPTED : OFF_CPU_UNKNOWN);
	if (r < 0)
		return r;
	return timeline_answer(timeline_switch_out(s->o.tl, ev->tid, ev->time, event_cpu(ev),
		ev->sw.preempt ? OFF_CPU_PREEMPTED : OFF_CPU_UNKNOWN,
		s->o.pt ? replay_pt_stack(s->o.pt, ev->tid) : STACKTAB_ROOT, other,
		o ? o->name : NULL));
}

/*
 * Since when the records are missing that a LOST record counts: since the record before it on the
 * same CPU.
 */
static uint64_t lost_since(const struct perfevent *ev, const struct cpu *cpu)
{
	return cpu && cpu->last ? cpu->last : ev->time;
}

static int on_lost(struct session *s, const struct perfevent *ev, const struct cpu *cpu)
{
	uint64_t begin = lost_since(ev, cpu);

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

	if (python_take_function(&s->python, ev))
		return 0;
	if (!s->begun && ev->has_time &&
		(ev->kind == PERFEVENT_SAMPLE || ev->kind == PERFEVENT_SWITCH)) {
		r = session_begin(s);
		if (r < 0)
			return r;
	}
	if (!s->o.pt)
		process_maps_record(s->o.maps, ev);
	switch (ev->kind) {
	case PERFEVENT_SAMPLE:
		r = on_sample(s, ev);
		break;
	/* the maps know it; here it names a process, if it is not the kernel's */
	case PERFEVENT_MMAP:
		if (ev->pid != UINT32_MAX)
			(void)session_process(s, ev->pid);
		break;
	case PERFEVENT_COMM:
		r = session_on_comm(s, ev);
		break;
	case PERFEVENT_FORK:
		r = session_on_fork(s, ev);
		break;
	case PERFEVENT_EXIT:
		r = session_on_exit(s, ev);
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
		if (!s->o.pt)
			s->aux_ignored++;
		if (ev->aux.flags & PERF_AUX_FLAG_TRUNCATED)
			s->aux_truncated++;
		break;
	case PERFEVENT_NAMESPACES:
	case PERFEVENT_ITRACE_START:
	case PERFEVENT_OTHER:
		break;
	}
	if (cpu && ev->has_time)
		cpu->last = ev->time;
	return r;
}

static int on_mark(struct session *s, const struct session_note *n)
{
	int r = timeline_answer(timeline_mark(s->o.tl, n->end, n->text));

	return r || !n->tid ? r
			    : timeline_answer(timeline_moment(s->o.tl, n->tid, n->end, "trigger",
							      n->text, NULL, 0));
}

/* When the next note or end is due; UINT64_MAX: there is none. */
static uint64_t note_peek(const struct session *s)
{
	const uint64_t note = s->next_note < s->o.n_notes ? s->o.notes[s->next_note].end
							  : UINT64_MAX,
		       end = s->next_end < s->o.n_ends ? s->o.ends[s->next_end].ns : UINT64_MAX;

	return end < note ? end : note;
}

static int on_note(struct session *s)
{
	const struct session_note *n;

	if (s->next_end < s->o.n_ends && s->o.ends[s->next_end].ns == note_peek(s))
		return session_end_process(s, &s->o.ends[s->next_end++]);
	n = &s->o.notes[s->next_note++];
	switch (n->kind) {
	case SESSION_LOSS:
		return timeline_answer(
			timeline_loss(s->o.tl, 0, n->begin, n->end, n->text, n->count));
	case SESSION_PROGRAM_LOSS:
		return timeline_answer(
			timeline_program_loss(s->o.tl, n->begin, n->end, n->text, n->count));
	case SESSION_MARK:
		return on_mark(s, n);
	case SESSION_EXIT:
		return timeline_answer(timeline_exit(s->o.tl, n->end));
	case SESSION_SUSPENDED:
		return timeline_answer(timeline_suspended(s->o.tl, n->end, n->text));
	}
	return 0;
}

static int progress(struct session *s, uint64_t n)
{
	const uint64_t total = (s->o.pd ? perfdata_count(s->o.pd) : 0) +
			       (s->o.events ? ringevents_count(s->o.events) : 0);
	const uint64_t before = s->done / PROGRESS_EVENTS;

	s->done += n;
	if (s->done / PROGRESS_EVENTS == before || !s->o.progress)
		return 0;
	return s->o.progress(s->o.progress_arg, s->done, total);
}

/* As many branches as come next: none at or after `ts` and `note`, none after `event`. */
static int draw_branches(struct session *s, uint64_t ts, uint64_t note, uint64_t event)
{
	uint64_t before = ts < note ? ts : note;
	size_t n = 0;
	int r;

	if (event < before)
		before = event + 1;
	r = replay_pt_run(s->o.pt, s, before, &n);
	return r < 0 ? r : progress(s, n);
}

/*
 * Notes, branches and events of programs whose time has come, before the record at `ts`;
 * UINT64_MAX: all.
 */
static int others_until(struct session *s, uint64_t ts)
{
	struct ringevent ev;
	int r = 0;

	while (r >= 0) {
		uint64_t note = note_peek(s);
		struct session_go *go = NULL;
		uint64_t of_go = session_go_peek(s, &go);
		uint64_t of_ring = s->o.events ? ringevents_peek(s->o.events) : UINT64_MAX;
		uint64_t event = of_go < of_ring ? of_go : of_ring;
		uint64_t branch = UINT64_MAX;

		if (s->o.pt) {
			r = replay_pt_peek(s->o.pt, &branch);
			if (r < 0)
				break;
		}
		if (note != UINT64_MAX && note <= event && note <= branch && note <= ts) {
			r = on_note(s);
			continue;
		}
		/* at the same moment the record is first: a map before the code in it */
		if (branch != UINT64_MAX && branch < ts && branch <= event) {
			r = draw_branches(s, ts, note, event);
			continue;
		}
		if (event == UINT64_MAX || event > ts)
			break;
		if (of_go < of_ring)
			r = session_on_go(s, go);
		else if (ringevents_next(s->o.events, &ev))
			r = session_on_program_event(s, &ev);
		if (r >= 0)
			r = progress(s, 1);
	}
	return r;
}

/* Open calls end at the last record; what happened later comes after that. */
static int finish_pt(struct session *s)
{
	const uint64_t end = perfdata_last_time(s->o.pd);
	uint64_t branch = UINT64_MAX;
	int r = others_until(s, end < UINT64_MAX ? end + 1 : end);

	if (r >= 0)
		r = replay_pt_peek(s->o.pt, &branch);
	/* Branches that are dated later, but nothing that comes after them. */
	while (r >= 0 && branch != UINT64_MAX) {
		struct session_go *go;
		const bool alone = note_peek(s) == UINT64_MAX &&
				   (!s->o.events || ringevents_peek(s->o.events) == UINT64_MAX) &&
				   session_go_peek(s, &go) == UINT64_MAX;

		r = others_until(s, alone ? UINT64_MAX : branch + 1);
		if (r >= 0)
			r = replay_pt_peek(s->o.pt, &branch);
	}
	return r < 0 ? r : replay_pt_finish(s->o.pt, s, end);
}

int session_run(struct session *s)
{
	struct perfevent ev;
	int r;

	for (uint32_t i = 0; s->o.pd && i < s->o.pd->n_attrs; i++) {
		const struct perfattr *a = &s->o.pd->attrs[i];

		s->sched |= perfattr_is_bpf_output(a) && !a->context_switch;
		s->sched |= attr_tracepoint(a) == TRACEPOINT_SWITCH;
		s->has_waking |= attr_tracepoint(a) == TRACEPOINT_WAKING;
	}
	/* Exact calls do not hang on what is missing around them. */
	for (size_t i = 0; i < s->o.n_notes && !s->o.pt; i++)
		if (s->o.notes[i].kind == SESSION_LOSS)
			timeline_incomplete(s->o.tl, s->o.notes[i].begin, s->o.notes[i].end);
	for (size_t i = 0; s->o.prescan && i < s->o.prescan->n_losses; i++)
		timeline_incomplete(s->o.tl, s->o.prescan->losses[i].begin,
				    s->o.prescan->losses[i].end);
	while (s->o.pd && perfdata_next(s->o.pd, &ev)) {
		r = ev.has_time && ev.time ? others_until(s, ev.time) : 0;
		if (r == 0)
			r = on_event(s, &ev);
		if (r < 0)
			return r;
		r = resolver_error(s->resolver);
		if (r < 0)
			return r;
		r = progress(s, 1);
		if (r < 0)
			return r;
	}
	/* a target that slept all the time is there, too */
	r = s->begun ? 0 : session_begin(s);
	if (r >= 0 && s->o.pt)
		r = finish_pt(s);
	return r < 0 ? r : others_until(s, UINT64_MAX);
}
