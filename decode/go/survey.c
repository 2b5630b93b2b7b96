// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/go/survey.h"

#include <errno.h>
#include <stdlib.h>

#include "common/base/escape.h"
#include "decode/base/strtab.h"
#include "decode/go/reader.h"

#define KNOWN (1ULL << 32) /* the goroutine is; below it is the number of its name, 0: none yet */
#define ACTIVE (1ULL << 33)
#define NAME(v) ((uint32_t)(v))

/* Before the table grows. */
static int charge(struct gosurvey *s, size_t bytes)
{
	if (!budget_take(s->budget, bytes))
		return -ENOMEM;
	s->taken += bytes;
	return 0;
}

static int put(struct gosurvey *s, struct hashmap *m, uint64_t id, uint64_t value)
{
	int r = charge(s, hashmap_more_bytes(m));

	return r < 0 ? r : hashmap_put(m, 0, id, value);
}

static uint32_t add_name(struct gosurvey *s, const struct gostring *name)
{
	char text[2048];

	return strtab_add(s->names, text,
			  escape_text(text, sizeof(text), name->p ? name->p : "", name->len), NULL);
}

/* A stack ends with the function that the goroutine began with, unless it was cut at its limit. */
static uint32_t root_name(struct gosurvey *s, const struct gogeneration *g, uint64_t stack)
{
	const uint32_t n = stack && g ? gogeneration_stack_depth(g, stack) : 0;
	struct goframe f;

	if (n == 0 || n == GOFMT_MAX_FRAMES)
		return 0;
	gogeneration_frame(g, stack, n - 1, &f);
	return add_name(s, &f.func);
}

static int see(struct gosurvey *s, uint64_t id, uint64_t stack, bool active,
	       const struct gogeneration *g)
{
	const uint64_t was = hashmap_get(&s->goroutines, 0, id);
	uint64_t now = was | KNOWN | (active ? ACTIVE : 0);

	if (!NAME(was))
		now |= root_name(s, g, stack);
	return now == was ? 0 : put(s, &s->goroutines, id, now);
}

static int add_early(struct gosurvey *s, uint64_t g, uint64_t task, uint32_t name)
{
	if (s->n_early == GOSURVEY_MAX_EARLY) {
		s->early_left_out++;
		return 0;
	}
	if (s->n_early == s->max_early) {
		const uint32_t max = s->max_early ? s->max_early * 2 : 64;
		struct gosurvey_early *p;

		if (charge(s, (max - s->max_early) * sizeof(*p)) < 0)
			return -ENOMEM;
		p = reallocarray(s->early, max, sizeof(*p));
		if (!p)
			return -ENOMEM;
		s->early = p;
		s->max_early = max;
	}
	s->early[s->n_early] =
		(struct gosurvey_early){.g = g, .task = task, .name = name, .order = s->n_early};
	s->n_early++;
	return 0;
}

static int region(struct gosurvey *s, const struct goevent *e)
{
	const uint64_t depth = hashmap_get(&s->depths, 0, e->g);

	if (e->kind == GOEVENT_REGION_BEGIN)
		return put(s, &s->depths, e->g, depth ? depth + 1 : 2);
	if (depth > 1)
		return put(s, &s->depths, e->g, depth - 1);
	return add_early(s, e->g, e->id, add_name(s, &e->name));
}

static int task(struct gosurvey *s, const struct goevent *e)
{
	if (e->kind == GOEVENT_TASK_BEGIN)
		return put(s, &s->tasks, e->id, 1);
	return hashmap_get(&s->tasks, 0, e->id) ? 0 : add_early(s, GOFMT_NO_ID, e->id, 0);
}

static int transition(struct gosurvey *s, const struct goevent *e, const struct gogeneration *g)
{
	const bool created = e->type == GOFMT_GO_CREATE || e->type == GOFMT_GO_CREATE_BLOCKED;
	int r;

	if (e->scope != GOSCOPE_GOROUTINE)
		return 0;
	if (e->from == GOSTATE_UNDETERMINED)
		s->initial[e->to]++;
	r = see(s, e->id, e->new_stack,
		created || (e->from != e->to && e->from != GOSTATE_UNDETERMINED) ||
			e->to != GOSTATE_WAITING,
		g);
	/* a stack beside it is that of who did it */
	if (r == 0 && e->g != GOFMT_NO_ID && e->g != e->id && e->type != GOFMT_GO_STATUS_STACK)
		r = see(s, e->g, e->stack, true, g);
	return r;
}

static int look(struct gosurvey *s, const struct goevent *e, const struct gogeneration *g)
{
	if (!s->first_ns)
		s->first_ns = e->time;
	s->last_ns = e->time;
	if (s->full)
		return 0;
	switch (e->kind) {
	case GOEVENT_SYNC:
		if (!s->clock.mono && e->clock)
			s->clock = *e->clock;
		return 0;
	case GOEVENT_TRANSITION:
		return transition(s, e, g);
	case GOEVENT_REGION_BEGIN:
	case GOEVENT_REGION_END:
		return region(s, e);
	case GOEVENT_TASK_BEGIN:
	case GOEVENT_TASK_END:
		return task(s, e);
	default:
		return e->g != GOFMT_NO_ID && e->stack ? see(s, e->g, e->stack, true, g) : 0;
	}
}

static int early_compare(const void *a, const void *b)
{
	const struct gosurvey_early *x = a, *y = b;

	if (x->g != y->g)
		return x->g < y->g ? -1 : 1;
	return x->order > y->order ? -1 : x->order < y->order;
}

int gosurvey_run(gobatch_read_fn read, void *arg, struct budget *budget, struct gosurvey *ret)
{
	_cleanup_(goreader_freep) struct goreader *reader = NULL;
	struct gosurvey s = {.budget = budget};
	struct goevent e;
	int r;

	r = strtab_new(GOSURVEY_MAX_NAMES, "[name table full]", &s.names);
	if (r == 0)
		r = goreader_new(read, arg, budget, &reader);
	while (r >= 0 && (r = goreader_next(reader, &e)) == GOREADER_EVENT)
		if (look(&s, &e, goreader_generation(reader)) < 0)
			s.full = true;
	if (r < 0) {
		gosurvey_fini(&s);
		return r;
	}
	if (s.n_early)
		qsort(s.early, s.n_early, sizeof(*s.early), early_compare);
	*ret = s;
	return 0;
}

void gosurvey_fini(struct gosurvey *s)
{
	strtab_free(s->names);
	hashmap_fini(&s->goroutines);
	hashmap_fini(&s->depths);
	hashmap_fini(&s->tasks);
	free(s->early);
	if (s->budget)
		budget_give(s->budget, s->taken);
	*s = (struct gosurvey){0};
}

const char *gosurvey_goroutine(const struct gosurvey *s, uint64_t g, bool *ret_active)
{
	const uint64_t v = hashmap_get(&s->goroutines, 0, g);

	if (ret_active)
		*ret_active = v & ACTIVE;
	return gosurvey_name(s, NAME(v));
}

uint32_t gosurvey_early(const struct gosurvey *s, uint64_t g, uint32_t *ret_n)
{
	uint32_t lo = 0, hi = s->n_early, first;

	while (lo < hi) {
		const uint32_t mid = lo + (hi - lo) / 2;

		if (s->early[mid].g < g)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (first = lo; lo < s->n_early && s->early[lo].g == g; lo++)
		;
	*ret_n = lo - first;
	return first;
}

const char *gosurvey_name(const struct gosurvey *s, uint32_t name)
{
	return strtab_text(s->names, name);
}
