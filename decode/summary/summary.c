/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "decode/summary/summary_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int summary_new(const struct stacktab *st, bool stepped, struct summary **ret)
{
	struct summary *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->st = st;
	s->stepped = stepped;
	s->all.to = UINT64_MAX;
	*ret = s;
	return 0;
}

struct summary *summary_free(struct summary *s)
{
	if (!s)
		return NULL;
	free(s->all.threads);
	free(s->all.stacks);
	free(s->focus.threads);
	free(s->focus.stacks);
	free(s->region.own.threads);
	free(s->region.own.stacks);
	free(s->all.functions);
	free(s->focus.functions);
	summary_regions_fini(&s->regions);
	summary_gil_fini(&s->gil);
	free(s);
	return NULL;
}

void summary_focus(struct summary *s, uint64_t from, uint64_t to)
{
	s->has_focus = to > from;
	s->focus.from = s->region.own.from = from;
	s->focus.to = s->region.own.to = to;
}

void summary_exited(struct summary *s)
{
	s->exited = true;
}

void summary_suspended(struct summary *s, const char *why, uint64_t ns)
{
	s->suspended = why;
	s->suspended_ns = ns;
}

int summary_grow(void **array, uint32_t *max, uint32_t i, size_t size)
{
	uint32_t n;
	char *p;

	n = i < 512 ? 1024 : i < UINT32_MAX / 2 ? i * 2 : i + 1;
	p = reallocarray(*array, n, size);
	if (!p)
		return -ENOMEM;
	memset(p + *max * size, 0, (n - *max) * size);
	*array = p;
	*max = n;
	return 0;
}

static int thread_get(struct window *v, uint32_t thread, struct thread_sums **ret)
{
	int r = summary_reach((void **)&v->threads, &v->max_threads, thread, sizeof(**ret));

	if (r == 0)
		*ret = &v->threads[thread];
	return r;
}

static int add_on(struct window *v, uint32_t thread, uint64_t from, uint64_t to)
{
	struct thread_sums *t;
	int r = thread_get(v, thread, &t);

	if (r == 0)
		t->on_ns += window_overlap(v, from, to);
	return r;
}

static int add_off(struct window *v, uint32_t thread, uint64_t from, uint64_t to)
{
	struct thread_sums *t;
	int r = thread_get(v, thread, &t);

	if (r == 0)
		t->off_ns += window_overlap(v, from, to);
	return r;
}

static int add_sample(struct window *v, uint32_t thread, uint64_t ts, uint32_t stack,
		      uint64_t weight_ns)
{
	struct thread_sums *t = NULL;
	int r;

	if (ts < v->from || ts >= v->to)
		return 0;
	r = thread_get(v, thread, &t);
	if (r < 0)
		return r;
	t->samples++;
	r = summary_reach((void **)&v->stacks, &v->max_stacks, stack, sizeof(*v->stacks));
	if (r < 0)
		return r;
	v->stacks[stack].ns += weight_ns;
	v->stacks[stack].samples++;
	return 0;
}

int summary_on_cpu(struct summary *s, uint32_t thread, uint64_t from, uint64_t to)
{
	int r = add_on(&s->all, thread, from, to);

	if (r == 0 && s->has_focus)
		r = add_on(&s->focus, thread, from, to);
	summary_gil_active(&s->gil, thread, from, to);
	return r == 0 && is_focus_thread(s, thread) ? add_on(&s->region.own, 0, from, to) : r;
}

int summary_off_cpu(struct summary *s, uint32_t thread, uint64_t from, uint64_t to)
{
	int r = add_off(&s->all, thread, from, to);

	if (r == 0 && s->has_focus)
		r = add_off(&s->focus, thread, from, to);
	return r == 0 && is_focus_thread(s, thread) ? add_off(&s->region.own, 0, from, to) : r;
}

int summary_sample(struct summary *s, uint32_t thread, uint64_t ts, uint32_t stack,
		   uint64_t weight_ns)
{
	int r = add_sample(&s->all, thread, ts, stack, weight_ns);

	if (r == 0 && s->has_focus)
		r = add_sample(&s->focus, thread, ts, stack, weight_ns);
	summary_gil_sight(&s->gil, thread, ts, stack, weight_ns);
	return r == 0 && is_focus_thread(s, thread)
		       ? add_sample(&s->region.own, 0, ts, stack, weight_ns)
		       : r;
}

int summary_loss(struct summary *s, const char *kind, uint64_t count, uint64_t ns)
{
	struct loss *l = NULL;

	for (uint32_t i = 0; i < s->n_losses && !l; i++)
		if (strncmp(s->losses[i].kind, kind, sizeof(l->kind) - 1) == 0)
			l = &s->losses[i];
	if (!l) {
		if (s->n_losses == MAX_LOSS_KINDS)
			return 0;
		l = &s->losses[s->n_losses++];
		(void)snprintf(l->kind, sizeof(l->kind), "%s", kind);
	}
	l->events++;
	l->count = count > UINT64_MAX - l->count ? UINT64_MAX : l->count + count;
	l->ns += ns;
	return 0;
}

int summary_mark(struct summary *s, const char *name, uint64_t ts)
{
	struct mark *m;

	if (s->n_marks == MAX_MARKS)
		return 0;
	m = &s->marks[s->n_marks++];
	(void)snprintf(m->name, sizeof(m->name), "%s", name);
	m->ts = ts;
	return 0;
}

static void add_incomplete(struct window *v, uint64_t from, uint64_t to)
{
	const uint64_t ns = window_overlap(v, from, to);

	if (!ns)
		return;
	if (!v->not_known_ns) {
		v->not_known_from = from;
		v->not_known_to = to < v->to ? to : v->to;
	}
	v->not_known_ns += ns;
}

void summary_incomplete(struct summary *s, uint64_t from, uint64_t to)
{
	add_incomplete(&s->all, from, to);
	add_incomplete(&s->focus, from, to);
	add_incomplete(&s->region.own, from, to);
}
