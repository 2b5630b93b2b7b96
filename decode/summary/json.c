/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The summary as JSON, made to fit. json-c's failures are all out of memory; `failed` collects
 * them.
 */
#include "config.h"

#include "decode/summary/summary_internal.h"

#include <errno.h>
#include <string.h>

#include "common/control/json.h"

struct shape {
	uint32_t name_bytes, stack_frames, n_stacks, n_waits, n_threads, n_regions, n_functions;
};

struct out {
	const struct summary *s;
	struct shape shape;
	bool failed;
};

static void put(struct out *o, struct json_object *obj, const char *key, struct json_object *value)
{
	if (!obj || !value || json_object_object_add(obj, key, value) < 0) {
		json_object_put(value);
		o->failed = true;
	}
}

static void put_or_null(struct out *o, struct json_object *obj, const char *key, uint64_t v,
			bool known)
{
	if (known)
		put(o, obj, key, json_object_new_int64(v > INT64_MAX ? INT64_MAX : (int64_t)v));
	else if (!obj || json_object_object_add(obj, key, NULL) < 0)
		o->failed = true;
}

static void append(struct out *o, struct json_object *array, struct json_object *value)
{
	if (!array || !value || json_object_array_add(array, value) < 0) {
		json_object_put(value);
		o->failed = true;
	}
}

/* What the daemon takes of us ends at INT64_MAX; a count may be a hostile program's word. */
static struct json_object *number(uint64_t v)
{
	return json_object_new_int64(v > INT64_MAX ? INT64_MAX : (int64_t)v);
}

static struct json_object *text(const struct out *o, const char *s)
{
	size_t len = strlen(s), max = o->shape.name_bytes;
	char buf[512];

	if (len <= max)
		return json_object_new_string_len(s, (int)len);
	while (max > 0 && ((unsigned char)s[max] & 0xc0) == 0x80)
		max--;
	memcpy(buf, s, max);
	memcpy(buf + max, "\xe2\x80\xa6", 3);
	return json_object_new_string_len(buf, (int)max + 3);
}

/* Outermost first; of a deep one the outer quarter, "…", and the inner rest. */
static struct json_object *stack_to_json(struct out *o, uint32_t stack)
{
	uint32_t frames[STACKTAB_MAX_DEPTH], max = o->shape.stack_frames;
	uint32_t n = stacktab_frames(o->s->st, stack, frames, STACKTAB_MAX_DEPTH);
	struct json_object *array = json_object_new_array();

	for (uint32_t i = 0; i < n; i++) {
		struct frame_info info;

		if (n > max && i == max / 4) {
			append(o, array, json_object_new_string("\xe2\x80\xa6"));
			i = n - (max - max / 4);
		}
		stacktab_info(o->s->st, frames[i], &info);
		append(o, array, text(o, info.name));
	}
	return array;
}

struct ranked {
	uint64_t weight;
	uint32_t index;
};

static int ranked_compare(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	if (x->weight != y->weight)
		return x->weight > y->weight ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

static struct json_object *stacks_to_json(struct out *o, const struct window *v)
{
	struct ranked top[TOP_STACKS];
	uint32_t n = 0;
	struct json_object *array = json_object_new_array();

	for (uint32_t i = 1; i < v->max_stacks; i++) {
		uint32_t at;

		if (v->stacks[i].samples == 0 ||
		    (n == o->shape.n_stacks && top[n - 1].weight >= v->stacks[i].ns))
			continue;
		if (n < o->shape.n_stacks)
			n++;
		for (at = n - 1; at > 0 && top[at - 1].weight < v->stacks[i].ns; at--)
			top[at] = top[at - 1];
		top[at] = (struct ranked){.weight = v->stacks[i].ns, .index = i};
	}
	for (uint32_t i = 0; i < n; i++) {
		struct json_object *obj = json_object_new_object();

		put(o, obj, "stack", stack_to_json(o, top[i].index));
		put(o, obj, "samples", number(v->stacks[top[i].index].samples));
		put(o, obj, "ns", number(v->stacks[top[i].index].ns));
		append(o, array, obj);
	}
	return array;
}

/*
 * Of exact calls: the functions with the most time; of a stepped program with the most
 * instructions.
 */
static struct json_object *functions_to_json(struct out *o, const struct window *v)
{
	struct json_object *array = json_object_new_array();
	uint32_t top[TOP_FUNCTIONS];
	const uint32_t n = summary_functions_top(v, o->s->stepped, top, o->shape.n_functions);

	for (uint32_t i = 0; i < n; i++) {
		const struct function_sums *f = &v->functions[top[i]];
		struct json_object *obj = json_object_new_object();
		struct frame_info info;

		stacktab_info(o->s->st, top[i], &info);
		put(o, obj, "name", text(o, info.name));
		put(o, obj, "calls", number(f->calls));
		if (!o->s->stepped) {
			put(o, obj, "self_ns", number(f->self_ns));
			put(o, obj, "outside_ns", number(f->outside_ns));
			put(o, obj, "max_ns", number(f->max_ns));
		}
		put(o, obj, "instructions", number(f->insns));
		append(o, array, obj);
	}
	return array;
}

/* The innermost frames of the kernel are told apart; *ret is what they were called from. */
static struct json_object *kernel_to_json(struct out *o, uint32_t stack, uint32_t *ret)
{
	struct json_object *array = NULL;
	struct frame_info info;

	for (; stack; stack = stacktab_parent(o->s->st, stack)) {
		stacktab_info(o->s->st, stacktab_leaf(o->s->st, stack), &info);
		if (info.kind != FRAME_KIND_KERNEL)
			break;
		if (!array)
			array = json_object_new_array();
		if (json_object_array_length(array) < o->shape.stack_frames)
			append(o, array, text(o, info.name));
	}
	*ret = stack;
	return array;
}

static void put_stack(struct out *o, struct json_object *obj, uint32_t stack)
{
	struct json_object *kernel = kernel_to_json(o, stack, &stack);

	put(o, obj, "stack", stack_to_json(o, stack));
	if (kernel)
		put(o, obj, "kernel", kernel);
}

static struct json_object *holder_to_json(struct out *o, const struct wait_holder *h)
{
	struct json_object *obj = json_object_new_object(), *longest;

	put(o, obj, "tid", number(h->tid));
	put(o, obj, "name", text(o, h->name));
	if (h->stack)
		put_stack(o, obj, h->stack);
	if (h->ran_ns) {
		put(o, obj, "ran_ns", number(h->ran_ns));
		return obj;
	}
	put(o, obj, "handovers", number(h->handovers));
	if (h->cut)
		put(o, obj, "cut", json_object_new_boolean(true));
	if (!h->longest.ns)
		return obj;
	longest = json_object_new_object();
	put(o, longest, "tid", number(h->longest.tid));
	put(o, longest, "name", text(o, h->longest.name));
	put(o, longest, "ns", number(h->longest.ns));
	if (h->longest.stack)
		put_stack(o, longest, h->longest.stack);
	put(o, obj, "longest", longest);
	return obj;
}

/* Somebody else; `name` NULL: nobody is known. */
static void put_other(struct out *o, struct json_object *obj, const char *key, uint32_t tid,
		      const char *name)
{
	struct json_object *other;

	if (!name)
		return;
	other = json_object_new_object();
	put(o, other, "tid", number(tid));
	put(o, other, "name", text(o, name));
	put(o, obj, key, other);
}

static void put_waker(struct out *o, struct json_object *obj, const struct summary_wait *w)
{
	struct json_object *by;

	if (!w->woken)
		return;
	by = json_object_new_object();
	if (w->woken_by_irq) {
		put(o, by, "interrupt", json_object_new_boolean(true));
	} else {
		put(o, by, "tid", number(w->waker_tid));
		put(o, by, "name", text(o, w->waker_name));
		if (w->waker_stack)
			put_stack(o, by, w->waker_stack);
		if (w->waker_call)
			put(o, by, "call", text(o, w->waker_call));
	}
	put(o, obj, "woken_by", by);
}

static struct json_object *wait_to_json(struct out *o, const struct wait_place *p)
{
	const struct summary_wait *w = &p->longest;
	struct json_object *obj = json_object_new_object();

	put(o, obj, "tid", number(w->tid));
	put(o, obj, "name", text(o, w->name));
	put(o, obj, "ns", number(w->end - w->begin));
	put(o, obj, "begin_ns", number(w->begin));
	if (p->inside_ns < w->end - w->begin)
		put(o, obj, "inside_ns", number(p->inside_ns));
	if (w->woken_at)
		put(o, obj, "runnable_ns", number(w->end - w->woken_at));
	put_other(o, obj, "behind", w->behind_tid, w->behind);
	put(o, obj, "state", json_object_new_string(off_cpu_text(w->state)));
	if (w->goroutine)
		put(o, obj, "goroutine", number(w->goroutine));
	put_stack(o, obj, w->stack);
	if (w->call) {
		put(o, obj, "call", text(o, w->call));
		if (w->fd != UINT32_MAX)
			put(o, obj, "fd", number(w->fd));
		if (w->fd_kind)
			put(o, obj, "fd_kind", json_object_new_string(w->fd_kind));
	}
	put(o, obj, "count", number(p->count));
	put(o, obj, "total_ns", number(p->total_ns));
	if (w->open)
		put(o, obj, "open", json_object_new_boolean(true));
	if (w->brief)
		put(o, obj, "brief", json_object_new_boolean(true));
	if (w->since_before)
		put(o, obj, "since_before", json_object_new_boolean(true));
	if (w->uncertain)
		put(o, obj, "uncertain", json_object_new_boolean(true));
	put_other(o, obj, "instead", w->instead_tid, w->instead);
	put_waker(o, obj, w);
	if (p->holder.of_gil)
		put(o, obj, "holder_unknown", json_object_new_boolean(true));
	else if (p->holder.handovers || p->holder.cut || p->holder.ran_ns)
		put(o, obj, "held_by", holder_to_json(o, &p->holder));
	return obj;
}

static void put_who(struct out *o, struct json_object *obj, const struct summary_threads *names,
		    uint32_t thread)
{
	struct summary_thread who;

	names->ask(names->arg, thread, &who);
	put(o, obj, "pid", number(who.pid));
	put(o, obj, "tid", number(who.tid));
	put(o, obj, "thread", text(o, who.name));
}

/* null is "not known": waits without switches, and all of a thread of which nothing was seen. */
static void put_times(struct out *o, struct json_object *obj, const struct thread_sums *t,
		      bool switches)
{
	const bool seen = t->on_ns || t->off_ns;

	put_or_null(o, obj, "on_cpu_ns", t->on_ns, seen || (t->samples && !switches));
	put_or_null(o, obj, "off_cpu_ns", t->off_ns, seen && switches);
}

/* Of exact calls: how long the thread was traced; of a stepped one, how much it did. */
static void put_trace(struct out *o, struct json_object *obj, const struct thread_sums *t)
{
	if (o->s->stepped) {
		put(o, obj, "instructions", number(t->insns));
		return;
	}
	put(o, obj, "traced_ns", number(t->traced_ns));
	put(o, obj, "outside_ns", number(t->outside_ns));
}

static struct json_object *threads_to_json(struct out *o, const struct window *v,
					   const struct ranked *order, uint32_t n,
					   uint32_t *ret_omitted, uint64_t *ret_omitted_samples,
					   const struct summary_threads *names)
{
	static const struct thread_sums none;
	struct json_object *array = json_object_new_array();
	uint32_t shown = n < o->shape.n_threads ? n : o->shape.n_threads;

	for (uint32_t i = 0; i < shown; i++) {
		uint32_t index = order[i].index;
		const struct thread_sums *t = index < v->max_threads ? &v->threads[index] : &none;
		struct json_object *obj = json_object_new_object();
		struct summary_thread who;

		names->ask(names->arg, index, &who);
		put(o, obj, "pid", number(who.pid));
		put(o, obj, "tid", number(who.tid));
		put(o, obj, "name", text(o, who.name));
		put_times(o, obj, t, who.switches);
		put(o, obj, "samples", number(t->samples));
		if (t->calls) {
			put(o, obj, "calls", number(t->calls));
			put_trace(o, obj, t);
		}
		append(o, array, obj);
	}
	*ret_omitted = n - shown;
	*ret_omitted_samples = 0;
	for (uint32_t i = shown; i < n; i++)
		if (order[i].index < v->max_threads)
			*ret_omitted_samples += v->threads[order[i].index].samples;
	return array;
}

/* Threads go by time on CPU, then off CPU; those of a stepped program by instructions. */
static uint64_t thread_weight(const struct thread_sums *t, bool stepped)
{
	const uint64_t on = t->on_ns + t->traced_ns, off = t->off_ns + t->outside_ns;

	if (stepped)
		return t->insns;
	return on ? on + (UINT64_MAX >> 1) : off >> 1;
}

static int rank_threads(const struct window *v, bool stepped, uint32_t n, struct ranked **ret)
{
	struct ranked *order = calloc(n ? n : 1, sizeof(*order));

	if (!order)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		order[i].index = i;
		if (i < v->max_threads)
			order[i].weight = thread_weight(&v->threads[i], stepped);
	}
	qsort(order, n, sizeof(*order), ranked_compare);
	*ret = order;
	return 0;
}

static void put_waits(struct out *o, struct json_object *obj, const struct wait_place *waits,
		      uint32_t n)
{
	struct json_object *array = json_object_new_array();

	for (uint32_t i = 0; i < n && i < o->shape.n_waits; i++)
		append(o, array, wait_to_json(o, &waits[i]));
	put(o, obj, "waits", array);
}

/* Of each kind its first ones, in one order. */
static void put_window_waits(struct out *o, struct json_object *obj, const struct window *v)
{
	struct json_object *array = json_object_new_array();
	const struct wait_place *next[N_WAITS_KINDS], *end[N_WAITS_KINDS];
	unsigned int first;

	for (unsigned int i = 0; i < N_WAITS_KINDS; i++) {
		const struct waits_ranking *k = &v->waits[i];

		next[i] = k->places;
		end[i] = k->places + (k->n < o->shape.n_waits ? k->n : o->shape.n_waits);
	}
	do {
		first = N_WAITS_KINDS;
		for (unsigned int i = 0; i < N_WAITS_KINDS; i++)
			if (next[i] < end[i] &&
			    (first == N_WAITS_KINDS || summary_wait_before(next[i], next[first])))
				first = i;
		if (first < N_WAITS_KINDS)
			append(o, array, wait_to_json(o, next[first]++));
	} while (first < N_WAITS_KINDS);
	put(o, obj, "waits", array);
	if (v->throttled_waits) {
		struct json_object *throttled = json_object_new_object();

		put(o, throttled, "waits", number(v->throttled_waits));
		put(o, throttled, "ns", number(v->throttled_ns));
		put(o, obj, "throttled", throttled);
	}
}

/* Where it is not complete: how much of it is, and since when. */
static void put_complete(struct out *o, struct json_object *obj, const struct window *v,
			 uint64_t from, uint64_t to)
{
	if (!v->not_known_ns)
		return;
	put(o, obj, "complete_ns",
	    number(to - from > v->not_known_ns ? to - from - v->not_known_ns : 0));
	if (v->not_known_from <= from)
		put(o, obj, "complete_from_ns", number(v->not_known_to));
}

static void window_to_json(struct out *o, struct json_object *obj, const struct window *v,
			   uint64_t from, uint64_t to, const struct summary_threads *names)
{
	_cleanup_free_ struct ranked *order = NULL;
	uint64_t omitted_samples = 0;
	uint32_t omitted = 0;

	put(o, obj, "from_ns", number(from));
	put(o, obj, "to_ns", number(to));
	put_complete(o, obj, v, from, to);
	if (rank_threads(v, o->s->stepped, names->n, &order) < 0) {
		o->failed = true;
		return;
	}
	put(o, obj, "threads",
	    threads_to_json(o, v, order, names->n, &omitted, &omitted_samples, names));
	if (omitted) {
		put(o, obj, "threads_omitted", number(omitted));
		put(o, obj, "samples_omitted", number(omitted_samples));
	}
	put(o, obj, "heaviest", stacks_to_json(o, v));
	if (v->max_functions)
		put(o, obj, "functions", functions_to_json(o, v));
	put_window_waits(o, obj, v);
}

/* The focus where it is a region: how its thread spent that time. */
static struct json_object *focus_region_to_json(struct out *o, const struct summary_threads *names)
{
	const struct focus_region *f = &o->s->region;
	const struct window *v = &f->own;
	static const struct thread_sums none;
	const struct thread_sums *sums = v->max_threads ? v->threads : &none;
	struct json_object *obj = json_object_new_object();
	struct summary_thread who;

	put(o, obj, "name", text(o, f->name));
	put(o, obj, "begin_ns", number(v->from));
	put(o, obj, "to_ns", number(v->to));
	put(o, obj, "ns", number(v->to - v->from));
	put(o, obj, "over_ns", number(f->over_ns));
	put(o, obj, "tid", number(f->tid));
	put_complete(o, obj, v, v->from, v->to);
	if (!f->thread_known)
		return obj;
	put_who(o, obj, names, f->thread);
	names->ask(names->arg, f->thread, &who);
	put_times(o, obj, sums, who.switches);
	put(o, obj, "samples", number(sums->samples));
	put(o, obj, "heaviest", stacks_to_json(o, v));
	put_window_waits(o, obj, v);
	return obj;
}

/* At most 480 bytes, see text(). */
static struct json_object *long_text(const struct out *o, const char *s)
{
	const struct out longer = {.shape.name_bytes = o->shape.name_bytes * 3};

	return text(&longer, s);
}

static void put_pause(struct out *o, struct json_object *obj, const struct summary_pause *p)
{
	struct json_object *pause;

	if (!p->ns)
		return;
	pause = json_object_new_object();
	put(o, pause, "state", text(o, p->state));
	put(o, pause, "begin_ns", number(p->begin));
	put(o, pause, "ns", number(p->ns));
	if (p->stack)
		put(o, pause, "stack", long_text(o, p->stack));
	if (p->by)
		put(o, pause, "by", text(o, p->by));
	if (p->by_stack)
		put(o, pause, "by_stack", long_text(o, p->by_stack));
	put(o, obj, "pause", pause);
}

/* By the function that they began with. */
static void put_goroutines(struct out *o, struct json_object *obj)
{
	struct json_object *list = json_object_new_array();
	uint32_t shown = 0;

	for (; shown < o->s->n_goroutines && shown < o->shape.n_regions; shown++) {
		const struct summary_goroutines *g = &o->s->goroutines[shown];
		struct json_object *one = json_object_new_object();

		put(o, one, "pid", number(g->pid));
		put(o, one, "function", text(o, g->function));
		put(o, one, "count", number(g->count));
		put(o, one, "running_ns", number(g->running_ns));
		put_or_null(o, one, "off_cpu_ns", g->off_cpu_ns, g->off_known);
		put(o, one, "runnable_ns", number(g->runnable_ns));
		put(o, one, "longest_runnable_ns", number(g->longest_runnable_ns));
		put(o, one, "waiting_ns", number(g->waiting_ns));
		put(o, one, "syscall_ns", number(g->syscall_ns));
		append(o, list, one);
	}
	put(o, obj, "goroutines", list);
	if (o->s->goroutines_omitted + o->s->n_goroutines > shown)
		put(o, obj, "goroutines_omitted",
		    number(o->s->goroutines_omitted + o->s->n_goroutines - shown));
}

static struct json_object *slow_to_json(struct out *o, const struct slow_region *slow,
					const struct summary_threads *names)
{
	const struct summary_region *r = &slow->region;
	struct json_object *obj = json_object_new_object();

	put(o, obj, "name", text(o, r->name));
	put_who(o, obj, names, r->thread);
	if (r->fiber)
		put(o, obj, "fiber", text(o, r->fiber));
	put(o, obj, "begin_ns", number(r->begin));
	put(o, obj, "ns", number(r->end - r->begin));
	if (r->cpu_known) {
		put(o, obj, "on_cpu_ns", number(r->on_ns));
		put(o, obj, "off_cpu_ns", number(r->off_ns));
	}
	put_pause(o, obj, &r->pause);
	if (slow->n_waits)
		put_waits(o, obj, slow->waits, slow->n_waits);
	return obj;
}

/* "regions" by name, those with the longest first, and the slowest ones of all. */
static void put_regions(struct out *o, struct json_object *obj, const struct summary_threads *names)
{
	const struct regions_sums *r = &o->s->regions;
	struct json_object *list = json_object_new_array(), *slowest = json_object_new_array();
	uint32_t top[TOP_REGION_NAMES];
	uint32_t n = summary_regions_top(r, top, o->shape.n_regions);

	for (uint32_t i = 0; i < n; i++) {
		const struct region_sums *sums = &r->names[top[i]];
		struct json_object *one = json_object_new_object();

		put(o, one, "name", text(o, sums->name));
		put(o, one, "count", number(sums->count));
		put(o, one, "total_ns", number(sums->total_ns));
		put(o, one, "self_ns", number(sums->self_ns));
		put(o, one, "max_ns", number(sums->max_ns));
		append(o, list, one);
	}
	put(o, obj, "regions", list);
	if (r->n_names > n)
		put(o, obj, "regions_omitted", number(r->n_names - n));
	for (uint32_t i = 0; i < r->n_slowest && i < o->shape.n_regions; i++)
		append(o, slowest, slow_to_json(o, &r->slowest[i], names));
	put(o, obj, "slowest_regions", slowest);
}

static struct json_object *losses_to_json(struct out *o)
{
	struct json_object *obj = json_object_new_object();

	for (uint32_t i = 0; i < o->s->n_losses; i++) {
		const struct loss *l = &o->s->losses[i];
		struct json_object *one = json_object_new_object();

		put(o, one, "events", number(l->events));
		put(o, one, "count", number(l->count));
		put(o, one, "ns", number(l->ns));
		put(o, obj, l->kind, one);
	}
	return obj;
}

static struct json_object *suspended_to_json(struct out *o)
{
	struct json_object *obj = json_object_new_object();

	put(o, obj, "why", text(o, o->s->suspended));
	put(o, obj, "ns", number(o->s->suspended_ns));
	return obj;
}

static struct json_object *marks_to_json(struct out *o)
{
	struct json_object *array = json_object_new_array();

	for (uint32_t i = 0; i < o->s->n_marks; i++) {
		struct json_object *one = json_object_new_object();

		put(o, one, "name", json_object_new_string(o->s->marks[i].name));
		put(o, one, "ns", number(o->s->marks[i].ts));
		append(o, array, one);
	}
	return array;
}

int summary_to_json(struct summary *s, uint64_t from, uint64_t to, uint32_t n_threads,
		    void (*threads)(void *arg, uint32_t index, struct summary_thread *ret),
		    void *arg, struct json_object **ret)
{
	struct out o = {.s = s,
			.shape = {.name_bytes = 160,
				  .stack_frames = 32,
				  .n_stacks = TOP_STACKS,
				  .n_waits = TOP_WAITS,
				  .n_threads = 64,
				  .n_regions = TOP_REGION_NAMES,
				  .n_functions = TOP_FUNCTIONS}};
	const struct summary_threads names = {.ask = threads, .arg = arg, .n = n_threads};

	summary_waits_finish(s);
	if (summary_gil_finish(s, &names) < 0)
		return -ENOMEM;
	/* Each round halves what is longest; the last one's bound is far below the limit. */
	for (unsigned int round = 0;; round++) {
		struct json_object *obj = json_object_new_object();
		size_t len = 0;

		if (s->stepped)
			put(&o, obj, "stepped", json_object_new_boolean(true));
		window_to_json(&o, obj, &s->all, from, to, &names);
		if (s->exited)
			put(&o, obj, "exited", json_object_new_boolean(true));
		if (s->suspended)
			put(&o, obj, "suspended", suspended_to_json(&o));
		if (s->has_focus) {
			struct json_object *focus = json_object_new_object();

			window_to_json(&o, focus, &s->focus, s->focus.from, s->focus.to, &names);
			if (s->region.name)
				put(&o, focus, "region", focus_region_to_json(&o, &names));
			put(&o, obj, "focus", focus);
		}
		if (s->regions.count)
			put_regions(&o, obj, &names);
		if (s->n_goroutines)
			put_goroutines(&o, obj);
		put(&o, obj, "marks", marks_to_json(&o));
		put(&o, obj, "losses", losses_to_json(&o));
		if (o.failed || !json_text(obj, &len)) {
			json_object_put(obj);
			return -ENOMEM;
		}
		if (len <= SUMMARY_MAX_JSON || round == 7) {
			*ret = obj;
			return 0;
		}
		json_object_put(obj);
		if (round % 2 == 0) {
			o.shape.name_bytes /= 2;
			o.shape.n_threads /= 2;
			o.shape.n_regions = (o.shape.n_regions + 1) / 2;
			o.shape.n_functions = (o.shape.n_functions + 1) / 2;
		} else {
			o.shape.stack_frames /= 2;
			o.shape.n_stacks /= 2;
			o.shape.n_waits = (o.shape.n_waits + 1) / 2;
		}
	}
}
