// SPDX-License-Identifier: Apache-2.0
/* Execution traces of Go programs in a replay: whose threads they tell of. */
#include "config.h"

#include <errno.h>

#include "decode/replay/gofeed.h"
#include "decode/replay/session_internal.h"
#include "decode/timeline/go.h"

/* The thread that the event is about, declared; 0: none. */
static int thread_of(struct session *s, struct session_go *go, const struct goevent *ev, uint64_t ts, uint32_t *ret)
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
		r = timeline_answer(timeline_go_begin(s->o.tl, p->pid, ts, gofeed_survey(go->feed), &go->timeline));
	}
	if (r >= 0 && go->timeline && ev) {
		r = thread_of(s, go, ev, ts, &tid);
		if (r >= 0)
			r = timeline_answer(timeline_go_event(s->o.tl, go->timeline, ts, tid, ev, gofeed_generation(go->feed)));
	} else if (r >= 0 && go->timeline) {
		r = timeline_answer(timeline_go_end(s->o.tl, go->timeline, ts));
	}
	return r < 0 ? r : gofeed_next(go->feed);
}
