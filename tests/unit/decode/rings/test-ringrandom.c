// SPDX-License-Identifier: Apache-2.0
/*
 * Random programs: threads that come and go, fibers that move, regions, tasks, rings that wrap. A
 * model knows what was written where and says what must come out. Then their copies are damaged:
 * what was not hit must still be there, or be counted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/io.h"
#include "common/control/json.h"
#include "decode/rings/event.h"
#include "tests/unit/decode/rings/ringfile-make.h"

#define MAX_EVENTS 4096
#define MAX_RINGS 4
#define MAX_FIBERS 5
#define MAX_DEPTH 12
#define MAX_TASKS 8
#define LINE 128
#define RAW_BEGIN UINT64_C(7000000000)

static struct budget budget = {.max = 256 << 20};
static uint64_t seed;

static uint64_t random_below(uint64_t n)
{
	seed ^= seed >> 12;
	seed ^= seed << 25;
	seed ^= seed >> 27;
	return seed * 2685821657736338717u % n;
}

/* ---- the program */

struct event {
	enum ringevent_kind kind;
	uint64_t ts, fiber;
	uint32_t ring, tid;
	uint64_t slot; /* its first */
	uint32_t span;
	char name[16];
	uint64_t value; /* of a counter, flow, fiber, task: as printed */
	int other;	/* of an end: its begin, of a begin: its end; -1: none */
	bool seen;
};

struct stack {
	int open[MAX_DEPTH]; /* events */
	int n;
};

struct program {
	struct ringmake *make;
	uint32_t rings, slots, next_tid;
	struct {
		uint32_t tid;
		int fiber; /* 0: none */
		struct stack own;
	} threads[MAX_RINGS];
	struct {
		struct stack stack;
		bool runs;
	} fibers[MAX_FIBERS + 1];
	int tasks[MAX_TASKS]; /* events; -1: none */
	uint64_t now, next_task;
	struct event events[MAX_EVENTS];
	int n;
};

static uint64_t stamp_of(const struct program *p, uint64_t ts)
{
	return ringmake_header(p->make)->clock == RING_CLOCK_TSC ? ts * 3 : ts;
}

static struct event *add(struct program *p, uint32_t ring, enum ringevent_kind kind)
{
	struct event *e = &p->events[p->n++];

	p->now += 1 + random_below(200000);
	*e = (struct event){.kind = kind,
		.ts = p->now,
		.ring = ring,
		.tid = p->threads[ring].tid,
		.fiber = (uint64_t)p->threads[ring].fiber,
		.other = -1};
	(void)snprintf(e->name, sizeof(e->name), "name %u", (unsigned)random_below(6));
	return e;
}

static void write_record(struct program *p, struct event *e, uint16_t kind, uint64_t a, uint64_t b)
{
	struct ringmake_payload payload = {0};
	uint64_t head = ringmake_ring(p->make, e->ring)->head_before;

	if (random_below(4) == 0 && (kind == RING_REGION_BEGIN || kind == RING_INSTANT))
		for (uint64_t i = 0; i <= random_below(6); i++)
			ringmake_u64(&payload, ringmake_name(p->make, "key"), e->ts + i);
	e->slot = ringmake_record(p->make, e->ring, kind, stamp_of(p, e->ts),
				  ringmake_name(p->make, e->name), a, b, &payload);
	assert_int_equal(e->slot, head);
	e->span = (uint32_t)(ringmake_ring(p->make, e->ring)->head_before - head);
}

static struct stack *stack_of(struct program *p, uint32_t ring)
{
	return p->threads[ring].fiber ? &p->fibers[p->threads[ring].fiber].stack
				      : &p->threads[ring].own;
}

static void take_thread(struct program *p, uint32_t ring)
{
	struct event *e;

	/* a thread ends on its own stack; what is open stays so */
	if (p->threads[ring].fiber)
		return;
	p->threads[ring].own.n = 0;
	p->threads[ring].tid = ++p->next_tid;
	e = add(p, ring, RINGEVENT_THREAD);
	e->slot = ringmake_thread(p->make, ring, stamp_of(p, e->ts), e->tid, e->name);
	e->span = 1;
}

static void switch_fiber(struct program *p, uint32_t ring)
{
	int to = (int)random_below(MAX_FIBERS + 1);
	struct event *e;

	if (p->fibers[to].runs && to)
		return;
	p->fibers[p->threads[ring].fiber].runs = false;
	p->fibers[to].runs = to != 0;
	p->threads[ring].fiber = to;
	e = add(p, ring, RINGEVENT_FIBER);
	e->value = (uint64_t)to;
	e->slot = ringmake_fiber(p->make, ring, stamp_of(p, e->ts), (uint64_t)to, e->name);
	e->span = 1;
}

static void begin_or_end(struct program *p, uint32_t ring)
{
	struct stack *s = stack_of(p, ring);
	struct event *e;

	if (s->n < MAX_DEPTH && random_below(2)) {
		e = add(p, ring, RINGEVENT_REGION_BEGIN);
		s->open[s->n++] = p->n - 1;
		write_record(p, e, RING_REGION_BEGIN, 0, 0);
	} else if (s->n && random_below(16) == 0) {
		s->n--; /* its end is never written */
	} else if (s->n) {
		struct event *begin = &p->events[s->open[--s->n]];

		e = add(p, ring, RINGEVENT_REGION_END);
		memcpy(e->name, begin->name, sizeof(e->name));
		e->other = (int)(begin - p->events);
		begin->other = p->n - 1;
		write_record(p, e, RING_REGION_END, stamp_of(p, begin->ts), 0);
	}
}

static void task(struct program *p, uint32_t ring)
{
	int *slot = &p->tasks[random_below(MAX_TASKS)];
	struct event *e, *begin;

	if (*slot < 0) {
		e = add(p, ring, RINGEVENT_TASK_BEGIN);
		*slot = p->n - 1;
		e->value = ++p->next_task;
		write_record(p, e, RING_TASK_BEGIN, e->value, 0);
	} else {
		begin = &p->events[*slot];
		*slot = -1;
		e = add(p, ring, RINGEVENT_TASK_END);
		memcpy(e->name, begin->name, sizeof(e->name));
		e->value = begin->value;
		e->other = (int)(begin - p->events);
		begin->other = p->n - 1;
		write_record(p, e, RING_TASK_END, e->value, stamp_of(p, begin->ts));
	}
}

static void step(struct program *p)
{
	uint32_t ring = (uint32_t)random_below(p->rings);
	struct event *e;

	switch (random_below(16)) {
	case 0:
		take_thread(p, ring);
		break;
	case 1:
	case 2:
		switch_fiber(p, ring);
		break;
	case 3:
		e = add(p, ring, RINGEVENT_INSTANT);
		write_record(p, e, RING_INSTANT, 0, 0);
		break;
	case 4:
		e = add(p, ring, RINGEVENT_COUNTER);
		e->value = random_below(1000);
		write_record(p, e, RING_COUNTER, e->value, 0);
		break;
	case 5:
	case 6:
		task(p, ring);
		break;
	default:
		begin_or_end(p, ring);
		break;
	}
}

static struct program *program_free(struct program *p)
{
	if (p)
		ringmake_free(p->make);
	free(p);
	return NULL;
}
DEFINE_CLEANUP(struct program *, program_free)

static struct program *program_run(uint32_t rings, uint32_t slots, int steps)
{
	const struct ringmake_options o = {.rings = rings,
		.slots = slots,
		.clock = random_below(2) ? RING_CLOCK_TSC : RING_CLOCK_MONOTONIC_RAW};
	struct program *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	p->make = ringmake_new(&o);
	assert_non_null(p->make);
	p->rings = rings;
	p->slots = slots;
	p->now = RAW_BEGIN;
	p->next_tid = 1000;
	for (size_t i = 0; i < MAX_TASKS; i++)
		p->tasks[i] = -1;
	for (uint32_t i = 0; i < rings; i++)
		take_thread(p, i);
	while (p->n < steps)
		step(p);
	/* some were still writing while they were copied */
	for (uint32_t i = 0; i < rings; i++)
		if (random_below(2))
			ringmake_ring(p->make, i)->head_after += random_below(10);
	return p;
}

/* ---- what must come out */

struct lines {
	char (*v)[LINE];
	size_t n;
};

static struct lines lines_new(void)
{
	struct lines l = {.v = calloc(2 * MAX_EVENTS, LINE)};

	assert_non_null(l.v);
	return l;
}

static void line_add(struct lines *l, const struct ringevent *ev)
{
	assert_true(l->n < 2 * (size_t)MAX_EVENTS);
	(void)snprintf(l->v[l->n++], LINE, "%llu %u %u/%llu %s %llu %llu%s%s",
		       (unsigned long long)ev->ts, (unsigned)ev->kind, ev->tid,
		       (unsigned long long)ev->fiber, ev->name,
		       (unsigned long long)(ev->kind == RINGEVENT_COUNTER ? ev->value.u64
					    : ev->kind == RINGEVENT_FIBER ? ev->id
									  : ev->task),
		       (unsigned long long)ev->began, ev->began_early ? " early" : "",
		       ev->unfinished ? " unfinished" : "");
}

static int line_compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void mark_seen(struct program *p)
{
	for (int i = 0; i < p->n; i++) {
		struct event *e = &p->events[i];
		const struct ringfile_ring *r = ringmake_ring(p->make, e->ring);
		uint64_t oldest = r->head_before > p->slots ? r->head_before - p->slots : 0;

		if (r->head_after + RING_SPAN_MAX > p->slots &&
		    r->head_after + RING_SPAN_MAX - p->slots > oldest)
			oldest = r->head_after + RING_SPAN_MAX - p->slots;
		e->seen = e->slot >= oldest && e->slot + e->span <= r->head_before;
	}
}

static void expect_event(struct lines *l, const struct program *p, const struct event *e,
			 uint64_t floor)
{
	const struct event *other = e->other < 0 ? NULL : &p->events[e->other];
	bool end = e->kind == RINGEVENT_REGION_END || e->kind == RINGEVENT_TASK_END;
	struct ringevent ev = {
		.kind = e->kind, .ts = e->ts, .tid = e->tid, .fiber = e->fiber, .name = e->name};

	ev.task = ev.value.u64 = ev.id = e->value;
	if (end)
		ev.began = other->ts;
	else if (e->kind == RINGEVENT_REGION_BEGIN || e->kind == RINGEVENT_TASK_BEGIN)
		ev.unfinished = !other || !other->seen;
	line_add(l, &ev);
	if (!end || other->seen)
		return;
	ev.kind = e->kind == RINGEVENT_REGION_END ? RINGEVENT_REGION_BEGIN : RINGEVENT_TASK_BEGIN;
	ev.ts = other->ts < floor ? floor : other->ts;
	ev.began_early = true;
	line_add(l, &ev);
}

static struct lines lines_expected(struct program *p)
{
	struct lines l = lines_new();
	uint64_t floor = UINT64_MAX;

	mark_seen(p);
	for (int i = 0; i < p->n && floor == UINT64_MAX; i++)
		if (p->events[i].seen)
			floor = p->events[i].ts;
	for (int i = 0; i < p->n; i++)
		if (p->events[i].seen)
			expect_event(&l, p, &p->events[i], floor);
	return l;
}

/* ---- what does come out: ends are those of the youngest begin that has one, always */

struct check {
	struct {
		uint64_t fiber;
		uint32_t tid;
		int n;
		struct {
			uint64_t began;
			const char *name;
			bool unfinished;
		} open[MAX_EVENTS];
	} stacks[64];
	int n;
};

static void check_nesting(struct check *c, const struct ringevent *ev)
{
	int s, n;

	for (s = 0; s < c->n; s++)
		if (c->stacks[s].fiber == ev->fiber && (ev->fiber || c->stacks[s].tid == ev->tid))
			break;
	if (s == c->n) {
		if (c->n == 64)
			return; /* damage has made many of them */
		c->stacks[c->n].fiber = ev->fiber;
		c->stacks[c->n++].tid = ev->tid;
	}
	n = c->stacks[s].n;
	if (ev->kind == RINGEVENT_REGION_BEGIN) {
		assert_true(n < MAX_EVENTS);
		c->stacks[s].open[n].began = ev->began_early ? ev->began : ev->ts;
		c->stacks[s].open[n].name = ev->name;
		c->stacks[s].open[n].unfinished = ev->unfinished;
		n++;
	} else {
		while (n > 0 && c->stacks[s].open[n - 1].unfinished)
			n--;
		assert_true(n-- > 0);
		assert_true(c->stacks[s].open[n].began == ev->began);
		assert_string_equal(c->stacks[s].open[n].name, ev->name);
	}
	c->stacks[s].n = n;
}

/* Without threads and what is lost. */
static struct lines lines_read(int fd, struct json_object *losses)
{
	_cleanup_(ringevents_freep) struct ringevents *r = NULL;
	_cleanup_free_ struct check *c = calloc(1, sizeof(*c));
	_cleanup_json_ struct json_object *stats = json_object_new_object();
	struct lines l = lines_new();
	uint64_t last = 0;
	struct ringevent ev;

	assert_non_null(c);
	assert_int_equal(ringevents_new(NULL, 0, &budget, &r), 0);
	assert_int_equal(ringevents_add(r, fd), 0);
	assert_int_equal(ringevents_finish(r), 0);
	while (ringevents_next(r, &ev)) {
		assert_true(ev.ts >= last);
		last = ev.ts;
		if (ev.kind == RINGEVENT_REGION_BEGIN || ev.kind == RINGEVENT_REGION_END)
			check_nesting(c, &ev);
		if (ev.kind == RINGEVENT_THREAD || ev.kind == RINGEVENT_LOST)
			continue;
		line_add(&l, &ev);
	}
	ringevents_report(r, stats, losses);
	r = ringevents_free(r);
	assert_int_equal(budget.used, 0);
	return l;
}

static void test_random_programs(void **state)
{
	size_t events = 0, early = 0;

	(void)state;
	for (int run = 0; run < 400; run++) {
		_cleanup_(program_freep) struct program *p = NULL;
		_cleanup_json_ struct json_object *losses = json_object_new_object();
		_cleanup_close_ int fd = -1;
		struct lines want, got;

		seed = 0x9e3779b97f4a7c15u * (uint64_t)(run + 1);
		p = program_run(1 + (uint32_t)random_below(MAX_RINGS), 64u << random_below(4),
			50 + (int)random_below(1500));
		want = lines_expected(p);
		fd = ringmake_file(p->make);
		assert_true(fd >= 0);
		got = lines_read(fd, losses);
		for (size_t i = 0; i < want.n; i++)
			early += strstr(want.v[i], " early") != NULL;
		qsort(want.v, want.n, LINE, line_compare);
		qsort(got.v, got.n, LINE, line_compare);
		for (size_t i = 0, k = 0; i < want.n; i++) {
			unsigned kind = 0;

			assert_int_equal(sscanf(want.v[i], "%*u %u", &kind), 1);
			if (kind == RINGEVENT_THREAD)
				continue;
			assert_true(k < got.n);
			assert_string_equal(got.v[k], want.v[i]);
			k++;
			events++;
			if (i + 1 == want.n)
				assert_int_equal(k, got.n);
		}
		free(want.v);
		free(got.v);
	}
	/* they are not about nothing */
	assert_true(events > 20000);
	assert_true(early > 1000);
}

/* ---- damage */

/* Writes random bytes into some slots of the copy; what they held is no longer expected. */
static void damage(struct program *p)
{
	for (uint64_t n = 1 + random_below(8); n > 0; n--) {
		uint32_t ring = (uint32_t)random_below(p->rings);
		uint64_t position = random_below(p->slots), at = random_below(RING_SLOT_BYTES);
		uint8_t *slot = (uint8_t *)ringmake_slot(p->make, ring, position);

		for (uint64_t i = 1 + random_below(4); i > 0; i--)
			slot[at++ % RING_SLOT_BYTES] = (uint8_t)random_below(256);
		for (int i = 0; i < p->n; i++) {
			struct event *e = &p->events[i];

			if (e->ring == ring && (position - e->slot) % p->slots < e->span)
				e->seen = false;
		}
	}
}

static uint64_t count_of(struct json_object *o, const char *key)
{
	uint64_t n = 0;

	(void)json_get_uint(o, key, &n);
	return n;
}

/* "TS KIND", without whom it belongs to and what became of its other half. */
static int head_compare(const void *a, const void *b)
{
	const char *x = a, *y = b;

	return strncmp(x, y, strcspn(strchr(x, ' ') + 1, " ") + (size_t)(strchr(x, ' ') - x) + 2);
}

/*
 * Of the events that were not hit all come out but ends of regions and tasks, and those are counted
 * where they do not: a begin, a switch of fibers or a time may have been hit that they need.
 */
static void test_damaged_copies(void **state)
{
	size_t kept = 0, missing = 0;

	(void)state;
	for (int run = 0; run < 1000; run++) {
		_cleanup_(program_freep) struct program *p = NULL;
		_cleanup_json_ struct json_object *losses = json_object_new_object();
		_cleanup_close_ int fd = -1;
		uint64_t ends_missing = 0;
		struct lines got;

		seed = 0xd1342543de82ef95u * (uint64_t)(run + 1);
		p = program_run(1 + (uint32_t)random_below(MAX_RINGS), 64u << random_below(3),
			100 + (int)random_below(500));
		mark_seen(p);
		damage(p);
		fd = ringmake_file(p->make);
		assert_true(fd >= 0);
		got = lines_read(fd, losses);
		qsort(got.v, got.n, LINE, line_compare);
		for (int i = 0; i < p->n; i++) {
			const struct event *e = &p->events[i];
			char head[LINE];

			if (!e->seen || e->kind == RINGEVENT_THREAD)
				continue;
			(void)snprintf(head, sizeof(head), "%llu %u ", (unsigned long long)e->ts,
				       (unsigned)e->kind);
			if (bsearch(head, got.v, got.n, LINE, head_compare)) {
				kept++;
				continue;
			}
			assert_true(e->kind == RINGEVENT_REGION_END ||
				    e->kind == RINGEVENT_TASK_END);
			ends_missing++;
		}
		assert_true(ends_missing <= count_of(losses, "regions_crossing") +
						    count_of(losses, "ends_without_begin"));
		missing += ends_missing;
		free(got.v);
	}
	assert_true(kept > 20000);
	assert_true(missing < kept / 50);
}

/*
 * Nothing but random bytes in the rings, the directory and the names: no more is asked than that it
 * ends.
 */
static void test_noise(void **state)
{
	(void)state;
	for (int run = 0; run < 300; run++) {
		_cleanup_(program_freep) struct program *p = NULL;
		_cleanup_json_ struct json_object *losses = json_object_new_object();
		_cleanup_free_ uint8_t *data = NULL;
		_cleanup_close_ int fd = io_memfd("noise");
		size_t len, from;
		struct lines got;

		seed = 0xaf251af3b0f025b5u * (uint64_t)(run + 1);
		p = program_run(2, 256, 400);
		data = ringmake_bytes(p->make, &len);
		assert_non_null(data);
		from = sizeof(struct ringfile_header) + 2 * sizeof(struct ringfile_ring);
		for (size_t i = random_below(len - from) + from; i < len; i++)
			if (run % 2 || random_below(20) == 0)
				data[i] = (uint8_t)random_below(256);
		/* with the right sequences more of it looks like slots */
		for (size_t i = len - (size_t)512 * RING_SLOT_BYTES; run % 3 && i < len;
		     i += RING_SLOT_BYTES) {
			data[i + 12] = (uint8_t)(1 + random_below(RING_CONT));
			data[i + 14] = (uint8_t)(1 + random_below(2));
			data[i + 15] = 0;
		}
		assert_int_equal(io_pwrite_all(fd, data, len, 0), 0);
		got = lines_read(fd, losses);
		free(got.v);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_programs),
		cmocka_unit_test(test_damaged_copies),
		cmocka_unit_test(test_noise),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
