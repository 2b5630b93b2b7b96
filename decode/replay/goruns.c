// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/replay/goruns.h"

#include <errno.h>
#include <stdlib.h>

#include "common/base/hashmap.h"
#include "decode/replay/gofeed.h"

/* The runtime rounds its times to 64 ns, and a thread may have the time of another one's event. */
#define ROUNDING_NS 256u

struct edge {
	uint64_t ns;
	uint64_t goroutine;
	uint32_t run;
	bool begins;
};

struct runs_thread {
	struct edge *v;
	uint32_t n, room;
	uint32_t next; /* is told next */
	/* its last edge is out of a system call, without a processor, and it has got none since */
	bool unbroken;
	struct runs_thread *older;
};

struct goruns {
	struct budget *budget; /* borrowed */
	struct hashmap threads; /* by tid */
	struct runs_thread *last;
	struct hashmap runs; /* of each goroutine, so many have begun */
	uint64_t begin_ns; /* of the trace */
	uint64_t tolerance;
	uint64_t n, left_out;
	size_t bytes;
};

static bool take(struct goruns *g, size_t bytes)
{
	if (!budget_take(g->budget, bytes))
		return false;
	g->bytes += bytes;
	return true;
}

static struct runs_thread *thread_of(struct goruns *g, uint32_t tid)
{
	struct runs_thread *t = hashmap_pointer(&g->threads, tid);

	if (t)
		return t;
	t = take(g, sizeof(*t) + hashmap_more_bytes(&g->threads)) ? calloc(1, sizeof(*t)) : NULL;
	if (!t || hashmap_put_pointer(&g->threads, tid, t) < 0) {
		free(t);
		return NULL;
	}
	t->older = g->last;
	g->last = t;
	return t;
}

static bool has_room(struct goruns *g, struct runs_thread *t)
{
	const uint32_t more = t->room ? t->room : 64;
	struct edge *v;

	if (t->n < t->room)
		return true;
	if (g->n == GORUNS_MAX || !take(g, more * sizeof(*v)))
		return false;
	v = reallocarray(t->v, t->room + more, sizeof(*v));
	if (!v)
		return false;
	t->v = v;
	t->room += more;
	return true;
}

static bool is_on_thread(enum gostate state)
{
	return state == GOSTATE_RUNNING || state == GOSTATE_SYSCALL;
}

/*
 * Out of a system call whose processor was taken the runtime tells that the goroutine stopped, and
 * that it goes on, without a switch in between: it has got another processor before it tells. Where
 * there is a switch it gets that later.
 */
static bool goes_on(struct goruns *g, uint32_t tid, const struct goevent *ev)
{
	struct runs_thread *t = hashmap_pointer(&g->threads, tid);

	if (!t || !t->unbroken || !is_on_thread(ev->to) || t->v[t->n - 1].goroutine != ev->id)
		return false;
	t->n--;
	g->n--;
	t->unbroken = false;
	return true;
}

/* False: there is no room. */
static bool add(struct goruns *g, uint32_t tid, uint64_t ns, const struct goevent *ev)
{
	const bool begins = is_on_thread(ev->to);
	const uint32_t run = hashmap_index(&g->runs, 0, ev->id) + begins;
	struct runs_thread *t = thread_of(g, tid);

	if (!t || !has_room(g, t))
		return false;
	if (begins &&
	    (!take(g, hashmap_more_bytes(&g->runs)) || hashmap_put(&g->runs, 0, ev->id, run) < 0))
		return false;
	t->v[t->n++] = (struct edge){.ns = ns, .goroutine = ev->id, .run = run, .begins = begins};
	t->unbroken = ev->from == GOSTATE_SYSCALL && ev->to == GOSTATE_RUNNABLE;
	g->n++;
	return true;
}

static void gets_processor(struct goruns *g, uint32_t tid)
{
	struct runs_thread *t = hashmap_pointer(&g->threads, tid);

	if (t)
		t->unbroken = false;
}

static int read_all(struct goruns *g, struct gofeed *feed)
{
	int r = 0;

	g->begin_ns = gofeed_peek(feed);
	for (const struct goevent *ev;
	     r == 0 && gofeed_peek(feed) != UINT64_MAX && (ev = gofeed_event(feed));
	     r = gofeed_next(feed)) {
		bool foreign;
		uint32_t tid;

		if (ev->kind != GOEVENT_TRANSITION || ev->from == GOSTATE_UNDETERMINED)
			continue;
		if (ev->scope == GOSCOPE_PROC && ev->to == GOSTATE_RUNNING)
			gets_processor(g, gofeed_tid(feed, ev->m, &foreign));
		if (ev->scope != GOSCOPE_GOROUTINE ||
		    is_on_thread(ev->from) == is_on_thread(ev->to))
			continue;
		tid = gofeed_tid(feed, ev->m, &foreign);
		if (tid && goes_on(g, tid, ev))
			continue;
		/* after one that is missing the numbers of all that follow would be wrong */
		if (tid && (g->left_out || !add(g, tid, gofeed_peek(feed), ev)))
			g->left_out++;
	}
	return r;
}

int goruns_new(const struct gofeed_options *options, struct goruns **ret)
{
	_cleanup_(gofeed_freep) struct gofeed *feed = NULL;
	_cleanup_(goruns_freep) struct goruns *g = calloc(1, sizeof(*g));
	int r;

	if (!g)
		return -ENOMEM;
	g->budget = options->budget;
	g->tolerance = clock_map_error(options->clocks) + ROUNDING_NS;
	r = gofeed_new(options, &feed);
	if (r == 0)
		r = read_all(g, feed);
	if (r < 0)
		return r;
	*ret = take_ptr(g);
	return 0;
}

struct goruns *goruns_free(struct goruns *g)
{
	if (!g)
		return NULL;
	while (g->last) {
		struct runs_thread *t = g->last;

		g->last = t->older;
		free(t->v);
		free(t);
	}
	budget_give(g->budget, g->bytes);
	hashmap_fini(&g->threads);
	hashmap_fini(&g->runs);
	free(g);
	return NULL;
}

bool goruns_next(struct goruns *g, uint32_t tid, uint64_t since, bool begins,
		 uint64_t *ret_goroutine, uint64_t *ret_run)
{
	struct runs_thread *t = hashmap_pointer(&g->threads, tid);

	if (!t || since < g->begin_ns)
		return false;
	while (t->next < t->n && t->v[t->next].ns + g->tolerance < since)
		t->next++;
	if (t->next == t->n || t->v[t->next].begins != begins)
		return false;
	*ret_goroutine = t->v[t->next].goroutine;
	*ret_run = t->v[t->next++].run;
	return true;
}

uint64_t goruns_left_out(const struct goruns *g)
{
	return g->left_out;
}
