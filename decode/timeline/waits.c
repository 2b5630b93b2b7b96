/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "decode/timeline/waits.h"

#include <errno.h>
#include <stdlib.h>

#define CLOCKS_APART_NS 20000u

struct wait_drawer {
	struct slices *slices;
	struct writer *w;
	struct summary *summary;
	uint64_t min_ns;
	uint32_t category;
	uint32_t leaf_names[OFF_CPUS], state_names[OFF_CPUS];
	uint32_t resumed, key_state, key_instead, key_instead_tid, key_by, key_by_tid, key_runnable,
		key_behind, key_behind_tid, key_ns, key_note;
	uint32_t key_call, key_fd, key_fd_kind, key_since, before;
	uint32_t idle, other, interrupt;
	uint32_t note_open, note_begin, note_end, note_lost, note_cut;
	uint32_t key_stack, not_recorded, brief;
};

int wait_drawer_new(struct slices *slices, struct writer *w, struct summary *summary,
		    uint64_t min_ns, struct wait_drawer **ret)
{
	struct wait_drawer *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->slices = slices;
	d->w = w;
	d->summary = summary;
	d->min_ns = min_ns;
	d->category = writer_name(w, "wait");
	for (unsigned int i = 0; i < OFF_CPUS; i++) {
		d->leaf_names[i] = writer_name(w, off_cpu_label(i));
		d->state_names[i] = writer_name(w, off_cpu_text(i));
	}
	d->resumed = writer_name(w, "woken");
	d->key_state = writer_name(w, "state");
	d->key_instead = writer_name(w, "ran instead");
	d->key_instead_tid = writer_name(w, "ran instead tid");
	d->key_by = writer_name(w, "woken by");
	d->key_by_tid = writer_name(w, "woken by tid");
	d->key_runnable = writer_name(w, "runnable ns");
	d->key_behind = writer_name(w, "behind");
	d->key_behind_tid = writer_name(w, "behind tid");
	d->key_call = writer_name(w, "system call");
	d->key_fd = writer_name(w, "descriptor");
	d->key_fd_kind = writer_name(w, "descriptor is");
	d->key_since = writer_name(w, "since");
	d->before = writer_name(w, "before what is recorded");
	d->key_ns = writer_name(w, "ns");
	d->key_note = writer_name(w, "note");
	d->idle = writer_name(w, "idle");
	d->other = writer_name(w, "other");
	d->interrupt = writer_name(w, "interrupt");
	d->note_open = writer_name(w, "not over when the recording ended");
	d->note_begin = writer_name(w, "its begin was not recorded");
	d->note_end = writer_name(w, "its end was not recorded");
	d->note_lost = writer_name(w, "records were lost during it");
	d->note_cut =
		writer_name(w, "how it went on is not known: records are missing from here on");
	d->key_stack = writer_name(w, "stack");
	d->not_recorded = writer_name(w, "not recorded");
	d->brief = writer_name(w, "not recorded of a short wait");
	*ret = d;
	return 0;
}

struct wait_drawer *wait_drawer_free(struct wait_drawer *d)
{
	free(d);
	return NULL;
}

static enum off_cpu state_of(const struct wait *w)
{
	return (unsigned int)w->state < OFF_CPUS ? w->state : OFF_CPU_UNKNOWN;
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
	struct writer_arg a[12];
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
	/* Who runs while it may not is not why. */
	if (w->other.tid != TL_TID_UNKNOWN && state_of(w) != OFF_CPU_THROTTLED) {
		add_name(&a, d->key_instead, task_name(d, w->other));
		if (is_real(w->other.tid))
			add_uint(&a, d->key_instead_tid, w->other.tid);
	}
	if (!w->stack && (w->brief || l->n_open == 0))
		add_name(&a, d->key_stack, w->brief ? d->brief : d->not_recorded);
	slices_leaf_begin(d->slices, l, w->begin,
			  &(struct writer_event){.name = d->leaf_names[state_of(w)],
						 .category = d->category,
						 .args = a.a,
						 .n_args = a.n});
}

/*
 * When it was woken: from then on it waited for a CPU only. 0: not known, as of one that was woken
 * before it had left, perhaps long before. Who could run on waits for nothing else.
 */
static uint64_t woken_at(const struct wait *w, bool open)
{
	const uint64_t at = w->waker.known ? w->waker.at : 0;

	if (open || w->cut || w->end_unrecorded || off_cpu_is_ready(state_of(w)))
		return 0;
	return at >= w->begin && at <= w->end ? at : 0;
}

static bool is_preempted_by(const struct wait *w)
{
	return state_of(w) == OFF_CPU_PREEMPTED && is_real(w->other.tid) && w->other.name;
}

/*
 * Whether it is known who had the CPU while it waited for one: the last of them, if there were
 * several. The quota of who was throttled may have been there again before.
 */
static bool is_behind(const struct wait *w, bool open)
{
	return (woken_at(w, open) || (state_of(w) == OFF_CPU_THROTTLED && !open)) &&
	       is_real(w->before.tid) && w->before.name;
}

static void sum_up(struct wait_drawer *d, const struct wait *w, bool open, struct wait_who who)
{
	summary_wait(d->summary,
		     &(struct summary_wait){
			     .thread = who.index,
			     .tid = who.tid,
			     .name = writer_name_text(d->w, who.name),
			     .begin = w->begin,
			     .end = w->end,
			     .state = state_of(w),
			     .stack = w->stack,
			     .call = w->call ? writer_name_text(d->w, w->call) : NULL,
			     .fd = w->fd,
			     .futex = w->futex,
			     .fd_kind = w->fd_kind ? writer_name_text(d->w, w->fd_kind) : NULL,
			     .goroutine = w->goroutine,
			     .open = open,
			     .brief = w->brief,
			     .since_before = w->begin_unknown,
			     .uncertain = w->lost_within || w->end_unrecorded || w->cut,
			     .instead_tid = w->other.tid,
			     .instead = is_preempted_by(w) ? writer_name_text(d->w, w->other.name)
							   : NULL,
			     .woken = w->waker.known,
			     .woken_by_irq = w->waker.in_irq,
			     .woken_at = woken_at(w, open),
			     .behind_tid = w->before.tid,
			     .behind = is_behind(w, open) ? writer_name_text(d->w, w->before.name)
							  : NULL,
			     .waker_tid = w->waker.task.tid,
			     .waker_name = writer_name_text(d->w, task_name(d, w->waker.task)),
			     .waker_stack = w->waker.stack,
			     .waker_call = w->waker.call ? writer_name_text(d->w, w->waker.call)
							 : NULL,
		     });
}

static void draw_end(struct wait_drawer *d, struct lane *l, const struct wait *w, bool open)
{
	struct args a = {.n = 0};

	if (w->goroutine)
		add_uint(&a, writer_name(d->w, "goroutine"), w->goroutine);
	if (w->call) {
		add_name(&a, d->key_call, w->call);
		if (w->fd != TL_NO_FD)
			add_uint(&a, d->key_fd, w->fd);
		if (w->fd_kind)
			add_name(&a, d->key_fd_kind, w->fd_kind);
	}
	if (w->waker.known) {
		add_name(&a, d->key_by,
			 w->waker.in_irq ? d->interrupt : task_name(d, w->waker.task));
		if (!w->waker.in_irq && is_real(w->waker.task.tid))
			add_uint(&a, d->key_by_tid, w->waker.task.tid);
	}
	if (woken_at(w, open))
		add_uint(&a, d->key_runnable, w->end - woken_at(w, open));
	if (is_behind(w, open)) {
		add_name(&a, d->key_behind, w->before.name);
		add_uint(&a, d->key_behind_tid, w->before.tid);
	}
	add_uint(&a, d->key_ns, w->whole_ns ? w->whole_ns : w->end - w->begin);
	if (w->begin_unknown && (open || w->cut || w->end_unrecorded))
		add_name(&a, d->key_since, d->before);
	if (open)
		add_name(&a, d->key_note, d->note_open);
	else if (w->cut)
		add_name(&a, d->key_note, d->note_cut);
	else if (w->end_unrecorded)
		add_name(&a, d->key_note, d->note_end);
	else if (w->begin_unknown)
		add_name(&a, d->key_note, d->note_begin);
	else if (w->lost_within)
		add_name(&a, d->key_note, d->note_lost);
	slices_leaf_end(d->slices, l, w->end, &(struct writer_event){.args = a.a, .n_args = a.n});
	if (w->waker.flow && !open && !w->cut)
		slices_instant(d->slices, l, w->end,
			       &(struct writer_event){.name = d->resumed,
						      .category = d->category,
						      .flow_end = w->waker.flow});
}

void waits_begin(struct wait_drawer *d, struct waits *s, struct lane *l, const struct wait *w,
		 bool exact)
{
	if (w != &s->current)
		s->current = *w;
	s->waiting = true;
	/* What was seen of its stack before says nothing of where it waits. */
	if (!w->stack && !exact)
		slices_trim(d->slices, l, 0, s->unseen ? s->unseen : w->begin);
	draw_begin(d, l, w);
}

void waits_begin_hidden(struct waits *s, const struct wait *w)
{
	s->current = *w;
	s->waiting = s->hidden = true;
}

void waits_show(struct wait_drawer *d, struct waits *s, struct lane *l, uint32_t stack, bool exact)
{
	s->hidden = false;
	s->current.stack = stack;
	waits_begin(d, s, l, &s->current, exact);
}

/* Two clocks have measured it: that of the programs in the kernel, and that of the records. */
static bool is_brief(const struct wait_drawer *d, const struct wait *w)
{
	const uint64_t ns = w->end - w->begin;

	return w->stack_later && !w->lost_within && !w->end_unrecorded && !w->cut && d->min_ns &&
	       ns < d->min_ns + (d->min_ns >> 4) + CLOCKS_APART_NS;
}

bool waits_goes_on(const struct waits *s)
{
	const bool elsewhere = s->current.goroutine && s->current.goroutine != s->goroutine;

	return s->current.brief && off_cpu_is_ready(state_of(&s->current)) && !s->unseen &&
	       !elsewhere;
}

static void end(struct wait_drawer *d, struct waits *s, struct lane *l, uint64_t ts, bool open,
		struct wait_who who)
{
	s->waiting = false;
	s->current.end = ts > s->current.begin ? ts : s->current.begin;
	if (s->hidden) {
		s->current.brief = !open && is_brief(d, &s->current);
		/*
		 * Who is preempted goes on where it was: what was seen of its stack before holds as
		 * long as without the wait.
		 */
		waits_show(d, s, l, 0, waits_goes_on(s));
		s->waiting = false;
	}
	draw_end(d, l, &s->current, open);
	sum_up(d, &s->current, open, who);
}

void waits_end(struct wait_drawer *d, struct waits *s, struct lane *l, uint64_t ts,
	       struct wait_who who)
{
	end(d, s, l, ts, false, who);
}

void waits_drop(struct wait_drawer *d, struct waits *s, struct wait_who who)
{
	s->waiting = s->hidden = false;
	s->current.end = s->current.begin;
	sum_up(d, &s->current, false, who);
}

uint32_t waits_state(const struct wait_drawer *d, const struct wait *w)
{
	return d->state_names[state_of(w)];
}

void waits_abandon(struct wait_drawer *d, struct waits *s, struct lane *l, uint64_t ts,
		   struct wait_who who)
{
	if (s->waiting)
		end(d, s, l, ts, true, who);
}
