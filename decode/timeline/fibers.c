/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fibers of a program: which thread runs which, what of their time was on the CPU, and where
 * their regions are drawn. The first TL_FIBER_TRACKS have a track each; of those after, only those
 * with open regions have one, for a runtime may make a million of them.
 */
#include "config.h"

#include "decode/timeline/timeline_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int fiber_get(struct timeline *tl, uint32_t pid, uint64_t id, struct tl_fiber **ret)
{
	uint32_t i = hashmap_index(&tl->fiber_map, pid, id);
	struct tl_fiber *f;
	int r;

	if (i) {
		*ret = tl->fibers[i - 1];
		return 0;
	}
	if (tl->n_fibers == TL_MAX_FIBERS)
		return TIMELINE_E_FULL;
	if (tl->n_fibers == tl->max_fibers) {
		uint32_t max = tl->max_fibers ? tl->max_fibers * 2 : 64;
		struct tl_fiber **p = reallocarray(tl->fibers, max, sizeof(*p));

		if (!p)
			return -ENOMEM;
		tl->fibers = p;
		tl->max_fibers = max;
	}
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	r = hashmap_put(&tl->fiber_map, pid, id, tl->n_fibers + 1);
	if (r < 0) {
		free(f);
		return r;
	}
	f->pid = pid;
	f->id = id;
	f->regions.lane = tl->n_fibers < TL_FIBER_TRACKS ? 0 : TL_LANE_NONE;
	tl->fibers[tl->n_fibers++] = f;
	tl->stats.fibers++;
	*ret = f;
	return 0;
}

/* By its number until its name is known. */
static void fiber_name(struct timeline *tl, struct tl_fiber *f, const char *name)
{
	char text[40];

	if (name && *name) {
		f->name = writer_name(tl->w, name);
	} else if (!f->name) {
		(void)snprintf(text, sizeof(text), "fiber %" PRIu64, f->id);
		f->name = writer_name(tl->w, text);
	}
}

int tl_fiber_find(struct timeline *tl, uint32_t pid, uint64_t id, const char *name,
		  struct tl_fiber **ret)
{
	int r = fiber_get(tl, pid, id, ret);

	if (r == 0)
		fiber_name(tl, *ret, name);
	return r;
}

void tl_fiber_used(const struct timeline *tl, const struct tl_fiber *f, uint64_t mono,
		   uint64_t *ret_on, uint64_t *ret_off)
{
	uint64_t on, off;

	*ret_on = f->on_ns;
	*ret_off = f->off_ns;
	if (!f->on)
		return;
	(void)timeline_thread_used(tl, f->on, mono, &on, &off);
	*ret_on += on > f->base_on ? on - f->base_on : 0;
	*ret_off += off > f->base_off ? off - f->base_off : 0;
}

void tl_fiber_stop(const struct timeline *tl, struct tl_fiber *f, uint64_t mono)
{
	tl_fiber_used(tl, f, mono, &f->on_ns, &f->off_ns);
	f->on = NULL;
}

void tl_fiber_run(const struct timeline *tl, struct tl_fiber *f, struct tl_thread *t, uint64_t mono)
{
	if (f->on) /* said to run on two threads: the last one counts */
		tl_fiber_stop(tl, f, mono);
	f->on = t;
	f->resumed = mono;
	(void)timeline_thread_used(tl, t, mono, &f->base_on, &f->base_off);
}

void tl_fiber_leave(struct timeline *tl, struct tl_thread *t, uint64_t mono)
{
	if (!t->fiber)
		return;
	if (t->fiber->on == t)
		tl_fiber_stop(tl, t->fiber, mono);
	t->fiber = NULL;
	writer_slice_end(tl->w, t->fibers_track, mono, NULL);
}

int tl_fiber_switch(struct timeline *tl, struct tl_thread *t, uint32_t pid, uint64_t id,
		    const char *name, uint64_t mono)
{
	const struct tl_event_names *n = tl->event_names;
	struct tl_fiber *f = NULL;
	int r;

	if (id != 0) {
		r = fiber_get(tl, pid, id, &f);
		if (r != 0)
			return r;
		fiber_name(tl, f, name);
	}
	if (t->fiber == f)
		return 0;
	tl_fiber_leave(tl, t, mono);
	if (!f)
		return 0;
	tl_fiber_run(tl, f, t, mono);
	t->fiber = f;
	if (!t->fibers_track) {
		t->fibers_track = writer_new_track(tl->w);
		writer_track(tl->w, t->fibers_track, t->lane.track, "fibers", NULL);
	}
	const struct writer_arg arg = {.key = n->key_fiber,
				       .kind = WRITER_ARG_UINT,
				       .value.u64 = id};

	writer_slice_begin(tl->w, t->fibers_track, mono,
			   &(struct writer_event){.name = f->name,
						  .category = n->fiber,
						  .args = &arg,
						  .n_args = 1});
	return 0;
}

static struct tl_lanes *lanes_of(struct tl_process *p, const struct tl_fiber *f)
{
	return f->goroutine ? &p->goroutine_regions : &p->fibers;
}

int tl_fiber_track(struct timeline *tl, struct tl_fiber *f, uint64_t mono)
{
	struct tl_process *p = timeline_process_enter(tl, f->pid, mono);
	char text[160];

	if (!p)
		return TIMELINE_E_FULL;
	if (f->regions.lane)
		return tl_lane_take(tl, lanes_of(p, f), p->track,
				    f->goroutine ? "Go: regions of more goroutines" : "more fibers",
				    &f->regions.lane, &f->regions.track)
			       ? 0
			       : TIMELINE_E_FULL;
	f->regions.track = writer_new_track(tl->w);
	if (f->parent_track) {
		writer_track(tl->w, f->regions.track, f->parent_track, "regions", NULL);
		return 0;
	}
	(void)snprintf(text, sizeof(text), "fiber %" PRIu64, f->id);
	if (f->name && f->name != writer_name(tl->w, text))
		(void)snprintf(text, sizeof(text), "fiber %.*s",
			       (int)writer_text_len(writer_name_text(tl->w, f->name), 120),
			       writer_name_text(tl->w, f->name));
	writer_track(tl->w, f->regions.track, p->track, text, NULL);
	return 0;
}

void tl_fiber_release(struct timeline *tl, struct tl_fiber *f)
{
	struct tl_process *p;

	if (!f->regions.lane || f->regions.lane == TL_LANE_NONE)
		return;
	p = timeline_process_enter(tl, f->pid, tl->stats.last_ns);
	if (p)
		tl_lane_give(lanes_of(p, f), f->regions.lane);
	f->regions.lane = TL_LANE_NONE;
	f->regions.track = 0;
}

void tl_fibers_free(struct timeline *tl)
{
	for (uint32_t i = 0; i < tl->n_fibers; i++) {
		free(tl->fibers[i]->regions.open);
		free(tl->fibers[i]);
	}
	free(tl->fibers);
	hashmap_fini(&tl->fiber_map);
}
