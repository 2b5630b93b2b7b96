// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/decode/go/check-writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "decode/writer/writer_internal.h"

struct check {
	struct writer w;
	struct track {
		bool declared;
		uint32_t depth;
		uint64_t last;
	} *tracks;
	uint32_t n;
};

static struct check *of(struct writer *w)
{
	return (struct check *)w;
}

static void declare(struct writer *w, uint32_t track)
{
	struct check *c = of(w);

	if (track == WRITER_TRACK_NONE)
		abort();
	if (track >= c->n) {
		c->tracks = reallocarray(c->tracks, track + 1, sizeof(*c->tracks));
		if (!c->tracks)
			abort();
		memset(&c->tracks[c->n], 0, (track + 1 - c->n) * sizeof(*c->tracks));
		c->n = track + 1;
	}
	c->tracks[track].declared = true;
}

static struct track *at(struct writer *w, uint32_t track, uint64_t ts)
{
	struct check *c = of(w);
	struct track *t = track < c->n ? &c->tracks[track] : NULL;

	if (!t || !t->declared || ts < t->last)
		abort();
	t->last = ts;
	return t;
}

static void on_begin(struct writer *w, const struct writer_meta *meta,
		     const struct writer_clocks *c)
{
	(void)w, (void)meta, (void)c;
}

static void on_process(struct writer *w, uint32_t track, uint32_t pid, uint32_t ppid,
		       const char *name, uint64_t ts)
{
	(void)pid, (void)ppid, (void)name, (void)ts;
	declare(w, track);
}

static void on_thread(struct writer *w, uint32_t track, uint32_t process_track, uint32_t pid,
		      uint32_t tid, const char *name, uint64_t ts)
{
	(void)process_track, (void)pid, (void)tid, (void)name, (void)ts;
	declare(w, track);
}

static void on_track(struct writer *w, uint32_t track, uint32_t parent, const char *name,
		     const char *description)
{
	(void)parent, (void)name, (void)description;
	declare(w, track);
}

static void on_lane(struct writer *w, uint32_t track, uint32_t parent, const char *name)
{
	(void)parent, (void)name;
	declare(w, track);
}

static void on_counter_track(struct writer *w, uint32_t track, uint32_t parent, const char *name,
			     enum writer_unit unit)
{
	(void)parent, (void)name, (void)unit;
	declare(w, track);
}

static void on_slice_begin(struct writer *w, uint32_t track, uint64_t ts,
			   const struct writer_event *ev)
{
	(void)ev;
	at(w, track, ts)->depth++;
}

static void on_slice_end(struct writer *w, uint32_t track, uint64_t ts,
			 const struct writer_event *ev)
{
	(void)ev;
	if (at(w, track, ts)->depth-- == 0)
		abort();
}

static void on_instant(struct writer *w, uint32_t track, uint64_t ts, const struct writer_event *ev)
{
	(void)ev;
	(void)at(w, track, ts);
}

static void on_counter(struct writer *w, uint32_t track, uint64_t ts, int64_t value)
{
	if (value < 0)
		abort();
	(void)at(w, track, ts);
}

static void on_counter_f64(struct writer *w, uint32_t track, uint64_t ts, double value)
{
	(void)value;
	(void)at(w, track, ts);
}

static void on_switch(struct writer *w, uint32_t cpu, uint64_t ts, const struct writer_switch *s)
{
	(void)w, (void)cpu, (void)ts, (void)s;
}

static void on_waking(struct writer *w, uint32_t cpu, uint64_t ts, const struct writer_waking *k)
{
	(void)w, (void)cpu, (void)ts, (void)k;
}

static int on_end(struct writer *w)
{
	const struct check *c = of(w);

	for (uint32_t i = 0; i < c->n; i++)
		if (c->tracks[i].depth)
			abort();
	return 0;
}

static void on_free(struct writer *w)
{
	writer_fini(w);
	free(of(w)->tracks);
	free(w);
}

int check_writer_new(struct writer **ret)
{
	static const struct writer_ops ops = {.begin = on_begin,
					      .process = on_process,
					      .thread = on_thread,
					      .track = on_track,
					      .lane = on_lane,
					      .counter_track = on_counter_track,
					      .slice_begin = on_slice_begin,
					      .slice_end = on_slice_end,
					      .instant = on_instant,
					      .counter = on_counter,
					      .counter_f64 = on_counter_f64,
					      .sched_switch = on_switch,
					      .sched_waking = on_waking,
					      .end = on_end,
					      .free = on_free};
	const struct writer_options o = {.max_name_bytes = 4 << 20};
	struct check *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	*ret = &c->w;
	return writer_init(&c->w, &ops, -1, &o);
}
