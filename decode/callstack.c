// SPDX-License-Identifier: Apache-2.0
#include "decode/callstack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PARKED 64u	    /* pieces of stacks that may go on */
#define MAX_PARKED_DEPTH 256u
#define MAX_SETJMPS 64u

struct frame {
	uint64_t back; /* where it returns to; 0: not known */
	const struct callfunc *f;
	uint64_t ip;	 /* an address in it */
	uint64_t resume; /* of a signal handler: what it interrupted; else 0 */
	bool pending;	 /* a PLT entry: it begins when it is known who it stands for */
	bool tail;	 /* by a jump */
	bool is_signal;
	bool is_base;	 /* another stack begins here, on top of the one that switched to it */
	bool inner;	 /* called within its own function: half of a jump by push and ret, perhaps */
	uint64_t site;
};

/* Frames that ended although they did not return: the stack of a coroutine, perhaps. */
struct parked {
	struct frame *frames; /* the outermost first */
	uint32_t n;
	uint64_t age;
};

struct setjmp_point {
	uint64_t back;
	uint32_t depth; /* of the frame that called setjmp: its index + 1 */
};

struct callstack {
	struct callstack_ops ops;
	void *arg;
	struct frame *frames;
	uint32_t n, room;
	uint64_t over; /* calls beyond the deepest frame that is kept */
	struct frame *before; /* the gap: a hypothesis */
	uint32_t n_before;
	uint32_t believed; /* so many frames, the outermost, are from before the gap, and no return has proven them */
	struct parked parked[MAX_PARKED];
	uint32_t n_parked;
	uint64_t clock;
	struct setjmp_point setjmps[MAX_SETJMPS];
	uint32_t next_setjmp;
	bool is_new; /* nothing came before what is resumed next */
	bool hidden; /* the parent's frames: nobody has seen the child run yet */
	/* where it stopped */
	bool stopped, in_gap;
	uint64_t stop_ip, stop_back;
	struct callstack_stats stats;
};

int callstack_new(const struct callstack_ops *ops, void *arg, struct callstack **ret)
{
	struct callstack *cs = calloc(1, sizeof(*cs));

	if (!cs)
		return -ENOMEM;
	cs->ops = *ops;
	cs->arg = arg;
	*ret = cs;
	return 0;
}

struct callstack *callstack_free(struct callstack *cs)
{
	if (!cs)
		return NULL;
	for (uint32_t i = 0; i < cs->n_parked; i++)
		free(cs->parked[i].frames);
	free(cs->before);
	free(cs->frames);
	free(cs);
	return NULL;
}

uint32_t callstack_depth(const struct callstack *cs)
{
	return cs->n;
}

const struct callstack_stats *callstack_stats(const struct callstack *cs)
{
	return &cs->stats;
}

void callstack_begin(struct callstack *cs)
{
	cs->is_new = true;
}

static int copy_frames(struct frame **ret, const struct frame *frames, uint32_t n)
{
	struct frame *v = n ? malloc(n * sizeof(*v)) : NULL;

	if (n && !v)
		return -ENOMEM;
	if (n)
		memcpy(v, frames, n * sizeof(*v));
	free(*ret);
	*ret = v;
	return 0;
}

int callstack_fork(struct callstack *cs, const struct callstack *parent)
{
	int r = copy_frames(&cs->frames, parent->frames, parent->n);

	if (r < 0)
		return r;
	cs->n = cs->room = parent->n;
	cs->hidden = true;
	r = copy_frames(&cs->before, parent->before, parent->n_before);
	if (r < 0)
		return r;
	cs->n_before = parent->n_before;
	for (uint32_t i = 0; i < parent->n_parked; i++) {
		const struct parked *p = &parent->parked[i];
		struct parked *mine = &cs->parked[cs->n_parked];

		*mine = (struct parked){.n = p->n, .age = p->age};
		r = copy_frames(&mine->frames, p->frames, p->n);
		if (r < 0)
			return r;
		cs->n_parked++;
	}
	memcpy(cs->setjmps, parent->setjmps, sizeof(cs->setjmps));
	cs->next_setjmp = parent->next_setjmp;
	cs->clock = parent->clock;
	cs->over = parent->over;
	cs->stopped = parent->stopped;
	cs->in_gap = parent->in_gap;
	cs->stop_ip = parent->stop_ip;
	cs->stop_back = parent->stop_back;
	return 0;
}

size_t callstack_size(const struct callstack *cs)
{
	size_t n = (size_t)cs->n + cs->n_before;

	for (uint32_t i = 0; i < cs->n_parked; i++)
		n += cs->parked[i].n;
	return n * sizeof(struct frame);
}

/* ---- frames */

static const struct callfunc *function(struct callstack *cs, uint64_t ip, bool *ret_first)
{
	bool first = false;
	const struct callfunc *f = cs->ops.function(cs->arg, ip, &first);

	if (ret_first)
		*ret_first = first && f->known;
	return f;
}

static struct frame *top(struct callstack *cs)
{
	return cs->n ? &cs->frames[cs->n - 1] : NULL;
}

static struct callstack_frame told(const struct frame *fr)
{
	return (struct callstack_frame){.f = fr->f, .ip = fr->ip, .site = fr->site};
}

static void draw(struct callstack *cs, uint64_t time, const struct frame *fr, enum callstack_why why)
{
	const struct callstack_frame t = told(fr);

	cs->ops.begin(cs->arg, time, &t, why);
}

static bool keep(struct callstack *cs, const struct frame *fr)
{
	if (cs->over || cs->n == CALLSTACK_MAX_DEPTH) {
		cs->over++;
		cs->stats.too_deep++;
		return false;
	}
	if (cs->n == cs->room) {
		const uint32_t room = cs->room ? cs->room * 2 : 64;
		struct frame *v = reallocarray(cs->frames, room, sizeof(*v));

		if (!v) {
			cs->over++;
			cs->stats.too_deep++;
			return false;
		}
		cs->frames = v;
		cs->room = room;
	}
	cs->frames[cs->n++] = *fr;
	return true;
}

static void push(struct callstack *cs, uint64_t time, const struct frame *fr, enum callstack_why why)
{
	if (keep(cs, fr) && !fr->pending)
		draw(cs, time, fr, why);
}

/* It was there already, around everything since the stack was found. */
static void push_outside(struct callstack *cs, uint64_t time, const struct frame *fr, uint32_t more, enum callstack_why why)
{
	const struct callstack_frame t = told(fr);

	if (!keep(cs, fr) || fr->pending)
		return;
	if (cs->ops.outside)
		cs->ops.outside(cs->arg, time, &t, more, why);
	else
		cs->ops.begin(cs->arg, time, &t, why);
}

static void pop(struct callstack *cs, uint64_t time, uint32_t n, enum callstack_why why)
{
	uint32_t drawn = 0;

	for (uint32_t i = 0; i < n; i++)
		drawn += !cs->frames[cs->n - 1 - i].pending;
	cs->n -= n;
	if (cs->believed > cs->n)
		cs->believed = cs->n;
	if (drawn)
		cs->ops.end(cs->arg, time, drawn, why);
}

/* The frame on top is another function's now. */
static void replace(struct callstack *cs, uint64_t time, const struct callfunc *f, uint64_t ip, uint64_t site)
{
	struct frame fr = *top(cs);

	pop(cs, time, 1, CALLSTACK_TAIL);
	if (!fr.pending) {
		fr.tail = true;
		fr.site = site;
	}
	fr.f = f;
	fr.ip = ip;
	fr.pending = f->is_plt;
	push(cs, time, &fr, fr.tail ? CALLSTACK_TAIL : CALLSTACK_CALL);
}

/* The first frame of what is known. */
static void base(struct callstack *cs, uint64_t time, uint64_t ip, enum callstack_why why)
{
	const struct frame fr = {.f = function(cs, ip, NULL), .ip = ip};

	push(cs, time, &fr, why);
}

/* The last frame that was known has returned to there: so that was around it. */
static void caller(struct callstack *cs, uint64_t time, uint64_t ip)
{
	const struct frame fr = {.f = function(cs, ip, NULL), .ip = ip};

	push_outside(cs, time, &fr, 0, CALLSTACK_FOUND);
	cs->stats.inferred++;
}

/* A forked process runs: what its parent was in when it was forked, it is in. */
static void show(struct callstack *cs, uint64_t time)
{
	if (!cs->hidden)
		return;
	cs->hidden = false;
	for (uint32_t i = 0; i < cs->n; i++)
		if (!cs->frames[i].pending)
			draw(cs, time, &cs->frames[i], CALLSTACK_FORKED);
}

/* ---- what was parked */

static void park_drop(struct callstack *cs, uint32_t i)
{
	free(cs->parked[i].frames);
	cs->parked[i] = cs->parked[--cs->n_parked];
}

static void park(struct callstack *cs, const struct frame *frames, uint32_t n)
{
	struct parked *p;
	uint32_t oldest = 0;

	if (n == 0 || n > MAX_PARKED_DEPTH)
		return;
	if (cs->n_parked == MAX_PARKED) {
		for (uint32_t i = 1; i < cs->n_parked; i++)
			if (cs->parked[i].age < cs->parked[oldest].age)
				oldest = i;
		park_drop(cs, oldest);
	}
	p = &cs->parked[cs->n_parked];
	p->frames = malloc(n * sizeof(*frames));
	if (!p->frames)
		return;
	memcpy(p->frames, frames, n * sizeof(*frames));
	p->n = n;
	p->age = ++cs->clock;
	cs->n_parked++;
}

/* The index of the frame that is the base of another stack than the thread's own, or -1. */
static int64_t find_base(const struct callstack *cs)
{
	for (uint32_t i = 0; i < cs->n; i++)
		if (cs->frames[i].is_base)
			return i;
	return -1;
}

/*
 * Another stack takes the place of the one that runs, or stands on top of the thread's own: what called the switch (the frame on
 * top) is called by what goes on there, as far as a tree of calls can say it. Returns where the new base returns to.
 */
static uint64_t leave_stack(struct callstack *cs, uint64_t time)
{
	const int64_t at = find_base(cs);
	const uint32_t from = at >= 0 ? (uint32_t)at : cs->n - 1;
	const uint64_t back = cs->frames[from].back;

	if (at >= 0)
		park(cs, cs->frames + from, cs->n - from);
	pop(cs, time, cs->n - from, CALLSTACK_UNWOUND);
	return back;
}

/* What was parked as piece `i` goes on, but for its frames from `k`, the call that returns. */
static void go_on(struct callstack *cs, uint64_t time, uint32_t i, uint32_t k)
{
	struct frame *frames = cs->parked[i].frames;
	const uint32_t n = cs->parked[i].n;

	cs->parked[i] = cs->parked[--cs->n_parked];
	if (k + 1 < n)
		park(cs, frames + k + 1, n - k - 1);
	if (frames[0].is_base)
		frames[0].back = leave_stack(cs, time);
	for (uint32_t j = 0; j < k; j++)
		push(cs, time, &frames[j], CALLSTACK_RESUMED);
	free(frames);
	cs->stats.switches++;
}

/*
 * A parked stack whose innermost call, or one of whose calls, returns to `to`: what is outside of that call goes on. Of stacks that wait at the same
 * place the one that waits longest: they are asked in turn more often than not, and the next return outward tells.
 */
static bool unpark_waiting(struct callstack *cs, uint64_t time, uint64_t to)
{
	int64_t best = -1;

	for (uint32_t i = 0; i < cs->n_parked; i++) {
		const struct parked *p = &cs->parked[i];

		if (p->n > 1 && p->frames[0].is_base && p->frames[p->n - 1].back == to &&
			(best < 0 || p->age < cs->parked[best].age))
			best = i;
	}
	if (best >= 0)
		go_on(cs, time, (uint32_t)best, cs->parked[best].n - 1);
	return best >= 0;
}

static bool unpark(struct callstack *cs, uint64_t time, uint64_t to)
{
	if (unpark_waiting(cs, time, to))
		return true;
	for (uint32_t i = cs->n_parked; i > 0; i--)
		for (uint32_t k = cs->parked[i - 1].n; k > 1; k--)
			if (cs->parked[i - 1].frames[k - 1].back == to) {
				go_on(cs, time, i - 1, k - 1);
				return true;
			}
	return false;
}

/* ---- rules */

/*
 * The index of the innermost frame of this function that is not on top, or -1. Where its calls are unwound to `pad`: of the
 * innermost whose call that is.
 */
static int64_t find_function(struct callstack *cs, const struct callfunc *f, uint64_t pad)
{
	int64_t innermost = -1;

	if (!f->known)
		return -1;
	for (uint32_t i = cs->n - 1; i > 0; i--) {
		if (cs->frames[i - 1].f != f)
			continue;
		if (cs->frames[i].back && cs->ops.lands(cs->arg, cs->frames[i].back - 1, pad))
			return i - 1;
		if (innermost < 0)
			innermost = i - 1;
	}
	return innermost;
}

static void unwind_to(struct callstack *cs, uint64_t time, uint32_t keep)
{
	cs->stats.unwound++;
	cs->stats.skipped += cs->n - keep;
	pop(cs, time, cs->n - keep, CALLSTACK_UNWOUND);
}

static bool to_setjmp(struct callstack *cs, uint64_t time, uint64_t to)
{
	for (uint32_t i = 0; i < MAX_SETJMPS; i++) {
		const struct setjmp_point *s = &cs->setjmps[(cs->next_setjmp - 1 - i) % MAX_SETJMPS];

		if (s->back != to || s->depth == 0 || s->depth > cs->n ||
			cs->frames[s->depth - 1].f != function(cs, to, NULL))
			continue;
		unwind_to(cs, time, s->depth);
		return true;
	}
	return false;
}

void callstack_call(struct callstack *cs, uint64_t time, uint64_t from, uint64_t back, uint64_t to)
{
	struct frame fr = {.back = back, .site = from, .ip = to};
	const struct callfunc *f;
	bool first;

	if (to == back)
		return; /* to learn its own address */
	show(cs, time);
	if (cs->n == 0)
		base(cs, time, from, CALLSTACK_FOUND);
	f = function(cs, to, &first);
	fr.f = f;
	fr.pending = f->is_plt;
	fr.inner = !first && cs->n && top(cs)->f == f;
	cs->stats.calls++;
	if (f->is_setjmp && !cs->over) {
		cs->setjmps[cs->next_setjmp % MAX_SETJMPS] = (struct setjmp_point){.back = back, .depth = cs->n};
		cs->next_setjmp++;
	}
	push(cs, time, &fr, CALLSTACK_CALL);
}

/* What leaves the frame on top says that it is another call than the one from before the gap, which it was taken for. */
static bool is_disproven(const struct callstack *cs)
{
	return cs->believed && cs->believed == cs->n && !cs->frames[cs->n - 1].f->is_switch;
}

/* None of the frames from before the gap is known to be around `to`: they may be outside of it, as before any gap. */
static void disprove(struct callstack *cs, uint64_t time, uint64_t to)
{
	const uint32_t n = cs->n;

	cs->stats.adopted -= n;
	cs->stats.skipped += n;
	cs->stats.inferred++;
	pop(cs, time, n, CALLSTACK_UNWOUND);
	cs->n_before = n; /* what is in before[] still */
	base(cs, time, to, CALLSTACK_FOUND);
}

/* A return that leaves the outermost frame of which it is known where it returns to. */
static void return_outward(struct callstack *cs, uint64_t time, uint64_t to)
{
	uint32_t more = 0;

	if (is_disproven(cs)) {
		disprove(cs, time, to);
		return;
	}

	for (uint32_t k = cs->n_before; k > 0; k--) {
		if (cs->before[k - 1].back != to)
			continue;
		/* Proven: what was outside of it before the gap is outside of it still. */
		pop(cs, time, cs->n, CALLSTACK_CALL);
		for (uint32_t j = 0; j + 1 < k; j++)
			more += !cs->before[j].pending;
		for (uint32_t j = 0; j + 1 < k; j++) {
			more -= !cs->before[j].pending;
			push_outside(cs, time, &cs->before[j], more, CALLSTACK_GAP);
		}
		cs->stats.adopted += k - 1;
		cs->n_before = 0;
		if (cs->n == 0)
			caller(cs, time, to);
		return;
	}
	pop(cs, time, cs->n, CALLSTACK_CALL);
	caller(cs, time, to);
}

/* To where an outer frame returns to: everything inside of it ends. It may go on: a stack that was left. */
static bool to_outer(struct callstack *cs, uint64_t time, uint64_t to)
{
	const bool wrong = is_disproven(cs);

	for (uint32_t i = cs->n - 1; i > 0; i--) {
		const uint32_t left = cs->frames[i - 1].is_base ? i - 1 : i;

		if (cs->frames[i - 1].back != to)
			continue;
		if (wrong) {
			cs->stats.adopted -= cs->n - i;
			cs->believed = 0; /* the others are proven */
		} else {
			park(cs, cs->frames + left, cs->n - left);
			cs->stats.switches++;
		}
		cs->stats.skipped += cs->n - i;
		pop(cs, time, cs->n - (i - 1), CALLSTACK_UNWOUND);
		if (cs->n == 0)
			caller(cs, time, to);
		return true;
	}
	return false;
}

/* What is there is on a stack that nobody has seen: it begins here, on top of the thread's own, or in place of another one there. */
static void to_other_stack(struct callstack *cs, uint64_t time, uint64_t from, uint64_t to, const struct callfunc *f)
{
	struct frame fr = {.f = f, .ip = to, .pending = f->is_plt, .tail = true, .is_base = true, .site = from};

	if (find_base(cs) < 0) {
		replace(cs, time, f, to, from);
		top(cs)->is_base = true;
		return;
	}
	fr.back = leave_stack(cs, time);
	cs->stats.switches++;
	push(cs, time, &fr, CALLSTACK_TAIL);
}

/* A return to a function's first instruction: a jump made of push and ret, or the first switch to a stack of its own. */
static void to_first(struct callstack *cs, uint64_t time, uint64_t from, uint64_t to, const struct callfunc *f)
{
	cs->stats.tails++;
	if (top(cs)->inner && cs->n > 1) {
		/* a thunk that calls itself to put the address on the stack */
		pop(cs, time, 1, CALLSTACK_TAIL);
		replace(cs, time, f, to, from);
		return;
	}
	to_other_stack(cs, time, from, to, f);
}

/* Out of the outermost frame that is known of another stack: its caller shows itself, on that stack. */
static void caller_there(struct callstack *cs, uint64_t time, uint64_t to, const struct callfunc *f)
{
	const struct frame fr = {.f = f, .ip = to, .back = top(cs)->back, .is_base = true};

	pop(cs, time, 1, CALLSTACK_CALL);
	push(cs, time, &fr, CALLSTACK_FOUND);
	cs->stats.inferred++;
}

void callstack_return(struct callstack *cs, uint64_t time, uint64_t from, uint64_t to)
{
	const struct callfunc *f;
	bool first;
	int64_t at;

	cs->stats.returns++;
	show(cs, time);
	if (cs->over) {
		cs->over--;
		return;
	}
	if (cs->n == 0) {
		base(cs, time, to, CALLSTACK_FOUND);
		return;
	}
	if (top(cs)->back == to) {
		/* What switches stacks does not come back to its caller while another stack waits at the same place. */
		if (top(cs)->f->is_switch && find_base(cs) >= 0 && unpark_waiting(cs, time, to))
			return;
		if (cs->believed == cs->n)
			cs->believed = 0;
		pop(cs, time, 1, CALLSTACK_CALL);
		if (cs->n == 0)
			caller(cs, time, to);
		return;
	}
	if (to_outer(cs, time, to) || unpark(cs, time, to))
		return;
	f = function(cs, to, &first);
	if (!first && to_setjmp(cs, time, to))
		return; /* getcontext and setcontext */
	at = find_function(cs, f, to);
	if (at >= 0 && !first) {
		unwind_to(cs, time, (uint32_t)at + 1);
		return;
	}
	if (top(cs)->is_signal) {
		replace(cs, time, f, to, from); /* to what asks the kernel to end it */
		return;
	}
	if (first) {
		to_first(cs, time, from, to, f);
		return;
	}
	if (top(cs)->is_base && cs->n > 1) {
		caller_there(cs, time, to, f);
		return;
	}
	if (cs->frames[0].back == 0) {
		return_outward(cs, time, to);
		return;
	}
	cs->stats.unexplained++;
	cs->stats.skipped += cs->n;
	pop(cs, time, cs->n, CALLSTACK_UNWOUND);
	base(cs, time, to, CALLSTACK_FOUND);
}

void callstack_jump(struct callstack *cs, uint64_t time, uint64_t from, uint64_t to, bool indirect)
{
	const struct callfunc *of, *f;
	bool first;
	int64_t at;

	if (cs->over)
		return;
	show(cs, time);
	if (cs->n == 0) {
		base(cs, time, to, CALLSTACK_FOUND);
		return;
	}
	f = function(cs, to, &first);
	of = top(cs)->f;
	if (f == of)
		return;
	/* Out of a stub; or by one, to a function whose name it is not. */
	if (top(cs)->pending || f->is_plt) {
		replace(cs, time, f, to, from);
		return;
	}
	if (first) {
		cs->stats.tails++;
		if (of->is_switch && !f->is_switch) /* not to its second half */
			to_other_stack(cs, time, from, to, f);
		else
			replace(cs, time, f, to, from);
		return;
	}
	/* A return made of pop and jmp, as libraries of coroutines do. */
	if (top(cs)->back == to) {
		pop(cs, time, 1, CALLSTACK_CALL);
		if (cs->n == 0)
			caller(cs, time, to);
		return;
	}
	if (to_outer(cs, time, to) || to_setjmp(cs, time, to))
		return;
	at = find_function(cs, f, to);
	if (at >= 0) {
		unwind_to(cs, time, (uint32_t)at + 1);
		return;
	}
	if (unpark(cs, time, to))
		return;
	/*
	 * Into the middle of something that nobody has called: where the code itself says so, it is shared (mempcpy goes on in
	 * memmove); or it has no names. Else it is another stack, which was left where nobody saw it: by another thread, say.
	 */
	if (indirect && f->known && of->known) {
		cs->stats.unexplained++;
		to_other_stack(cs, time, from, to, f);
		return;
	}
	cs->stats.tails++;
	replace(cs, time, f, to, from);
}

void callstack_stop(struct callstack *cs, uint64_t time, uint64_t ip, uint64_t back)
{
	(void)time;
	cs->stopped = true;
	cs->stop_ip = ip;
	cs->stop_back = back;
}

void callstack_resume(struct callstack *cs, uint64_t time, uint64_t ip)
{
	const bool was_stopped = cs->stopped;
	const struct callfunc *f;
	struct frame fr;
	bool first;

	cs->stopped = false;
	if (cs->in_gap) {
		callstack_found(cs, time, ip);
		return;
	}
	show(cs, time);
	if (cs->n == 0) {
		base(cs, time, ip, cs->is_new ? CALLSTACK_CALL : CALLSTACK_FOUND);
		cs->is_new = false;
		return;
	}
	/* a handler that was interrupted where it asks to be ended, by another one that has asked there: that one ends */
	if (was_stopped && cs->stop_back && top(cs)->is_signal && top(cs)->resume == ip) {
		pop(cs, time, 1, CALLSTACK_SIGNAL);
		return;
	}
	if (was_stopped && (ip == cs->stop_ip || ip == cs->stop_back))
		return;
	/* back from a handler: the innermost that interrupted this place, or its system call */
	for (uint32_t i = cs->n; i > 0; i--) {
		const struct frame *s = &cs->frames[i - 1];

		if (!s->is_signal || (s->resume != ip && s->back != ip))
			continue;
		pop(cs, time, cs->n - (i - 1), CALLSTACK_SIGNAL);
		return;
	}
	f = function(cs, ip, &first);
	if (was_stopped && first) {
		/* `back`: a system call that was interrupted ends behind itself, or is made again. */
		fr = (struct frame){.f = f, .ip = ip, .resume = cs->stop_ip, .back = cs->stop_back, .is_signal = true};
		cs->stats.signals++;
		push(cs, time, &fr, CALLSTACK_SIGNAL);
		return;
	}
	/* elsewhere: as if it had jumped */
	callstack_jump(cs, time, cs->stop_ip, ip, true);
}

/* All frames end. */
static void drop(struct callstack *cs, uint64_t time)
{
	if (cs->hidden)
		cs->n = cs->believed = 0; /* nobody has seen them */
	pop(cs, time, cs->n, CALLSTACK_GAP);
	cs->over = 0;
	cs->hidden = false;
}

void callstack_gap(struct callstack *cs, uint64_t time)
{
	if (cs->n && !cs->in_gap) {
		struct frame *v = malloc(cs->n * sizeof(*v));

		free(cs->before);
		cs->before = v;
		cs->n_before = v ? cs->n : 0;
		if (v)
			memcpy(v, cs->frames, cs->n * sizeof(*v));
		if (v && v[cs->n - 1].pending)
			cs->n_before--;
	}
	drop(cs, time);
	cs->is_new = false;
	cs->in_gap = true;
	cs->stopped = false;
}

void callstack_found(struct callstack *cs, uint64_t time, uint64_t ip)
{
	const struct callfunc *f = function(cs, ip, NULL);

	if (cs->hidden) /* the parent's: as good as what was before a gap */
		callstack_gap(cs, time);

	cs->in_gap = false;
	cs->stopped = false;
	cs->is_new = false;
	drop(cs, time);
	/*
	 * In a function that was running when the gap began: it is the same call more often than not; a
	 * return will tell. A frame deeper than that is as likely to be another call.
	 */
	if (cs->n_before && cs->before[cs->n_before - 1].f == f && f->known) {
		for (uint32_t j = 0; j < cs->n_before; j++)
			push(cs, time, &cs->before[j], CALLSTACK_GAP);
		cs->stats.adopted += cs->n_before;
		cs->believed = cs->n;
		cs->n_before = 0;
		return;
	}
	base(cs, time, ip, CALLSTACK_FOUND);
}

void callstack_finish(struct callstack *cs, uint64_t time)
{
	drop(cs, time);
	free(cs->frames);
	free(cs->before);
	cs->frames = cs->before = NULL;
	cs->room = cs->n_before = 0;
	cs->stopped = cs->in_gap = cs->is_new = false;
	for (uint32_t i = 0; i < MAX_SETJMPS; i++)
		cs->setjmps[i].depth = 0;
	while (cs->n_parked)
		park_drop(cs, 0);
}
