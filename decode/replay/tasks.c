// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/replay/session_internal.h"

#include <stdio.h>
#include <string.h>

#include "common/base/escape.h"
#include "decode/object/process_maps.h"
#include "decode/perf/event.h"
#include "decode/replay/pt.h"

struct process *session_add_process(struct session *s, uint32_t pid, uint32_t ppid)
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
	if (hashmap_put_pointer(&s->processes, pid, p) < 0) {
		free(p);
		return NULL;
	}
	p->next = s->all_processes;
	s->all_processes = p;
	return p;
}

struct process *session_process(struct session *s, uint32_t pid)
{
	struct process *p = hashmap_pointer(&s->processes, pid);

	if (!p)
		p = session_add_process(s, pid, 0);
	if (!p)
		s->no_memory++;
	return p;
}

/* From now on it is one of the process, whatever it was. */
static void thread_join(struct thread *t, struct process *p)
{
	if (!t->exited)
		LIST_REMOVE(t, sibling);
	t->exited = false;
	t->process = p;
	LIST_INSERT_HEAD(&p->threads, t, sibling);
}

struct thread *session_thread(struct session *s, uint32_t pid, uint32_t tid)
{
	struct thread *t = hashmap_pointer(&s->threads, tid);
	struct process *p;

	if (t && t->process->pid == pid) {
		if (t->exited)
			thread_join(t, t->process);
		return t;
	}
	p = session_process(s, pid);
	if (!p)
		return NULL;
	if (t) { /* the number was given out again */
		thread_join(t, p);
		t->declared = t->ended = t->named = false;
		t->name[0] = '\0';
		return t;
	}
	if (!budget_take(s->o.budget, sizeof(*t)) || !(t = calloc(1, sizeof(*t)))) {
		s->no_memory++;
		return NULL;
	}
	t->tid = tid;
	t->exited = true; /* is in no list yet */
	if (hashmap_put_pointer(&s->threads, tid, t) < 0) {
		free(t);
		s->no_memory++;
		return NULL;
	}
	thread_join(t, p);
	t->next = s->all_threads;
	s->all_threads = t;
	return t;
}

struct code *session_code(struct session *s, struct process *p, uint64_t ns)
{
	p->code.space = process_maps_at(s->o.maps, p->pid, ns);
	return &p->code;
}

void session_name_process(struct session *s, uint32_t pid, const char *name)
{
	struct process *p = *name ? session_process(s, pid) : NULL;

	if (p && !p->name[0])
		(void)snprintf(p->name, sizeof(p->name), "%s", name);
}

void session_free_tasks(struct session *s)
{
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
	hashmap_fini(&s->processes);
	hashmap_fini(&s->threads);
}

int timeline_answer(int r)
{
	return r < 0 ? r : 0; /* positive ones are counted by the timeline */
}

static int process_declare(struct session *s, struct process *p, uint64_t ts)
{
	if (p->declared)
		return 0;
	p->declared = true;
	return timeline_answer(timeline_process(s->o.tl, p->pid, p->ppid, p->name, ts));
}

int session_declare_thread(struct session *s, struct thread *t, uint64_t ts)
{
	int r;

	/*
	 * On its way out it still runs and is switched: that is no new thread until one is forked.
	 */
	if (t->declared || t->ended)
		return 0;
	r = process_declare(s, t->process, ts);
	if (r < 0)
		return r;
	t->declared = true;
	return timeline_answer(timeline_thread(
		s->o.tl, t->process->pid, t->tid, t->name[0] ? t->name : t->process->name, ts));
}

/* At the first sample or switch: who has been there all the time. */
int session_begin(struct session *s)
{
	struct thread *t;
	uint32_t pos = 0;
	int r = 0;

	s->begun = true;
	while (s->o.whole_target && r >= 0 &&
	       (t = (struct thread *)(uintptr_t)hashmap_next(&s->threads, &pos)))
		if (!t->exited && t->tid)
			r = session_declare_thread(s, t, 0);
	return r;
}

static int thread_exits(struct session *s, struct thread *t, uint64_t ts)
{
	if (!t->exited)
		LIST_REMOVE(t, sibling);
	t->exited = true;
	if (!t->declared)
		return 0;
	t->declared = false;
	t->ended = true;
	return timeline_answer(timeline_thread_exit(s->o.tl, t->tid, ts));
}

int session_end_process(struct session *s, const struct session_end *end)
{
	struct process *p = hashmap_pointer(&s->processes, end->pid);
	struct thread *t, *next;
	int r = 0;

	if (!p)
		return 0;
	p->exited = true;
	for (t = LIST_FIRST(&p->threads); t && r == 0; t = next) {
		next = LIST_NEXT(t, sibling);
		if (s->o.pt)
			r = replay_pt_end_thread(s->o.pt, s, t->tid, end->ns);
		if (r == 0)
			r = thread_exits(s, t, end->ns);
	}
	return r;
}

/*
 * An exec leaves the process with one thread, whose number is the process's: if it was another
 * thread that executed the program, the number that it had is nobody's, and no exit is on record of
 * it.
 */
static int others_exit(struct session *s, const struct thread *stays, uint64_t ts)
{
	struct thread *t, *next;
	int r = 0;

	for (t = LIST_FIRST(&stays->process->threads); t && r == 0; t = next) {
		next = LIST_NEXT(t, sibling);
		if (t != stays)
			r = thread_exits(s, t, ts);
	}
	return r;
}

int session_on_comm(struct session *s, const struct perfevent *ev)
{
	struct thread *t = session_thread(s, ev->pid, ev->tid);
	struct process *p;
	int r;

	if (!t)
		return 0;
	t->ended = false; /* the number is in use: an exec of a thread takes over its leader's */
	p = t->process;
	if (ev->comm.exec && s->o.pt) {
		r = replay_pt_exec(s->o.pt, s, ev->pid, ev->tid, ev->has_time ? ev->time : 0);
		if (r < 0)
			return r;
	}
	if (ev->comm.exec) { /* the old program is gone, with the names of its code */
		code_fini(&p->code);
		p->code.perfmap_tried = !s->o.perfmaps;
		p->code.serial = ++s->n_processes;
		r = ev->has_time ? others_exit(s, t, ev->time) : 0;
		if (r == 0)
			r = timeline_answer(
				timeline_program(s->o.tl, p->pid, ev->has_time ? ev->time : 0));
		if (r < 0)
			return r;
	}
	t->named = t->named && !ev->comm.exec;
	if (!t->named)
		escape_text(t->name, sizeof(t->name), ev->comm.name, ev->comm.name_len);
	if (t->declared) {
		t->declared = false;
		r = session_declare_thread(s, t, ev->time);
		if (r < 0)
			return r;
	}
	if (ev->pid == ev->tid) {
		escape_text(p->name, sizeof(p->name), ev->comm.name, ev->comm.name_len);
		if (p->declared) {
			p->declared = false;
			return process_declare(s, p, ev->time);
		}
	}
	return 0;
}

int session_on_fork(struct session *s, const struct perfevent *ev)
{
	struct process *parent = hashmap_pointer(&s->processes, ev->fork.ppid);
	struct process *p = hashmap_pointer(&s->processes, ev->pid);
	struct thread *t, *creator;
	int r = s->o.pt ? replay_pt_fork(s->o.pt, s, ev) : 0;

	if (r < 0)
		return r;
	if (ev->pid != ev->fork.ppid && (!p || p->exited || ev->pid == ev->tid)) {
		if (p)
			r = timeline_answer(timeline_program(s->o.tl, ev->pid, ev->time));
		if (r < 0)
			return r;
		/* recorders that describe what already runs give a fork for it: its maps follow */
		p = session_add_process(s, ev->pid, ev->fork.ppid);
		if (!p) {
			s->no_memory++;
			return 0;
		}
		if (parent)
			memcpy(p->name, parent->name, sizeof(p->name));
	}
	t = session_thread(s, ev->pid, ev->tid);
	/* its number was a thread's of an older process with that id */
	if (t && p && t->process != p) {
		thread_join(t, p);
		t->declared = t->named = false;
		t->name[0] = '\0';
	}
	if (t)
		t->ended = false;
	creator = hashmap_pointer(&s->threads, ev->fork.ptid);
	if (t && creator && !t->name[0])
		memcpy(t->name, creator->name, sizeof(t->name));
	if (!t || t->declared || !s->begun || !s->o.whole_target)
		return 0;
	r = session_declare_thread(s, t, ev->time);
	if (r == 0)
		timeline_thread_forked(s->o.tl, t->tid);
	return r;
}

int session_on_exit(struct session *s, const struct perfevent *ev)
{
	struct thread *t = hashmap_pointer(&s->threads, ev->tid);

	if (!t)
		return 0;
	if (ev->pid == ev->tid)
		t->process->exited = true;
	if (s->o.pt) {
		int r = replay_pt_end_thread(s->o.pt, s, ev->tid, ev->time);

		if (r < 0)
			return r;
	}
	return thread_exits(s, t, ev->time);
}
