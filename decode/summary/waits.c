/* SPDX-License-Identifier: Apache-2.0 */
/* The waits of a summary: ranked by place, each place with its longest and who held it up. */
#include "config.h"

#include <string.h>

#include "common/base/waitfor.h"
#include "decode/summary/summary_internal.h"

/* One that may have been shorter than it looks comes after any other. */
bool summary_wait_before(const struct wait_place *a, const struct wait_place *b)
{
	if (a->longest.uncertain != b->longest.uncertain)
		return b->longest.uncertain;
	return a->inside_ns > b->inside_ns;
}

/*
 * Whether two waits with this stack were in the same place, whoever waited: not where callers are
 * missing in it, for what is left may be anybody's way to wait.
 */
static bool is_place(const struct summary *s, uint32_t stack)
{
	for (uint32_t i = stack; i; i = stacktab_parent(s->st, i)) {
		struct frame_info info;

		stacktab_info(s->st, stacktab_leaf(s->st, i), &info);
		if (info.kind == FRAME_KIND_MISSING)
			return false;
	}
	return stack != STACKTAB_ROOT;
}

/* A stack without the kernel's part. */
static uint32_t of_program(const struct summary *s, uint32_t stack)
{
	for (; stack; stack = stacktab_parent(s->st, stack)) {
		struct frame_info info;

		stacktab_info(s->st, stacktab_leaf(s->st, stack), &info);
		if (info.kind != FRAME_KIND_KERNEL)
			break;
	}
	return stack;
}

/* What the kernel did may be known of one of them only: of a copied stack, say, it is not. */
static bool is_same_place(const struct summary *s, uint32_t a, uint32_t b)
{
	uint32_t program;

	if (a == b)
		return true;
	program = of_program(s, a);
	return program && (program == a || program == b) && program == of_program(s, b);
}

/*
 * The wait of `tid` for the same lock as `w`, or, where that is not known, in the same place, that
 * ended within it, if a thread ended it; or NULL. Of those remembered the first *back are not
 * looked at, which ended after what is looked for.
 */
static const struct summary_wait *recent_find(const struct summary *s, const struct summary_wait *w,
					      uint32_t tid, uint64_t before, uint32_t *back)
{
	uint32_t n = s->n_recent < RECENT_WAITS ? s->n_recent : RECENT_WAITS;

	while (*back < n) {
		const struct summary_wait *r = &s->recent[(s->n_recent - ++*back) % RECENT_WAITS];

		if (r->tid == tid &&
		    (w->futex ? r->futex == w->futex : is_same_place(s, r->stack, w->stack)) &&
		    r->end > w->begin && r->end < before)
			return r;
	}
	return NULL;
}

/* Whether waits that ended within `w` are no longer remembered. */
static bool is_forgotten(const struct summary *s, const struct summary_wait *w)
{
	return s->n_recent > RECENT_WAITS && s->recent[s->n_recent % RECENT_WAITS].end > w->begin;
}

/*
 * What the functions that it waits in say it is for. The lock of CPython's interpreter is one,
 * though it is made of a condition. Of a wait in a system call that is for no lock nobody asks.
 */
static enum waitfor waits_for(const struct summary *s, const struct summary_wait *w)
{
	const char *names[WAITFOR_FRAMES];
	size_t n = 0;

	if (!off_cpu_is_ready(w->state) && !waitfor_may_lock(w->call))
		return WAITFOR_UNKNOWN;
	for (uint32_t i = of_program(s, w->stack); i && n < WAITFOR_FRAMES;
	     i = stacktab_parent(s->st, i)) {
		struct frame_info info;

		stacktab_info(s->st, stacktab_leaf(s->st, i), &info);
		names[n++] = info.name;
	}
	return waitfor_functions(names, n);
}

/* Who was preempted there waits for nothing, for the moment. */
static bool is_gil_wait(const struct summary_wait *w)
{
	return !off_cpu_is_ready(w->state) && waitfor_may_lock(w->call) &&
	       w->is_for == WAITFOR_INTERPRETER;
}

/*
 * Whether who ended the wait may have handed on what it waited for: who is not in futex() himself
 * (but in kill(), say) has ended one in futex() without.
 */
static bool is_handed_on(const struct summary_wait *w)
{
	return w->woken && !w->woken_by_irq && waitfor_may_lock(w->call) &&
	       waitfor_may_release(w->call, w->waker_call) && w->is_for != WAITFOR_POST;
}

/* When who ended it let go. */
static uint64_t released_at(const struct summary_wait *w)
{
	return w->woken_at ? w->woken_at : w->end;
}

/* Whether the thread has waited for a monitor, perhaps this one, and had it from within `w` on. */
static bool has_entered(const struct summary *s, const struct summary_wait *w, uint32_t tid)
{
	const uint32_t n = s->n_recent < RECENT_WAITS ? s->n_recent : RECENT_WAITS;

	for (uint32_t i = 1; i <= n; i++) {
		const struct summary_wait *r = &s->recent[(s->n_recent - i) % RECENT_WAITS];

		if (r->end <= w->begin)
			break;
		if (r->tid == tid && r->is_for == WAITFOR_MONITOR)
			return true;
	}
	return is_forgotten(s, w);
}

/*
 * Threads that queue for a lock wake each other, one by one; who ended a wait may have queued
 * itself all the time. So the waits for the same lock are followed back to who had not. Each had it
 * from the end of its own wait on.
 */
static struct wait_holder find_holder(const struct summary *s, const struct summary_wait *w)
{
	struct wait_holder h = {.tid = w->waker_tid,
				.stack = w->waker_stack,
				.name = w->waker_name};
	uint64_t before = released_at(w), longest_ns = 0;
	uint32_t back = 0;

	/* decode/summary/gil.c says it, when all is known */
	h.of_gil = is_gil_wait(w);
	if (h.of_gil || !is_handed_on(w) || (!w->futex && !is_place(s, w->stack)))
		return h;
	if (w->is_for == WAITFOR_MONITOR) {
		h.cut = has_entered(s, w, h.tid);
		return h;
	}
	for (;;) {
		const struct summary_wait *r = recent_find(s, w, h.tid, before, &back);
		uint64_t from, ns;

		h.cut = !r && is_forgotten(s, w);
		if (h.cut)
			return h;
		/* Nobody waits for a lock that he holds. */
		if (r && r->waker_tid == w->tid)
			r = NULL;
		/*
		 * It may have been let go before this wait began, and who waited for it had no CPU.
		 */
		from = r ? r->end : w->begin;
		ns = before > from ? before - from : 0;
		if (ns >= longest_ns) {
			longest_ns = ns;
			h.longest.tid = h.tid;
			h.longest.stack = h.stack;
			h.longest.name = h.name;
			h.longest.ns = r ? ns : 0;
		}
		if (!r)
			return h;
		h.tid = r->waker_tid;
		h.stack = r->waker_stack;
		h.name = r->waker_name;
		h.handovers++;
		before = released_at(r);
	}
}

/* The wait as the only one of its place; false if no part of it is in the window. */
static bool wait_place(const struct summary_wait *w, uint64_t from, uint64_t to,
		       struct wait_place *ret)
{
	const uint64_t begin = w->begin > from ? w->begin : from, end = w->end < to ? w->end : to;

	*ret = (struct wait_place){.longest = *w,
				   .inside_ns = end > begin ? end - begin : 0,
				   .count = 1,
				   .total_ns = w->end - w->begin};
	return ret->inside_ns > 0;
}

bool summary_wait_within(const struct summary *s, const struct summary_wait *w, uint64_t from,
			 uint64_t to, struct wait_place *ret)
{
	if (!wait_place(w, from, to, ret))
		return false;
	ret->holder = find_holder(s, w);
	return true;
}

/*
 * It waits for somebody: a thread has ended it, or it is for a lock that nobody has given back yet.
 */
static bool is_for_thread(const struct summary_wait *w)
{
	if (w->open)
		return waitfor_is_file_lock(w->call) ||
		       (waitfor_may_lock(w->call) && waitfor_is_lock(w->is_for));
	return w->woken && !w->woken_by_irq;
}

/* Who may not run has another reason than who waits there otherwise. */
static bool is_alike(const struct summary *s, const struct summary_wait *a,
		     const struct summary_wait *b)
{
	return is_same_place(s, a->stack, b->stack) && a->brief == b->brief &&
	       (a->state == OFF_CPU_THROTTLED) == (b->state == OFF_CPU_THROTTLED);
}

/*
 * An idle thread waits again and again in the same place, and longer than any wait that matters:
 * so waits are ranked by place, each with its longest.
 */
static void add_wait(const struct summary *s, struct window *v, const struct summary_wait *w)
{
	struct waits_ranking *k = &v->waits[is_for_thread(w) ? WAITS_FOR_THREAD : WAITS_OTHER];
	const bool place = is_place(s, w->stack);
	struct wait_place p;
	uint32_t i;

	if (!wait_place(w, v->from, v->to, &p))
		return;
	if (w->state == OFF_CPU_THROTTLED && !w->uncertain) {
		v->throttled_waits++;
		v->throttled_ns += p.inside_ns;
	}
	for (i = 0; i < k->n; i++)
		if (is_alike(s, &k->places[i].longest, w) &&
		    (place || k->places[i].longest.thread == w->thread))
			break;
	if (i < k->n) {
		k->places[i].count++;
		k->places[i].total_ns += p.total_ns;
		if (!summary_wait_before(&p, &k->places[i]))
			return;
		p.count = k->places[i].count;
		p.total_ns = k->places[i].total_ns;
	} else if (k->n < KEPT_WAITS) {
		k->n++;
	} else if (!summary_wait_before(&p, &k->places[--i])) {
		return;
	}
	p.holder = find_holder(s, w);
	for (; i > 0 && summary_wait_before(&p, &k->places[i - 1]); i--)
		k->places[i] = k->places[i - 1];
	k->places[i] = p;
}

static void add_whole(struct summary *s, const struct summary_wait *w)
{
	add_wait(s, &s->all, w);
	if (s->has_focus)
		add_wait(s, &s->focus, w);
	if (is_focus_thread(s, w->thread))
		add_wait(s, &s->region.own, w);
	if (is_handed_on(w) && (w->stack || w->futex) && !is_gil_wait(w))
		s->recent[s->n_recent++ % RECENT_WAITS] = *w;
}

/*
 * Who wants CPython's interpreter waits for its lock for some ms, asks its holder to hand it on,
 * and waits again: hundreds of waits, each ended by a timer, for one lock. So one that a timer ends
 * is kept back until it is known whether it goes on.
 */
static bool may_go_on(const struct summary_wait *w)
{
	return w->woken && w->woken_by_irq && !w->open && w->stack && waitfor_may_lock(w->call) &&
	       waitfor_is_lock(w->is_for);
}

static bool goes_on(const struct summary_wait *before, uint64_t until, const struct summary_wait *w)
{
	return before->thread == w->thread && before->stack == w->stack && w->begin >= until &&
	       w->begin - until <= RETRY_NS;
}

/*
 * Whether it was preempted in the moment between two: there, or, where its stack is not recorded,
 * perhaps.
 */
static bool is_between(const struct summary_wait *before, uint64_t until,
		       const struct summary_wait *w)
{
	return before->thread == w->thread && off_cpu_is_ready(w->state) && w->begin >= until &&
	       w->begin - until <= RETRY_NS && (w->stack ? waitfor_is_lock(w->is_for) : w->brief);
}

/* When others have it, and who it may be: who waits for it has it not. */
static void follow_gil(struct summary *s, const struct summary_wait *w)
{
	struct gil *g = &s->gil;

	if (is_gil_wait(w)) {
		summary_gil_begin(g, w->end); /* what was before is not kept */
	} else if (off_cpu_is_ready(w->state) && w->is_for != WAITFOR_INTERPRETER) {
		summary_gil_active(g, w->thread, w->begin, w->end);
		summary_gil_sight(g, w->thread, w->begin, of_program(s, w->stack),
				  w->end - w->begin);
	}
}

void summary_wait(struct summary *s, const struct summary_wait *wait)
{
	struct summary_wait *kept = &s->kept_back[wait->thread % KEPT_BACK].wait, w = *wait, whole;
	uint64_t *until = &s->kept_back[wait->thread % KEPT_BACK].until;

	w.is_for = waits_for(s, &w);
	whole = w;
	summary_regions_wait(s, &w);
	follow_gil(s, &w);
	if (kept->tid && is_between(kept, *until, &w)) {
		add_whole(s, &w);
		*until = w.end;
		return;
	}
	if (kept->tid && goes_on(kept, *until, &w)) {
		summary_gil_inactive(&s->gil, w.thread, kept->end);
		whole.begin = kept->begin;
		whole.since_before |= kept->since_before;
		whole.uncertain |= kept->uncertain;
	} else if (kept->tid) {
		add_whole(s, kept);
	}
	kept->tid = 0;
	*until = whole.end;
	if (may_go_on(&whole))
		*kept = whole;
	else
		add_whole(s, &whole);
}

void summary_waits_finish(struct summary *s)
{
	for (uint32_t i = 0; i < KEPT_BACK; i++) {
		if (s->kept_back[i].wait.tid)
			add_whole(s, &s->kept_back[i].wait);
		s->kept_back[i].wait.tid = 0;
	}
}
