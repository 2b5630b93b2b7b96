// SPDX-License-Identifier: Apache-2.0
/*
 * What a ring keeps beside packets: side-band and code that is in no file, within bounds and for as long as packets
 * need them. From time to time a segment begins (see sideband.h): all threads end their packets and begin anew, so that
 * each packet belongs to one segment. Segments go when the packets before their end are gone; where they are too large
 * before that, the packets go with them, and count as overwritten.
 */
#include <errno.h>

#include "step/step_internal.h"

#define SEGMENT_BYTES (4u << 20)
#define SEGMENT_PAGES (STEPCODE_MAX_KEPT / 4)
#define SIDE_BYTES (32u << 20)
/* One stop adds fewer pages. */
#define SPARE_PAGES 64u

static int tell_thread(struct step *s, const struct stepthread *t, uint64_t ticks)
{
	const pid_t pid = t->process->pid;
	int r = 0;

	if (t->tid != pid)
		r = stepside_fork(s->side, ticks, pid, pid, t->tid, pid);
	if (r == 0)
		r = step_tell_comm(s, t, false);
	if (r == 0 && t->stream)
		r = stepside_itrace_start(s->side, ticks, pid, t->tid);
	return r;
}

static int tell_process(struct step *s, const struct stepprocess *p, uint64_t ticks)
{
	struct stepthread *t = step_find_thread(s, p->pid);
	int r = t ? tell_thread(s, t, ticks) : 0; /* the leader first: the others are its children */

	for (size_t i = 0; i < STEP_HASH; i++)
		LIST_FOREACH(t, &s->threads[i], in_hash)
			if (r == 0 && t->process == p && t->tid != p->pid)
				r = tell_thread(s, t, ticks);
	return r < 0 ? r : stepspace_tell(p->space, ticks, p->pid);
}

/* All that is recorded, as it is now. */
static int begin_segment(struct step *s)
{
	const struct stepprocess *p;
	int r, resumed;

	r = step_pause_all(s);
	if (r == 0) {
		const uint64_t ticks = stepclock_now(&s->clock);

		r = stepside_begin_segment(s->side, ticks);
		stepcode_begin_segment(&s->code, stepside_segment(s->side));
		LIST_FOREACH(p, &s->processes, in_step)
			if (r == 0)
				r = tell_process(s, p, ticks);
		stepside_begin_records(s->side);
	}
	resumed = step_resume_all(s);
	return r < 0 ? r : resumed;
}

static bool is_too_large(const struct step *s)
{
	return stepside_bytes(s->side) > SIDE_BYTES || stepcode_room(&s->code) < SPARE_PAGES;
}

/* Segments that no packet needs; and then those that there is no room for. */
static void drop_segments(struct step *s)
{
	for (;;) {
		const uint64_t ends = stepside_second_ticks(s->side), first = steppt_store_first_tsc(s->store);

		if (!ends)
			break;
		if (first && first < ends) {
			if (!is_too_large(s))
				break;
			steppt_drop_before(s->store, ends);
		}
		stepside_drop_segment(s->side);
		stepcode_drop_before(&s->code, stepside_first_segment(s->side));
	}
}

int ring_trim(struct step *s)
{
	struct stepprocess *p;
	int r = 0;

	if (stepside_segment_bytes(s->side) >= SEGMENT_BYTES || stepcode_added(&s->code) >= SEGMENT_PAGES) {
		r = begin_segment(s);
		if (r == 0)
			drop_segments(s);
	} else if (is_too_large(s)) {
		drop_segments(s);
	}
	if (r < 0 || stepcode_room(&s->code) >= SPARE_PAGES)
		return r;
	/* All of it is code of now, of many processes: what is run next is read again. */
	LIST_FOREACH(p, &s->processes, in_step)
		stepspace_forget(p->space);
	r = begin_segment(s);
	if (r == 0)
		drop_segments(s);
	return r;
}
