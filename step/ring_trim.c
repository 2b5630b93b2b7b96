// SPDX-License-Identifier: Apache-2.0
/*
 * Bounds what a ring keeps besides packets: the side-band, and code that is in no file. Both must
 * stay as long as packets need them. From time to time a new segment begins (see sideband.h): all
 * threads restart their packets, so that each packet belongs to one segment. A segment is dropped
 * when no packet is older than its end. When the segments exceed their bound before that, packets
 * are dropped with them and count as overwritten.
 */
#include <errno.h>

#include "step/step_internal.h"

#define SEGMENT_BYTES (4u << 20)
#define SEGMENT_PAGES (STEP_CODE_MAX_KEPT / 4)
#define SIDE_BYTES (32u << 20)
/* More than one stop can add. */
#define SPARE_PAGES 64u

static int record_thread(struct step *s, const struct step_thread *t, uint64_t ticks)
{
	const pid_t pid = t->process->pid;
	int r = 0;

	if (t->tid != pid)
		r = sideband_fork(s->sideband, ticks, pid, pid, t->tid, pid);
	if (r == 0)
		r = step_thread_record_comm(s, t, false);
	if (r == 0 && t->stream)
		r = sideband_itrace_start(s->sideband, ticks, pid, t->tid);
	return r;
}

static int record_process(struct step *s, const struct step_process *p, uint64_t ticks)
{
	struct step_thread *t = step_thread_find(s, p->pid);
	/* the leader first: the others are its children */
	int r = t ? record_thread(s, t, ticks) : 0;

	for (size_t i = 0; i < STEP_HASH; i++)
		LIST_FOREACH(t, &s->threads[i], in_hash)
			if (r == 0 && t->process == p && t->tid != p->pid)
				r = record_thread(s, t, ticks);
	return r < 0 ? r : address_space_record(p->space, ticks, p->pid);
}

/* The new segment begins with the present state of all processes. */
static int begin_segment(struct step *s)
{
	const struct step_process *p;
	int r, resumed;

	r = step_insn_pause_all(s);
	if (r == 0) {
		const uint64_t ticks = step_clock_now(&s->clock);

		r = sideband_begin_segment(s->sideband, ticks);
		step_code_begin_segment(&s->code, sideband_segment(s->sideband));
		LIST_FOREACH(p, &s->processes, in_step)
			if (r == 0)
				r = record_process(s, p, ticks);
		sideband_begin_records(s->sideband);
	}
	resumed = step_insn_resume_all(s);
	return r < 0 ? r : resumed;
}

static bool is_too_large(const struct step *s)
{
	return sideband_bytes(s->sideband) > SIDE_BYTES || step_code_room(&s->code) < SPARE_PAGES;
}

/* Drops segments that no packet needs, and then those that exceed the bound. */
static void drop_segments(struct step *s)
{
	for (;;) {
		const uint64_t ends = sideband_second_segment_ticks(s->sideband);
		const uint64_t first = pt_encoder_store_first_tsc(s->store);

		if (!ends)
			break;
		if (first && first < ends) {
			if (!is_too_large(s))
				break;
			pt_encoder_store_drop_before(s->store, ends);
		}
		sideband_drop_oldest_segment(s->sideband);
		step_code_drop_before(&s->code, sideband_first_segment(s->sideband));
	}
}

int ring_trim(struct step *s)
{
	struct step_process *p;
	int r = 0;

	if (sideband_segment_bytes(s->sideband) >= SEGMENT_BYTES ||
	    step_code_added(&s->code) >= SEGMENT_PAGES) {
		r = begin_segment(s);
		if (r == 0)
			drop_segments(s);
	} else if (is_too_large(s)) {
		drop_segments(s);
	}
	if (r < 0 || step_code_room(&s->code) >= SPARE_PAGES)
		return r;
	/*
	 * All pages belong to the present code of many processes: forget them, and read again what
	 * runs next.
	 */
	LIST_FOREACH(p, &s->processes, in_step)
		address_space_forget_pages(p->space);
	r = begin_segment(s);
	if (r == 0)
		drop_segments(s);
	return r;
}
