// SPDX-License-Identifier: Apache-2.0
/*
 * Events of programs in a replay: whose they are. What a program says about its threads counts for
 * that program only: a number that is another process's thread gets a made-up one.
 */
#include "config.h"

#include <string.h>

#include "common/base/escape.h"
#include "decode/replay/session_internal.h"
#include "decode/rings/event.h"

/*
 * Threads of one process that no record names: its rings had so many writers, or it made them up.
 */
#define MAX_EVENT_THREADS 4096u

struct thread *session_program_thread(struct session *s, uint32_t pid, uint32_t *tid)
{
	struct thread *t = hashmap_pointer(&s->threads, *tid);
	struct process *p;

	if (t && t->process->pid != pid && !t->exited) {
		*tid |= RINGEVENT_TID_MADE;
		t = hashmap_pointer(&s->threads, *tid);
		if (t && t->process->pid != pid)
			return NULL;
	}
	/* one that has just ended has written before that */
	if (t && t->process->pid == pid)
		return t;
	p = session_process(s, pid);
	if (!p || p->n_event_threads >= MAX_EVENT_THREADS)
		return NULL;
	p->n_event_threads++;
	return session_thread(s, pid, *tid);
}

int session_on_program_event(struct session *s, const struct ringevent *event)
{
	struct ringevent ev = *event;
	struct thread *t;
	int r;

	if (s->o.events_end_ns && ev.ts > s->o.events_end_ns) {
		s->events_late++;
		/*
		 * A ring that was overwritten as a whole between the freeze and its copy: its
		 * thread is there, and says so.
		 */
		if (ev.kind == RINGEVENT_LOST)
			s->overtaken_tid = ev.tid;
		else if (ev.kind != RINGEVENT_THREAD || ev.tid != s->overtaken_tid)
			return 0;
		ev.nothing_left = ev.kind == RINGEVENT_LOST;
		ev.ts = s->o.events_end_ns;
	}
	t = session_program_thread(s, ev.pid, &ev.tid);
	if (!t) {
		s->events_unattributed++;
		return 0;
	}
	s->events++;
	if (ev.kind == RINGEVENT_THREAD && ev.name && *ev.name) {
		/* it was escaped; this cuts it */
		escape_text(t->name, sizeof(t->name), ev.name, strlen(ev.name));
		t->named = true;
		t->declared = false;
	}
	r = session_declare_thread(s, t, ev.ts);
	return r < 0 ? r : timeline_answer(timeline_event(s->o.tl, &ev));
}
