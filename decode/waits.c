/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "decode/waits.h"

#include <errno.h>

struct wait_drawer {
	struct slices *slices;
	struct writer *w;
	struct summary *summary;
	const struct stacktab *st;
	uint32_t category;
	uint32_t leaf_names[TL_WAIT_DEAD + 1], state_names[TL_WAIT_DEAD + 1];
	uint32_t resumed, key_state, key_instead, key_instead_tid, key_by, key_by_tid, key_ns, key_note;
	uint32_t idle, other, interrupt;
	uint32_t note_open, note_begin, note_end, note_lost;
};

static const char *const state_texts[] = {
	[TL_WAIT_UNKNOWN] = "unknown", [TL_WAIT_PREEMPTED] = "preempted",
	[TL_WAIT_SLEEPING] = "sleeping", [TL_WAIT_DISK] = "disk",
	[TL_WAIT_STOPPED] = "stopped", [TL_WAIT_DEAD] = "dead",
};

int wait_drawer_new(struct slices *slices, struct writer *w, struct summary *summary,
		    const struct stacktab *st, struct wait_drawer **ret)
{
	static const char *const leaf_texts[] = {
		[TL_WAIT_UNKNOWN] = "off CPU",
		[TL_WAIT_PREEMPTED] = "off CPU: preempted",
		[TL_WAIT_SLEEPING] = "off CPU: sleeping",
		[TL_WAIT_DISK] = "off CPU: disk",
		[TL_WAIT_STOPPED] = "off CPU: stopped",
		[TL_WAIT_DEAD] = "off CPU: dead",
	};
	struct wait_drawer *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->slices = slices;
	d->w = w;
	d->summary = summary;
	d->st = st;
	d->category = writer_name(w, "wait");
	for (unsigned int i = 0; i < ARRAY_SIZE(leaf_texts); i++) {
		d->leaf_names[i] = writer_name(w, leaf_texts[i]);
		d->state_names[i] = writer_name(w, state_texts[i]);
	}
	d->resumed = writer_name(w, "woken");
	d->key_state = writer_name(w, "state");
	d->key_instead = writer_name(w, "ran instead");
	d->key_instead_tid = writer_name(w, "ran instead tid");
	d->key_by = writer_name(w, "woken by");
	d->key_by_tid = writer_name(w, "woken by tid");
	d->key_ns = writer_name(w, "ns");
	d->key_note = writer_name(w, "note");
	d->idle = writer_name(w, "idle");
	d->other = writer_name(w, "other");
	d->interrupt = writer_name(w, "interrupt");
	d->note_open = writer_name(w, "not over when the recording ended");
	d->note_begin = writer_name(w, "its begin was not recorded");
	d->note_end = writer_name(w, "its end was not recorded: it is shown to the next sign of the thread");
	d->note_lost = writer_name(w, "records were lost during it");
	*ret = d;
	return 0;
}

struct wait_drawer *wait_drawer_free(struct wait_drawer *d)
{
	free(d);
	return NULL;
}

void waits_fini(struct waits *s)
{
	free(s->put_off);
	*s = (struct waits){.put_off = NULL};
}

static enum tl_wait state_of(const struct wait *w)
{
	return (unsigned int)w->state <= TL_WAIT_DEAD ? w->state : TL_WAIT_UNKNOWN;
}

static bool is_real(uint32_t tid)
{
	return tid != TL_TID_IDLE && tid != TL_TID_OTHER && tid != TL_TID_UNKNOWN;
}

static uint32_t task_name(const struct wait_drawer *d, struct sched_task t)
{
	return t.tid == TL_TID_IDLE ? d->idle : t.name ? t.name : d->other;
}

struct args {
	struct writer_arg a[8];
	uint32_t n;
};

static void add_name(struct args *a, uint32_t key, uint32_t name)
{
	a->a[a->n++] = (struct writer_arg){.key = key, .kind = WRITER_ARG_NAME, .value.name = name};
}

static void add_uint(struct args *a, uint32_t key, uint64_t v)
{
	a->a[a->n++] = (struct writer_arg){.key = key, .kind = WRITER_ARG_UINT, .value.u64 = v};
}

static void draw_begin(struct wait_drawer *d, struct lane *l, const struct wait *w)
{
	struct args a = {.n = 0};

	add_name(&a, d->key_state, d->state_names[state_of(w)]);
	if (w->other.tid != TL_TID_UNKNOWN) {
		add_name(&a, d->key_instead, task_name(d, w->other));
		if (is_real(w->other.tid))
			add_uint(&a, d->key_instead_tid, w->other.tid);
	}
	slices_leaf_begin(d->slices, l, w->begin,
			  &(struct writer_event){.name = d->leaf_names[state_of(w)],
						 .category = d->category,
						 .args = a.a,
						 .n_args = a.n});
}

static void sum_up(struct wait_drawer *d, const struct wait *w, uint32_t stack, bool open,
		   struct wait_who who)
{
	summary_wait(d->summary,
		     &(struct summary_wait){
			     .thread = who.index,
			     .tid = who.tid,
			     .name = writer_name_text(d->w, who.name),
			     .begin = w->begin,
			     .end = w->end,
			     .state = state_texts[state_of(w)],
			     .stack = stack,
			     .open = open,
			     .uncertain = w->lost_within || w->begin_unknown || w->end_unrecorded,
			     .woken = w->waker.known,
			     .woken_by_irq = w->waker.in_irq,
			     .waker_tid = w->waker.task.tid,
			     .waker_name = writer_name_text(d->w, task_name(d, w->waker.task)),
			     .waker_stack = w->waker.stack,
		     });
}

static void draw_end(struct wait_drawer *d, struct lane *l, const struct wait *w, bool open)
{
	struct args a = {.n = 0};

	if (w->waker.known) {
		add_name(&a, d->key_by, w->waker.in_irq ? d->interrupt : task_name(d, w->waker.task));
		if (!w->waker.in_irq && is_real(w->waker.task.tid))
			add_uint(&a, d->key_by_tid, w->waker.task.tid);
	}
	add_uint(&a, d->key_ns, w->end - w->begin);
	if (open)
		add_name(&a, d->key_note, d->note_open);
	else if (w->end_unrecorded)
		add_name(&a, d->key_note, d->note_end);
	else if (w->begin_unknown)
		add_name(&a, d->key_note, d->note_begin);
	else if (w->lost_within)
		add_name(&a, d->key_note, d->note_lost);
	slices_leaf_end(d->slices, l, w->end, &(struct writer_event){.args = a.a, .n_args = a.n});
	if (w->waker.flow && !open)
		slices_instant(d->slices, l, w->end,
			       &(struct writer_event){.name = d->resumed,
						      .category = d->category,
						      .flow_end = w->waker.flow});
}

static int put_off(struct waits *s, const struct wait *w)
{
	if (s->n_put_off == s->max_put_off) {
		uint32_t max = s->max_put_off ? s->max_put_off * 2 : 8;
		struct wait *p = reallocarray(s->put_off, max, sizeof(*p));

		if (!p)
			return -ENOMEM;
		s->put_off = p;
		s->max_put_off = max;
	}
	s->put_off[s->n_put_off++] = *w;
	return 0;
}

int waits_begin(struct wait_drawer *d, struct waits *s, struct lane *l, const struct wait *w, bool known)
{
	s->current = *w;
	s->waiting = true;
	/* On an empty lane there is nothing to share. */
	s->drawn = known || (l->n_open == 0 && s->n_put_off == 0);
	if (s->drawn)
		draw_begin(d, l, w);
	return 0;
}

int waits_end(struct wait_drawer *d, struct waits *s, struct lane *l, uint64_t ts, struct wait_who who)
{
	int r = 0;

	s->waiting = false;
	s->current.end = ts > s->current.begin ? ts : s->current.begin;
	s->current.ended = true;
	if (s->drawn) {
		draw_end(d, l, &s->current, false);
		sum_up(d, &s->current, s->current.stack, false, who);
		return 0;
	}
	r = put_off(s, &s->current);
	if (s->n_put_off >= WAITS_PUT_OFF_MAX)
		waits_settle(d, s, l, STACKTAB_ROOT, who);
	return r;
}

/* The stack that the lane shows, cut to `depth` frames. */
static uint32_t stack_at(const struct wait_drawer *d, const struct lane *l, uint32_t depth)
{
	uint32_t stack = l->stack;

	while (stacktab_depth(d->st, stack) > depth)
		stack = stacktab_parent(d->st, stack);
	return stack;
}

void waits_settle(struct wait_drawer *d, struct waits *s, struct lane *l, uint32_t stack,
		  struct wait_who who)
{
	bool open = s->waiting && !s->drawn;
	uint32_t depth, shared;

	if (s->n_put_off == 0 && !open)
		return;
	depth = slices_common(d->slices, l, stack);
	shared = stack_at(d, l, depth);
	slices_trim(d->slices, l, depth, s->n_put_off ? s->put_off[0].begin : s->current.begin);
	for (uint32_t i = 0; i < s->n_put_off; i++) {
		draw_begin(d, l, &s->put_off[i]);
		draw_end(d, l, &s->put_off[i], false);
		sum_up(d, &s->put_off[i], shared, false, who);
	}
	s->n_put_off = 0;
	if (open) {
		s->current.stack = shared;
		draw_begin(d, l, &s->current);
		s->drawn = true;
	}
}

void waits_abandon(struct wait_drawer *d, struct waits *s, struct lane *l, uint64_t ts,
		   struct wait_who who)
{
	waits_settle(d, s, l, STACKTAB_ROOT, who);
	if (!s->waiting)
		return;
	s->waiting = false;
	s->current.end = ts > s->current.begin ? ts : s->current.begin;
	draw_end(d, l, &s->current, true);
	sum_up(d, &s->current, s->current.stack, true, who);
}
