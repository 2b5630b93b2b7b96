// SPDX-License-Identifier: Apache-2.0
/* The pool of stacks that wait, by where they wait. */
#include "decode/calls/waiting.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/hashmap.h"
#include "decode/calls/callstack_internal.h"

#define N_PLACES 1024u
#define MAX_HANDLERS 64u

struct waiting {
	struct budget *budget; /* borrowed */
	struct waiting_stack *places[N_PLACES]; /* by a hash of where they wait */
	struct waiting_stack *oldest, *youngest;
	struct hashmap goroutines; /* the stack of each that is known by its number */
	uint32_t n;
	size_t bytes;
	bool complete; /* those that wait are all here */
	bool contradicted; /* what the runtime has told was not what the calls showed */
	/* signal handlers go on with other stacks than those that they have interrupted */
	bool exchanges;
	bool used;
	const struct callfunc *handlers[MAX_HANDLERS];
	uint32_t n_handlers;
	bool moves;    /* some have gone on on another thread than the one that left them */
};

int waiting_new(struct budget *budget, struct waiting **ret)
{
	struct waiting *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->budget = budget;
	*ret = w;
	return 0;
}

static struct waiting_stack **place_of(struct waiting *w, uint64_t back)
{
	return &w->places[(back * 0x9e3779b97f4a7c15ull) >> 54];
}

static size_t size_of(const struct waiting_stack *s)
{
	return sizeof(*s) + s->n * sizeof(*s->frames) + (s->way ? sizeof(*s->way) : 0);
}

void waiting_stack_fini(struct waiting_stack *s)
{
	free(s->frames);
	free(s->way);
}

static void drop(struct waiting *w, struct waiting_stack *s)
{
	*s->here = s->next_here;
	if (s->next_here)
		s->next_here->here = s->here;
	*(s->older ? &s->older->younger : &w->oldest) = s->younger;
	*(s->younger ? &s->younger->older : &w->youngest) = s->older;
	if (s->run.goroutine)
		hashmap_drop(&w->goroutines, 0, s->run.goroutine);
	w->n--;
	w->bytes -= size_of(s);
	budget_give(w->budget, size_of(s));
	waiting_stack_fini(s);
	free(s);
}

static void clear(struct waiting *w)
{
	while (w->oldest)
		drop(w, w->oldest);
}

struct waiting *waiting_free(struct waiting *w)
{
	if (!w)
		return NULL;
	clear(w);
	hashmap_fini(&w->goroutines);
	free(w);
	return NULL;
}

void waiting_begin(struct waiting *w)
{
	clear(w);
	w->complete = true;
	w->contradicted = false;
	w->moves = false;
	w->exchanges = w->used = false;
	w->n_handlers = 0;
}

void waiting_miss(struct waiting *w)
{
	w->complete = false;
}

void waiting_contradict(struct waiting *w)
{
	w->complete = false;
	w->contradicted = true;
}

bool waiting_moves(const struct waiting *w)
{
	return w->moves;
}

bool waiting_is_complete(const struct waiting *w)
{
	return w->complete;
}

bool waiting_is_contradicted(const struct waiting *w)
{
	return w->contradicted;
}

void waiting_add_handler(struct waiting *w, const struct callfunc *f)
{
	if (w->n_handlers < MAX_HANDLERS && f->known && !waiting_has_handler(w, f))
		w->handlers[w->n_handlers++] = f;
}

bool waiting_has_handler(const struct waiting *w, const struct callfunc *f)
{
	for (uint32_t i = 0; i < w->n_handlers; i++)
		if (w->handlers[i] == f)
			return true;
	return false;
}

void waiting_exchange(struct waiting *w)
{
	w->complete = false;
	w->exchanges = true;
}

bool waiting_exchanges(const struct waiting *w)
{
	return w->exchanges;
}

bool waiting_was_used(const struct waiting *w)
{
	return w->used;
}

/* ---- put and take */

static bool is_same_way(const struct way *a, const struct way *b)
{
	return a->in == b->in && a->point == b->point && a->n == b->n &&
	       memcmp(a->path, b->path, a->n * sizeof(*a->path)) == 0 &&
	       memcmp(a->pads, b->pads, a->n * sizeof(*a->pads)) == 0;
}

static bool is_same(const struct waiting_stack *a, const struct waiting_stack *b)
{
	if (a->run.goroutine || b->run.goroutine)
		return false; /* there is one of each */
	if (a->n != b->n || a->owner != b->owner || !a->way != !b->way || a->doubted != b->doubted)
		return false;
	for (uint32_t i = a->n; i > 0; i--)
		if (a->frames[i - 1].f != b->frames[i - 1].f ||
		    a->frames[i - 1].back != b->frames[i - 1].back ||
		    a->frames[i - 1].first != b->frames[i - 1].first ||
		    a->frames[i - 1].resume != b->frames[i - 1].resume ||
		    a->frames[i - 1].more_points != b->frames[i - 1].more_points ||
		    memcmp(a->frames[i - 1].points, b->frames[i - 1].points,
			   sizeof(a->frames->points)) != 0)
			return false;
	return !a->way || is_same_way(a->way, b->way);
}

static bool make_room(struct waiting *w, size_t bytes)
{
	bool room = w->n < WAITING_MAX_STACKS && w->bytes + bytes <= WAITING_MAX_BYTES &&
		    budget_take(w->budget, bytes);

	while (!room && w->n) {
		drop(w, w->oldest);
		w->complete = false;
		room = w->bytes + bytes <= WAITING_MAX_BYTES && budget_take(w->budget, bytes);
	}
	return room;
}

/* One of those that wait is the same. */
static bool join(struct waiting *w, struct waiting_stack *s)
{
	for (struct waiting_stack *o = *place_of(w, waiting_at(s)); o; o = o->next_here) {
		if (!is_same(o, s))
			continue;
		o->count += s->count;
		if (o->left_by != s->left_by)
			o->left_by = NULL;
		waiting_stack_fini(s);
		return true;
	}
	return false;
}

bool waiting_put(struct waiting *w, struct waiting_stack *s)
{
	const uint64_t goroutine = s->run.goroutine;
	struct waiting_stack **place = place_of(w, waiting_at(s)), *mine, *old;

	w->used = true;
	w->moves |= s->is_goroutine; /* any thread runs any of them */
	old = goroutine ? hashmap_pointer(&w->goroutines, goroutine) : NULL;
	if (old)
		drop(w, old); /* it has gone on, and nobody has seen it */
	if (!goroutine && join(w, s))
		return true;
	mine = malloc(sizeof(*mine));
	if (mine && goroutine && hashmap_put_pointer(&w->goroutines, goroutine, mine) < 0) {
		free(mine);
		mine = NULL;
	}
	if (!mine || !make_room(w, size_of(s))) {
		if (mine && goroutine)
			hashmap_drop(&w->goroutines, 0, goroutine);
		free(mine);
		waiting_stack_fini(s);
		w->complete = false;
		return false;
	}
	*mine = *s;
	mine->next_here = *place;
	if (*place)
		(*place)->here = &mine->next_here;
	mine->here = place;
	*place = mine;
	mine->older = w->youngest;
	mine->younger = NULL;
	*(w->youngest ? &w->youngest->younger : &w->oldest) = mine;
	w->youngest = mine;
	w->n++;
	w->bytes += size_of(mine);
	return true;
}

void waiting_take(struct waiting *w, struct waiting_stack *s, const struct callstack *by)
{
	w->moves |= s->left_by && s->left_by != by;
	if (--s->count == 0)
		drop(w, s);
}

/* ---- find */

struct waiting_stack *waiting_of_goroutine(struct waiting *w, struct callstack_run run)
{
	struct waiting_stack *s = hashmap_pointer(&w->goroutines, run.goroutine);

	return s && s->run.run == run.run ? s : NULL;
}

/* What is asked for. */
struct question {
	struct callstack *cs;
	const struct way *way;
	bool bottomless; /* what a stack began with may return: to what has set it up */
};

/*
 * Whether it may be this frame that has returned to path[0], or does. What it has called to switch
 * may call another one, as siglongjmp does; what comes back to where a call has been to setjmp
 * leaves any number of calls within that.
 */
static bool is_first(const struct waiting_stack *s, const struct way *way, uint32_t i)
{
	const struct frame *fr = &s->frames[i];

	if (!way->in)
		return i + 1 == s->n;
	if (way->point)
		return fr->f == way->in && (fr->more_points || cs_has_point(fr, way->point));
	return fr->f == way->in && (fr->more_points || i + SWITCH_DEPTH >= s->n);
}

/* The frame, so far out or further, that is in the call which lands there; -1: none. */
static int64_t lander(struct callstack *cs, const struct waiting_stack *s, int64_t at, uint64_t pad)
{
	const struct callfunc *f = cs_function(cs, pad, NULL);

	while (at > 0 &&
	       !((s->frames[at - 1].f == f || f->is_part) && cs_lands(cs, &s->frames[at], pad)))
		at--;
	return at - 1;
}

static bool returns_to(const struct frame *fr, uint64_t to)
{
	return fr->back == to || (fr->is_signal && fr->resume == to);
}

/*
 * Whether it goes on in that frame, and its calls return to the others. Of what is around those
 * that are known nothing is known. *ret_at: the innermost frame that has not returned; -1: one
 * around those that are known.
 */
static bool fits_from(const struct question *q, const struct waiting_stack *s, int64_t at,
		      int64_t *ret_at)
{
	for (uint32_t j = 0; j < q->way->n; j++) {
		const uint64_t to = q->way->path[j];
		const int64_t pad = q->way->pads[j] ? lander(q->cs, s, at, to) : -1;

		*ret_at = -1;
		if (q->way->pads[j] && pad < 0)
			return !s->frames[0].first && !s->frames[0].begins;
		if (!q->way->pads[j] && (at < 0 || (at == 0 && s->n > 1)))
			return !s->frames[0].first ||
			       (at == 0 && (q->bottomless || cs_function(q->cs, to, NULL)->go ==
								     CALLFUNC_GO_BOTTOM));
		if (!q->way->pads[j] && !returns_to(&s->frames[at], to))
			return false;
		at = q->way->pads[j] ? pad : at - 1;
	}
	*ret_at = at;
	return true;
}

/* In how many of its frames it may have gone on; *ret_at: of the innermost of these. */
static uint32_t fits(const struct question *q, const struct waiting_stack *s, int64_t *ret_at)
{
	uint32_t n = 0;
	int64_t at;

	for (uint32_t i = s->n; i > 0 && (q->way->in || i == s->n); i--) {
		if (!is_first(s, q->way, i - 1) || !fits_from(q, s, (int64_t)i - 1, &at))
			continue;
		if (n++ == 0)
			*ret_at = at;
	}
	return n;
}

static bool is_free(const struct question *q, const struct waiting_stack *s)
{
	if (s->owner && s->owner != q->cs)
		return false;
	/* else it would have been found by its number */
	return !s->run.goroutine || !q->cs->run.goroutine;
}

bool waiting_has_point(struct callstack *cs, const struct callfunc *f, uint64_t to)
{
	const struct question q = {.cs = cs};

	for (const struct waiting_stack *s = cs->waiting->oldest; s; s = s->younger)
		for (uint32_t i = is_free(&q, s) ? s->n : 0; i > 0; i--)
			if (s->frames[i - 1].f == f && cs_has_point(&s->frames[i - 1], to))
				return true;
	return false;
}

static uint32_t find(const struct question *q, struct waiting_stack **ret)
{
	struct waiting *w = q->cs->waiting;
	struct waiting_stack *s = q->way->in ? w->oldest : *place_of(w, q->way->path[0]);
	int64_t at;
	uint32_t n = 0;

	for (; s; s = q->way->in ? s->younger : s->next_here) {
		const uint32_t k = is_free(q, s) ? fits(q, s, &at) : 0;

		if (k == 0)
			continue;
		*ret = s;
		n += k;
	}
	return n;
}

uint32_t waiting_find(struct callstack *cs, const struct way *way, struct waiting_stack **ret)
{
	struct question q = {.cs = cs, .way = way};
	uint32_t n = find(&q, ret);

	if (n == 0) {
		q.bottomless = true;
		n = find(&q, ret);
	}
	return n;
}

uint32_t waiting_depth(struct callstack *cs, const struct waiting_stack *s, const struct way *way)
{
	const struct question q = {.cs = cs, .way = way, .bottomless = true};
	int64_t at;

	return fits(&q, s, &at) == 1 && at >= 0 ? (uint32_t)at + 1 : 0;
}

uint32_t waiting_known(struct callstack *cs, const struct waiting_stack *s, const struct way *way)
{
	const struct question q = {.cs = cs, .way = way, .bottomless = true};
	uint32_t i = s->n;
	int64_t at;

	while (i > 0 && !(is_first(s, way, i - 1) && fits_from(&q, s, (int64_t)i - 1, &at)))
		i--;
	return i;
}

bool waiting_has(struct callstack *cs, const struct way *way, bool handler)
{
	const struct question q = {.cs = cs, .way = way};
	int64_t at;

	for (const struct waiting_stack *s = cs->waiting->oldest; s; s = s->younger)
		if (is_free(&q, s) && fits(&q, s, &at) > 0 && at >= 0 &&
		    (!handler || s->frames[at].is_signal))
			return true;
	return false;
}

/* ---- */

void waiting_forget(struct waiting *w, const struct callstack *cs)
{
	for (struct waiting_stack *s = w->oldest, *next; s; s = next) {
		next = s->younger;
		if (s->left_by == cs)
			s->left_by = NULL;
		if (s->owner == cs)
			drop(w, s);
	}
}

void waiting_fork(struct waiting *w, const struct callstack *mine, const struct waiting *parent,
		  const struct callstack *theirs)
{
	waiting_begin(w);
	w->complete = parent->complete;
	w->moves = parent->moves;
	w->exchanges = parent->exchanges;
	w->used = parent->used;
	w->n_handlers = parent->n_handlers;
	memcpy(w->handlers, parent->handlers, sizeof(w->handlers));
	for (const struct waiting_stack *s = parent->oldest; s; s = s->younger) {
		struct waiting_stack copy = *s;

		if (s->owner && s->owner != theirs)
			continue;
		copy.run = (struct callstack_run){0}; /* nothing is told of the child */
		copy.owner = s->owner ? mine : NULL;
		copy.left_by = s->left_by == theirs ? mine : NULL;
		copy.frames = malloc(s->n * sizeof(*s->frames));
		copy.way = s->way ? malloc(sizeof(*s->way)) : NULL;
		if (!copy.frames || (s->way && !copy.way)) {
			waiting_stack_fini(&copy);
			waiting_miss(w);
			return;
		}
		memcpy(copy.frames, s->frames, s->n * sizeof(*s->frames));
		if (s->way)
			*copy.way = *s->way;
		if (!waiting_put(w, &copy))
			return;
	}
}
