/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is no thread's: the note about the trace itself, the trigger's mark, losses on tracks of
 * their own (one a kind, so that slices that overlap in time need not nest), counters.
 */
#include "config.h"

#include "decode/timeline/timeline_internal.h"

#include <errno.h>

int timeline_marks_begin(struct timeline *tl, uint64_t mono)
{
	struct writer *w = tl->w;
	struct clock_map *m = tl->options.clocks;
	struct writer_arg args[6];
	uint32_t n = 0;

	tl->loss_tracks = calloc(TL_MAX_LOSS_TRACKS, sizeof(*tl->loss_tracks));
	if (!tl->loss_tracks)
		return -ENOMEM;
	tl->wakes_category = writer_name(w, "wake-up");
	tl->key_wakee = writer_name(w, "tid");
	tl->key_how = writer_name(w, "how");
	tl->key_site = writer_name(w, "called from");
	tl->key_insns = writer_name(w, "instructions");
	tl->key_interpolated = writer_name(w, "time interpolated");
	tl->interpolated[0] = writer_name(w, "begin");
	tl->interpolated[1] = writer_name(w, "end");
	tl->interpolated[2] = writer_name(w, "begin and end");
	tl->untraced_category = writer_name(w, "untraced");
	tl->key_count = writer_name(w, "count");
	tl->loss_category = writer_name(w, "loss");
	tl->mark_category = writer_name(w, "trigger");
	tl->gap_name = writer_name(w, "gap: records were lost");
	tl->not_known_name = writer_name(w, "not known: records are missing");
	tl->sample_category = writer_name(w, "sample");

	if (tl->options.version)
		args[n++] = (struct writer_arg){.key = writer_name(w, "tracerd version"),
						.kind = WRITER_ARG_TEXT,
						.value.text = tl->options.version};
	args[n++] = (struct writer_arg){.key = writer_name(w, "input clock"),
					.kind = WRITER_ARG_TEXT,
					.value.text = clock_source_to_string(
						m ? clock_map_source(m) : CLOCK_SOURCE_MONOTONIC)};
	if (!m || clock_map_known(m))
		args[n++] = (struct writer_arg){.key = writer_name(w, "clock alignment error ns"),
						.kind = WRITER_ARG_UINT,
						.value.u64 = m ? clock_map_error(m) : 0};
	else
		args[n++] = (struct writer_arg){
			.key = writer_name(w, "clock alignment"),
			.kind = WRITER_ARG_TEXT,
			.value.text =
				"not known: the input does not relate its clock to another; times "
				"are its own"};
	args[n++] = (struct writer_arg){.key = writer_name(w, "sampling period ns"),
					.kind = WRITER_ARG_UINT,
					.value.u64 = tl->options.period_ns};
	tl->about_track = writer_new_track(w);
	writer_track(w, tl->about_track, WRITER_TRACK_NONE, "tracerd", "About this trace");
	writer_instant(w, tl->about_track, mono,
		       &(struct writer_event){.name = writer_name(w, "about this trace"),
					      .args = args,
					      .n_args = n});
	return 0;
}

void timeline_marks_free(struct timeline *tl)
{
	free(tl->loss_tracks);
	free(tl->counters);
	hashmap_fini(&tl->counter_map);
}

static uint32_t losses_track(struct timeline *tl)
{
	if (!tl->losses_track) {
		tl->losses_track = writer_new_track(tl->w);
		writer_track(tl->w, tl->losses_track, WRITER_TRACK_NONE, "tracerd: losses",
				  "What was not recorded, or not written, by kind");
	}
	return tl->losses_track;
}

/* The track of the kind; kinds beyond the limit share the last one. */
static struct tl_loss_track *loss_track(struct timeline *tl, uint32_t name)
{
	struct tl_loss_track *l;

	for (uint32_t i = 0; i < tl->n_loss_tracks; i++)
		if (tl->loss_tracks[i].name == name)
			return &tl->loss_tracks[i];
	if (tl->n_loss_tracks == TL_MAX_LOSS_TRACKS)
		return &tl->loss_tracks[TL_MAX_LOSS_TRACKS - 1];
	l = &tl->loss_tracks[tl->n_loss_tracks++];
	l->name = name;
	l->track = writer_new_track(tl->w);
	writer_track(tl->w, l->track, losses_track(tl), writer_name_text(tl->w, name), NULL);
	return l;
}

int timeline_loss(struct timeline *tl, uint32_t tid, uint64_t ts_begin, uint64_t ts_end,
		  const char *kind, uint64_t count)
{
	struct tl_thread *t;
	struct tl_gap gap;
	uint64_t mono_begin, mono_end;
	int r = timeline_enter(tl, ts_end, &mono_end);

	if (r != 0)
		return r;
	tl->stats.losses++;
	mono_begin = timeline_monotonic(tl, ts_begin < ts_end ? ts_begin : ts_end);
	if (mono_begin < tl->stats.first_ns)
		mono_begin = tl->stats.first_ns;
	gap = (struct tl_gap){.begin = mono_begin, .end = mono_end};
	if (tid == 0 && timeline_is_incomplete(tl, ts_begin, ts_end)) {
		/* threads know */
	} else if (tid == 0) {
		tl->recent_gaps[tl->gaps++ % TL_RECENT_GAPS] = gap;
	} else if ((t = timeline_thread_find(tl, tid)) != NULL && !t->exited && t->lane.track) {
		r = timeline_thread_gap(tl, t, &gap);
		if (r < 0)
			return r;
	}
	r = summary_loss(tl->summary, kind, count, mono_end - mono_begin);
	if (r < 0)
		return r;
	timeline_loss_draw(tl, tid, mono_begin, mono_end, kind, count);
	return timeline_leave(tl);
}

int timeline_program_loss(struct timeline *tl, uint64_t ts_begin, uint64_t ts_end, const char *kind,
			  uint64_t count)
{
	uint64_t begin, end;
	int r = timeline_enter(tl, ts_end, &end);

	if (r != 0)
		return r;
	tl->stats.losses++;
	begin = timeline_monotonic(tl, ts_begin < ts_end ? ts_begin : ts_end);
	if (begin < tl->stats.first_ns)
		begin = tl->stats.first_ns;
	r = summary_loss(tl->summary, kind, count, end - begin);
	if (r < 0)
		return r;
	timeline_loss_draw(tl, 0, begin, end, kind, count);
	return timeline_leave(tl);
}

void timeline_loss_draw(struct timeline *tl, uint32_t tid, uint64_t begin, uint64_t end,
			const char *kind, uint64_t count)
{
	struct writer_arg args[2];
	struct writer_event ev = {.args = args};
	struct tl_loss_track *l;

	ev.name = writer_name(tl->w, kind);
	ev.category = tl->loss_category;
	if (count)
		args[ev.n_args++] = (struct writer_arg){
			.key = tl->key_count, .kind = WRITER_ARG_UINT, .value.u64 = count};
	if (tid)
		args[ev.n_args++] = (struct writer_arg){
			.key = tl->key_wakee, .kind = WRITER_ARG_UINT, .value.u64 = tid};
	l = loss_track(tl, ev.name);
	if (begin < l->last_end)
		begin = l->last_end;
	if (begin > end)
		begin = end;
	l->last_end = end;
	writer_slice_begin(tl->w, l->track, begin, &ev);
	writer_slice_end(tl->w, l->track, end, NULL);
}

void timeline_loss_untimed(struct timeline *tl, const char *kind, uint64_t count)
{
	struct writer_arg arg = {.key = tl->key_count, .kind = WRITER_ARG_UINT, .value.u64 = count};

	(void)summary_loss(tl->summary, kind, count, 0);
	if (tl->stats.cut || tl->stats.last_ns == 0)
		return;
	tl->stats.losses++;
	writer_instant(tl->w, losses_track(tl), tl->stats.last_ns,
		       &(struct writer_event){.name = writer_name(tl->w, kind),
					      .category = tl->loss_category,
					      .args = &arg,
					      .n_args = 1});
}

void timeline_mark_cut(struct timeline *tl, uint64_t mono)
{
	uint32_t track = losses_track(tl);

	if (tl->slow_begun && !tl->slow_ended)
		writer_slice_end(tl->w, tl->marks_track, mono, NULL);
	(void)summary_loss(tl->summary, "output cut", 1, 0);
	writer_instant(tl->w, track, mono,
		       &(struct writer_event){
			       .name = writer_name(tl->w, "output cut: its size limit was reached"),
			       .category = tl->loss_category});
}

uint32_t timeline_marks_track(struct timeline *tl)
{
	if (!tl->marks_track) {
		tl->marks_track = writer_new_track(tl->w);
		writer_track(tl->w, tl->marks_track, WRITER_TRACK_NONE, "tracerd: trigger",
				  "Why this was recorded, and when the recording was frozen");
	}
	return tl->marks_track;
}

void timeline_mark_draw(struct timeline *tl, uint64_t mono, const char *name)
{
	tl->stats.marks++;
	writer_instant(tl->w, timeline_marks_track(tl), mono,
		       &(struct writer_event){.name = writer_name(tl->w, name),
					      .category = tl->mark_category});
}

int timeline_mark(struct timeline *tl, uint64_t ts, const char *name)
{
	uint64_t mono;
	int r = timeline_enter(tl, ts, &mono);

	if (r == 0)
		r = summary_mark(tl->summary, name, mono);
	if (r != 0)
		return r;
	timeline_mark_draw(tl, mono, name);
	return timeline_leave(tl);
}

int timeline_counter_track(struct timeline *tl, uint32_t pid, uint64_t mono, const char *name,
			   enum writer_unit unit, uint32_t *ret_track)
{
	uint32_t id = writer_name(tl->w, name), i = hashmap_index(&tl->counter_map, pid, id);
	int r;

	tl->stats.counters++;
	if (i) {
		*ret_track = tl->counters[i - 1].track;
		return 0;
	}
	if (tl->n_counters == TL_MAX_COUNTERS)
		return TIMELINE_E_FULL;
	if (tl->n_counters == tl->max_counters) {
		uint32_t max = tl->max_counters ? tl->max_counters * 2 : 64;
		struct tl_counter *p = reallocarray(tl->counters, max, sizeof(*p));

		if (!p)
			return -ENOMEM;
		tl->counters = p;
		tl->max_counters = max;
	}
	r = hashmap_put(&tl->counter_map, pid, id, tl->n_counters + 1);
	if (r < 0)
		return r;
	*ret_track = writer_new_track(tl->w);
	tl->counters[tl->n_counters++] =
		(struct tl_counter){.pid = pid, .name = id, .track = *ret_track};
	writer_counter_track(tl->w, *ret_track,
				  pid ? timeline_process_track(tl, pid, mono) : WRITER_TRACK_NONE,
				  writer_name_text(tl->w, id), unit);
	return 0;
}

int timeline_counter(struct timeline *tl, uint32_t pid, uint64_t ts, const char *name,
		     enum writer_unit unit, int64_t value)
{
	uint32_t track = 0;
	uint64_t mono;
	int r = timeline_enter(tl, ts, &mono);

	if (r == 0)
		r = timeline_counter_track(tl, pid, mono, name, unit, &track);
	if (r == TIMELINE_E_FULL)
		tl->stats.refused_full++;
	if (r != 0)
		return r;
	writer_counter(tl->w, track, mono, value);
	return timeline_leave(tl);
}
