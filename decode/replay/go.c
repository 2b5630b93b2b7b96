// SPDX-License-Identifier: Apache-2.0
/* Execution traces of Go programs in a replay: whose threads they tell of. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "decode/replay/gofeed.h"
#include "decode/replay/session_internal.h"
#include "decode/timeline/go.h"

#define FIRST_FRAMES 16u

/* The thread that the event is about, declared; 0: none. */
static int thread_of(struct session *s, struct session_go *go, const struct goevent *ev,
		     uint64_t ts, uint32_t *ret)
{
	bool foreign;
	struct thread *t;

	*ret = gofeed_tid(go->feed, timeline_go_thread(ev), &foreign);
	if (!*ret)
		return 0;
	t = session_program_thread(s, gofeed_pid(go->feed), ret);
	if (!t) {
		s->events_unattributed++;
		*ret = 0;
		return 0;
	}
	return session_declare_thread(s, t, ts);
}

/* ---- programs that tell nothing themselves */

static bool tells_itself(const struct session *s, uint32_t pid)
{
	for (size_t i = 0; i < s->o.n_go; i++)
		if (gofeed_pid(s->o.go[i].feed) == pid)
			return true;
	return false;
}

void session_on_goroutine(struct session *s, struct thread *t, uint64_t ts, uint64_t id)
{
	struct process *p = t->process;

	if (!p->has_goroutines) {
		p->has_goroutines = true;
		p->has_trace = tells_itself(s, p->pid);
	}
	t->goroutine = p->has_trace ? 0 : id;
	t->goroutine_at = ts;
}

/*
 * What a signal or the runtime has put on top of a function that may keep no frame pointer, so that
 * its caller is missing.
 */
static bool is_interruption(const char *name)
{
	return strncmp(name, "runtime.sigreturn", 17) == 0 ||
	       strncmp(name, "runtime.asyncPreempt", 20) == 0;
}

/*
 * A whole stack begins with what the runtime has put there for the goroutine to return to. Of a
 * function that keeps no frame pointer the caller may be missing: only what has called something
 * else is the first for certain.
 */
static const char *first_function(const struct session *s, uint32_t stack)
{
	struct frame_info info;
	uint32_t frames[FIRST_FRAMES], n;

	if (stack == TL_STACK_LATER)
		return "";
	n = stacktab_frames(s->o.st, stack, frames, FIRST_FRAMES);
	for (uint32_t i = 0; i < n; i++) {
		stacktab_info(s->o.st, frames[i], &info);
		if (i == 0 && strcmp(info.name, "runtime.goexit") != 0 &&
		    strcmp(info.name, "runtime.goexit.abi0") != 0)
			return "";
		if (i > 0 && is_interruption(info.name))
			return "";
		if (i > 1 && info.kind == FRAME_KIND_USER) {
			stacktab_info(s->o.st, frames[1], &info);
			return info.name;
		}
	}
	return "";
}

void session_in_goroutine(struct session *s, struct thread *t, uint64_t ts, uint32_t stack)
{
	const uint64_t id = t->goroutine_at == ts ? t->goroutine : 0;

	t->goroutine = 0;
	if (!t->process->has_goroutines || t->process->has_trace)
		return;
	s->in_goroutine += id != 0;
	timeline_in_goroutine(s->o.tl, t->tid, ts, id, first_function(s, stack));
}

/* ---- programs with a trace */

uint64_t session_go_peek(const struct session *s, struct session_go **ret)
{
	uint64_t first = UINT64_MAX;

	for (size_t i = 0; i < s->o.n_go; i++) {
		const uint64_t ts = gofeed_peek(s->o.go[i].feed);

		if (ts < first) {
			first = ts;
			*ret = &s->o.go[i];
		}
	}
	return first;
}

int session_on_go(struct session *s, struct session_go *go)
{
	const struct goevent *ev = gofeed_event(go->feed);
	const uint64_t ts = gofeed_peek(go->feed);
	uint32_t tid = 0;
	int r = 0;

	if (!go->timeline) {
		const struct process *p = session_process(s, gofeed_pid(go->feed));

		if (!p)
			return -ENOMEM;
		r = timeline_answer(timeline_go_begin(s->o.tl, p->pid, ts, gofeed_survey(go->feed),
						      &go->timeline));
	}
	if (r >= 0 && go->timeline && ev) {
		r = thread_of(s, go, ev, ts, &tid);
		if (r >= 0)
			r = timeline_answer(timeline_go_event(s->o.tl, go->timeline, ts, tid, ev,
							      gofeed_generation(go->feed)));
	} else if (r >= 0 && go->timeline) {
		r = timeline_answer(timeline_go_end(s->o.tl, go->timeline, ts));
	}
	return r < 0 ? r : gofeed_next(go->feed);
}
