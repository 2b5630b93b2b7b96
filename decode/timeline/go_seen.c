/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The goroutines of Go programs that tell nothing themselves: samples and switches show which one a
 * thread runs. Such a thread has the track "goroutines, as sampled" below its own. A goroutine
 * holds as long as a stack does: until something else is seen.
 */
#include "config.h"

#include "decode/timeline/timeline_internal.h"

#include <inttypes.h>
#include <stdio.h>

#define NAMES_MAX 65536u

/*
 * "G12 main.worker": the function with which it began is known once a whole stack of it was seen.
 * Each program of a process counts from 1.
 */
static uint32_t name_of(struct timeline *tl, uint32_t pid, uint32_t program, uint64_t id,
			const char *function)
{
	const uint64_t owner = (uint64_t)program << 32 | pid;
	uint32_t name = hashmap_index(&tl->seen_names, owner, id);
	char text[320];

	if (name)
		return name;
	(void)snprintf(text, sizeof(text), "G%" PRIu64 "%s%.*s", id, *function ? " " : "",
		       (int)writer_text_len(function, 256), function);
	name = writer_name(tl->w, text);
	/* Without room for it it is asked for again. */
	if (*function && tl->seen_names.n < NAMES_MAX)
		(void)!hashmap_put(&tl->seen_names, owner, id, name);
	return name;
}

static uint32_t program_of(const struct timeline *tl, uint32_t pid)
{
	const struct tl_process *p = timeline_process_find(tl, pid);

	return p ? p->program : 0;
}

static uint32_t track_of(struct timeline *tl, struct tl_thread *t)
{
	if (t->goroutines_track)
		return t->goroutines_track;
	t->goroutines_track = writer_new_track(tl->w);
	writer_track(
		tl->w, t->goroutines_track, t->lane.track, "goroutines, as sampled",
		"Which goroutine samples and switches of the thread have shown: others that ran in between are not known");
	return t->goroutines_track;
}

/* It is drawn when it is over: by then more may be known of who it is. */
static void draw(struct timeline *tl, struct tl_thread *t, uint64_t mono)
{
	const struct writer_arg arg = {.key = writer_name(tl->w, "goroutine"),
				       .kind = WRITER_ARG_UINT,
				       .value.u64 = t->seen.id};
	const uint32_t track = track_of(tl, t);

	writer_slice_begin(
		tl->w, track, t->seen.since,
		&(struct writer_event){.name = name_of(tl, t->pid, t->seen.program, t->seen.id, ""),
				       .category = writer_name(tl->w, "goroutine, as sampled"),
				       .args = &arg,
				       .n_args = 1});
	t->goroutines_last = mono > t->seen.since ? mono : t->seen.since;
	writer_slice_end(tl->w, track, t->goroutines_last, NULL);
}

void tl_seen_end(struct timeline *tl, struct tl_thread *t, uint64_t mono)
{
	if (t->seen.id)
		draw(tl, t, mono);
	t->seen.id = 0;
}

/*
 * Its other threads are gone by then; where their ends were lost, they keep the names of the
 * program before.
 */
int timeline_program(struct timeline *tl, uint32_t pid, uint64_t ts)
{
	struct tl_process *p = timeline_process_find(tl, pid);
	struct tl_thread *t = timeline_thread_find(tl, pid);
	uint64_t mono;
	int r;

	if (!p)
		return 0;
	p->program++;
	if (!t || t->pid != pid)
		return 0;
	t->seen.last = timeline_monotonic(tl, ts);
	tl_seen_end(tl, t, t->seen.last);
	if (ts == 0)
		return 0;
	r = timeline_enter(tl, ts, &mono);
	if (r == 0)
		r = timeline_thread_executes(tl, t, mono);
	return r != 0 ? r : timeline_leave(tl);
}

void timeline_in_goroutine(struct timeline *tl, uint32_t tid, uint64_t ts, uint64_t id,
			   const char *function)
{
	struct tl_thread *t = timeline_thread_find(tl, tid);

	if (!t)
		return;
	t->seen.told_at = ts;
	t->seen.told = id;
	if (id && *function)
		(void)name_of(tl, t->pid, program_of(tl, t->pid), id, function);
}

/*
 * Since when nothing was seen of it; 0: it was seen just before. A short preemption does not move
 * t->resumed, but shows the goroutine when it begins: then it is since its end.
 */
static uint64_t goroutine_unseen_since(const struct tl_thread *t)
{
	if (t->resumed == 0 || t->resumed >= t->seen.last)
		return t->resumed;
	return t->on_since >= t->seen.last ? t->on_since : 0;
}

void tl_seen(struct timeline *tl, struct tl_thread *t, uint64_t mono)
{
	const uint64_t id = t->seen.told;
	uint64_t unseen, since = mono;
	uint32_t program;

	if (t->seen.told_at != tl->last_source || t->goroutine)
		return;
	unseen = goroutine_unseen_since(t);
	t->seen.last = mono;
	t->seen.at = id ? mono : 0;
	program = program_of(tl, t->pid);
	if (t->seen.id == id && (id == 0 || t->seen.program == program))
		return;
	if (unseen && mono - t->resumed <= TL_REACH_PERIODS * tl->options.period_ns)
		since = unseen;
	tl_seen_end(tl, t, unseen ? unseen : mono);
	t->seen.id = id;
	t->seen.program = program;
	t->seen.since = since > t->goroutines_last ? since : t->goroutines_last;
}
