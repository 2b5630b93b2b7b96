// SPDX-License-Identifier: Apache-2.0
/* What a program wrote into its rings, and what is made of it: whole, overwritten, damaged. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/io.h"
#include "common/control/json.h"
#include "decode/rings/event.h"
#include "tests/unit/decode/rings/ringfile-make.h"

#define MS UINT64_C(1000000)
#define T0 (UINT64_C(5000) * MS)

static struct budget budget = {.max = 256 << 20};

/* ---- events as lines of text, so that a test reads like what a user sees */

static void print_args(char *out, size_t size, const struct ringevent *ev)
{
	for (size_t i = 0; i < ev->n_args; i++) {
		const struct ringevent_arg *a = &ev->args[i];
		size_t n = strlen(out);

		switch (a->type) {
		case RINGEVENT_U64:
			(void)snprintf(out + n, size - n, " %s=%llu", a->key,
				       (unsigned long long)a->value.u64);
			break;
		case RINGEVENT_I64:
			(void)snprintf(out + n, size - n, " %s=%lldi", a->key,
				       (long long)a->value.i64);
			break;
		case RINGEVENT_F64:
			(void)snprintf(out + n, size - n, " %s=%gf", a->key, a->value.f64);
			break;
		case RINGEVENT_TEXT:
			(void)snprintf(out + n, size - n, " %s='%s'%s", a->key, a->value.text,
				       a->cut ? "..." : "");
			break;
		case RINGEVENT_POINTER:
			(void)snprintf(out + n, size - n, " %s=%#llx", a->key,
				       (unsigned long long)a->value.u64);
			break;
		}
	}
}

static long long since(uint64_t ts)
{
	return (long long)((int64_t)(ts - T0) / (int64_t)MS);
}

/* "TIME TID[/FIBER[=ITS NAME]] WHAT" with times in ms since T0. */
static void print_event(char *out, size_t size, const struct ringevent *ev)
{
	static const char *const kinds[] = {"thread", "begin",   "end",     "instant",
					    "log",    "counter", "task",    "done",
					    "flow",   "fiber",   "trigger", "lost"};
	size_t n;

	(void)snprintf(out, size, "%lld %u", since(ev->ts), ev->tid);
	if (ev->fiber) {
		n = strlen(out);
		(void)snprintf(out + n, size - n, "/%llu%s%s", (unsigned long long)ev->fiber,
			       ev->fiber_name ? "=" : "", ev->fiber_name ? ev->fiber_name : "");
	}
	n = strlen(out);
	(void)snprintf(out + n, size - n, " %s %s", kinds[ev->kind], ev->name ? ev->name : "-");
	n = strlen(out);
	if (ev->kind == RINGEVENT_COUNTER && ev->value_type == RINGEVENT_F64)
		(void)snprintf(out + n, size - n, " %g", ev->value.f64);
	else if (ev->kind == RINGEVENT_COUNTER)
		(void)snprintf(out + n, size - n, " %lld", (long long)ev->value.i64);
	else if (ev->kind == RINGEVENT_LOST)
		(void)snprintf(out + n, size - n, "%llu", (unsigned long long)ev->value.u64);
	else if (ev->kind == RINGEVENT_TASK_BEGIN || ev->kind == RINGEVENT_TASK_END)
		(void)snprintf(out + n, size - n, " #%llu<%llu", (unsigned long long)ev->task,
			(unsigned long long)ev->parent);
	else if (ev->kind == RINGEVENT_FLOW)
		(void)snprintf(out + n, size - n, " #%llu %u", (unsigned long long)ev->id,
			       ev->flow);
	else if (ev->kind == RINGEVENT_FIBER)
		(void)snprintf(out + n, size - n, " %llu", (unsigned long long)ev->id);
	else if (ev->kind == RINGEVENT_LOG)
		(void)snprintf(out + n, size - n, " !%u", ev->level);
	else if (ev->task)
		(void)snprintf(out + n, size - n, " in #%llu", (unsigned long long)ev->task);
	if (ev->began) {
		n = strlen(out);
		(void)snprintf(out + n, size - n, " since %lld", since(ev->began));
	}
	print_args(out, size, ev);
	n = strlen(out);
	(void)snprintf(out + n, size - n, "%s%s", ev->began_early ? " early" : "",
		       ev->unfinished ? " unfinished" : "");
}

static void read_files(struct ringmake **makes, size_t n_makes,
		       const struct clock_bracket *brackets, size_t n_brackets, char *out,
		       size_t size, struct json_object *stats, struct json_object *losses)
{
	_cleanup_(ringevents_freep) struct ringevents *r = NULL;
	uint64_t last = 0, next;
	struct ringevent ev;
	size_t n = 0;

	out[0] = '\0';
	assert_int_equal(ringevents_new(brackets, n_brackets, &budget, &r), 0);
	for (size_t i = 0; i < n_makes; i++) {
		_cleanup_close_ int fd = ringmake_file(makes[i]);

		assert_true(fd >= 0);
		assert_int_equal(ringevents_add(r, fd), 0);
	}
	assert_int_equal(ringevents_finish(r), 0);
	for (size_t i = 0; next = ringevents_peek(r), ringevents_next(r, &ev); i++) {
		assert_true(ev.ts == next && ev.ts >= last);
		last = ev.ts;
		print_event(out + n, size - n, &ev);
		n += strlen(out + n);
		(void)snprintf(out + n, size - n, "\n");
		n += strlen(out + n);
	}
	assert_true(next == UINT64_MAX);
	ringevents_report(r, stats, losses);
	r = ringevents_free(r);
	assert_int_equal(budget.used, 0);
}

static uint64_t count_of(struct json_object *o, const char *key)
{
	uint64_t n = 0;

	(void)json_get_uint(o, key, &n);
	return n;
}

/* What comes out of one file, and its losses as JSON. */
static void expect(struct ringmake *m, const char *events, const char *losses)
{
	_cleanup_json_ struct json_object *stats = json_object_new_object(),
					  *lost = json_object_new_object();
	static char text[1 << 16];

	read_files(&m, 1, NULL, 0, text, sizeof(text), stats, lost);
	assert_string_equal(text, events);
	assert_string_equal(json_object_to_json_string_ext(lost, JSON_C_TO_STRING_PLAIN), losses);
}

static uint64_t at(uint64_t ms)
{
	return T0 + ms * MS;
}

static struct ringmake *make(uint32_t slots)
{
	const struct ringmake_options o = {.slots = slots};
	struct ringmake *m = ringmake_new(&o);

	assert_non_null(m);
	return m;
}

static void test_kinds(void **state)
{
	_cleanup_(ringmake_freep) struct ringmake *m = make(64);
	struct ringmake_payload p = {0};
	double pi = 3.25;
	uint64_t bits;

	(void)state;
	memcpy(&bits, &pi, sizeof(bits));
	ringmake_thread(m, 0, at(0), 1001, "main");
	ringmake_begin(m, 0, at(1), "outer");
	ringmake_u64(&p, ringmake_name(m, "size"), 42);
	ringmake_i64(&p, ringmake_name(m, "left"), -7);
	ringmake_f64(&p, ringmake_name(m, "ratio"), 0.5);
	ringmake_text(&p, ringmake_name(m, "path"), "/srv/a\nb");
	ringmake_field(&p, 0, RING_FIELD_TEXT_CUT, "long", 4);
	ringmake_field(&p, ringmake_name(m, "at"), RING_FIELD_POINTER, &(uint64_t){0x1000}, 8);
	ringmake_field(&p, ringmake_name(m, "state"), RING_FIELD_NAME,
		       &(uint32_t){ringmake_name(m, "ready")}, 4);
	ringmake_record(m, 0, RING_REGION_BEGIN, at(2), ringmake_name(m, "inner"), 0, 77, &p);
	ringmake_record(m, 0, RING_INSTANT, at(3), ringmake_name(m, "ping"), 0, 0, NULL);
	ringmake_end(m, 0, at(4), "inner", at(2));
	ringmake_record(m, 0, RING_COUNTER, at(5), ringmake_name(m, "queue"), (uint64_t)-3, 0,
			NULL);
	ringmake_record(m, 0, RING_COUNTER | RING_FLAG_F64, at(6), ringmake_name(m, "load"), bits,
			0, NULL);
	ringmake_record(m, 0, RING_TASK_BEGIN, at(7), ringmake_name(m, "job"), 5, 4, NULL);
	ringmake_record(m, 0, RING_FLOW, at(8), ringmake_name(m, "hand"), 9, RING_FLOW_BEGIN, NULL);
	ringmake_thread(m, 1, at(9), 1002, NULL);
	ringmake_record(m, 1, RING_FLOW, at(10), ringmake_name(m, "hand"), 9, RING_FLOW_END, NULL);
	ringmake_record(m, 1, RING_TASK_END, at(11), ringmake_name(m, "job"), 5, at(7), NULL);
	ringmake_record(m, 1, RING_THREAD_NAME, at(12), ringmake_name(m, "worker"), 0, 0, NULL);
	ringmake_record(m, 0, RING_TRIGGER, at(13), ringmake_name(m, "outer"), at(1), 3, NULL);
	ringmake_end(m, 0, at(14), "outer", at(1));
	p.n = 0;
	ringmake_text(&p, 0, "bob");
	ringmake_i64(&p, 0, 12);
	ringmake_record(m, 0, RING_LOG, at(15), ringmake_name(m, "%s has %d%%"), RING_WARNING, 0,
			&p);
	p.n = 0;
	ringmake_text(&p, 0, "100% plain");
	ringmake_record(m, 0, RING_LOG, at(16), 0, RING_ERROR, 77, &p);
	expect(m,
	       "0 1001 thread main\n"
	       "1 1001 begin outer\n"
	       "2 1001 begin inner in #77 size=42 left=-7i ratio=0.5f path='/srv/a\\x0ab' ='long'... at=0x1000"
	       " state='ready'\n"
	       "3 1001 instant ping\n"
	       "4 1001 end inner since 2\n"
	       "5 1001 counter queue -3\n"
	       "6 1001 counter load 3.25\n"
	       "7 1001 task job #5<4\n"
	       "8 1001 flow hand #9 0\n"
	       "9 1002 thread -\n"
	       "10 1002 flow hand #9 2\n"
	       "11 1002 done job #5<0 since 7\n"
	       "12 1002 thread worker\n"
	       "13 1001 trigger outer since 1\n"
	       "14 1001 end outer since 1\n"
	       "15 1001 log bob has 12% !2\n"
	       "16 1001 log 100% plain !3\n",
	       "{}");
}

/* ---- regions whose other half is missing */

/* So many instants that only they are left of a ring of 64 slots, from `first` on. */
static void overwrite(struct ringmake *m, uint32_t ring, uint64_t ms)
{
	for (size_t i = 0; i < 64 - RING_SPAN_MAX - 1; i++)
		ringmake_record(m, ring, RING_COUNTER, at(ms), 0, i, 0, NULL);
}

static void test_begin_overwritten(void **state)
{
	_cleanup_(ringmake_freep) struct ringmake *m = make(64);
	_cleanup_json_ struct json_object *losses = json_object_new_object(),
					  *stats = json_object_new_object();
	const struct clock_bracket bracket = {.source = at(8), .monotonic = at(8)};
	static char text[1 << 16];
	char *p;

	(void)state;
	ringmake_thread(m, 0, at(0), 1001, "main");
	ringmake_begin(m, 0, at(1), "life");
	ringmake_begin(m, 0, at(5), "loop");
	for (size_t i = 0; i < 64; i++)
		ringmake_record(m, 0, RING_INSTANT, at(10), ringmake_name(m, "old"), 0, 0, NULL);
	ringmake_begin(m, 0, at(11), "step");
	overwrite(m, 0, 12);
	ringmake_end(m, 0, at(20), "step", at(11));
	ringmake_end(m, 0, at(30), "loop", at(5));
	ringmake_end(m, 0, at(31), "life", at(1));
	/* the oldest that is there is at 12 */
	read_files(&m, 1, NULL, 0, text, sizeof(text), stats, losses);
	p = strstr(text, "12 1001 counter");
	assert_non_null(p);
	*p = '\0';
	assert_string_equal(text,
		"12 1001 begin life since 1 early\n"
		"12 1001 begin loop since 5 early\n"
		"12 1001 begin step since 11 early\n"
		"12 1001 lost 70\n"
		"12 1001 thread main\n");
	assert_non_null(strstr(
		p + 1,
		"20 1001 end step since 11\n30 1001 end loop since 5\n31 1001 end life since 1\n"));
	assert_int_equal(count_of(losses, "events_overwritten"), 70);
	/* the daemon has looked since 8: what began then is drawn then */
	read_files(&m, 1, &bracket, 1, text, sizeof(text), stats, losses);
	p = strstr(text, "12 1001");
	assert_non_null(p);
	*p = '\0';
	assert_string_equal(text,
		"8 1001 begin life since 1 early\n"
		"8 1001 begin loop since 5 early\n"
		"11 1001 begin step since 11 early\n");
}

static void test_unfinished(void **state)
{
	_cleanup_(ringmake_freep) struct ringmake *m = make(64);

	(void)state;
	ringmake_thread(m, 0, at(0), 1001, NULL);
	ringmake_begin(m, 0, at(1), "a");
	ringmake_begin(m, 0, at(2), "left by a jump");
	ringmake_end(m, 0, at(3), "a", at(1));
	ringmake_begin(m, 0, at(4), "still running");
	ringmake_record(m, 0, RING_TASK_BEGIN, at(5), ringmake_name(m, "job"), 9, 0, NULL);
	expect(m,
		"0 1001 thread -\n"
		"1 1001 begin a\n"
		"2 1001 begin left by a jump unfinished\n"
		"3 1001 end a since 1\n"
		"4 1001 begin still running unfinished\n"
		"5 1001 task job #9<0 unfinished\n",
		"{}");
}

static void test_ends_of_nothing(void **state)
{
	_cleanup_(ringmake_freep) struct ringmake *m = make(64);

	(void)state;
	ringmake_thread(m, 0, at(0), 1001, NULL);
	ringmake_begin(m, 0, at(1), "a");
	ringmake_end(m, 0, at(2), "a", 0);
	ringmake_end(m, 0, at(3), "a", at(5));
	ringmake_end(m, 0, at(4), "a", UINT64_MAX);
	ringmake_end(m, 0, at(5), "a", at(1));
	/* the same end twice */
	ringmake_end(m, 0, at(6), "a", at(1));
	ringmake_record(m, 0, RING_TASK_END, at(7), ringmake_name(m, "t"), 3, 0, NULL);
	ringmake_record(m, 0, RING_TASK_END, at(8), ringmake_name(m, "t"), 4, at(6), NULL);
	ringmake_record(m, 0, RING_TASK_END, at(9), ringmake_name(m, "t"), 4, at(6), NULL);
	/* of one that had the same number, and began before */
	ringmake_record(m, 0, RING_TASK_BEGIN, at(10), ringmake_name(m, "u"), 5, 0, NULL);
	ringmake_record(m, 0, RING_TASK_END, at(11), ringmake_name(m, "t"), 5, at(6), NULL);
	ringmake_record(m, 0, RING_TASK_END, at(12), ringmake_name(m, "u"), 5, at(10), NULL);
	expect(m,
		"0 1001 thread -\n"
		"1 1001 begin a\n"
		"5 1001 end a since 1\n"
		"6 1001 task t #4<0 since 6 early\n"
		"8 1001 done t #4<0 since 6\n"
		"10 1001 task u #5<0\n"
		"12 1001 done u #5<0 since 10\n",
		"{\"ends_without_begin\":7}");
}

/* Regions that were not ended in turn: the one that was begun later is cut. */
static void test_crossing(void **state)
{
	_cleanup_(ringmake_freep) struct ringmake *m = make(64);

	(void)state;
	ringmake_thread(m, 0, at(0), 1001, NULL);
	ringmake_begin(m, 0, at(1), "a");
	ringmake_begin(m, 0, at(2), "b");
	ringmake_end(m, 0, at(3), "a", at(1));
	ringmake_end(m, 0, at(4), "b", at(2));
	/* an end whose begin is not there, and would be within what has ended */
	ringmake_begin(m, 0, at(5), "c");
	ringmake_begin(m, 0, at(6), "d");
	ringmake_end(m, 0, at(8), "d", at(6));
	ringmake_end(m, 0, at(9), "c", at(5));
	ringmake_end(m, 0, at(10), "e", at(7));
	expect(m,
		"0 1001 thread -\n"
		"1 1001 begin a\n"
		"2 1001 begin b unfinished\n"
		"3 1001 end a since 1\n"
		"5 1001 begin c\n"
		"6 1001 begin d\n"
		"8 1001 end d since 6\n"
		"9 1001 end c since 5\n",
		"{\"regions_crossing\":2}");
}

/* A clock that is too coarse: the order of the ring decides, and the innermost that fits. */
static void test_same_time(void **state)
{
	_cleanup_(ringmake_freep) struct ringmake *m = make(64);

	(void)state;
	ringmake_thread(m, 0, at(1), 1001, NULL);
	ringmake_begin(m, 0, at(1), "a");
	ringmake_begin(m, 0, at(1), "b");
	ringmake_begin(m, 0, at(1), "a");
	ringmake_end(m, 0, at(1), "a", at(1));
	ringmake_record(m, 0, RING_INSTANT, at(1), ringmake_name(m, "i"), 0, 0, NULL);
	ringmake_end(m, 0, at(1), "b", at(1));
	ringmake_begin(m, 0, at(1), "c");
	ringmake_end(m, 0, at(1), "c", at(1));
	ringmake_end(m, 0, at(2), "a", at(1));
	/* their begins are not there: behind what ended then, around what began then */
	ringmake_begin(m, 0, at(3), "before");
	ringmake_end(m, 0, at(4), "before", at(3));
	ringmake_begin(m, 0, at(4), "inner");
	ringmake_end(m, 0, at(5), "inner", at(4));
	ringmake_end(m, 0, at(6), "early", at(4));
	ringmake_end(m, 0, at(7), "earlier", at(4));
	expect(m,
		"1 1001 thread -\n"
		"1 1001 begin a\n"
		"1 1001 begin b\n"
		"1 1001 begin a\n"
		"1 1001 end a since 1\n"
		"1 1001 instant i\n"
		"1 1001 end b since 1\n"
		"1 1001 begin c\n"
		"1 1001 end c since 1\n"
		"2 1001 end a since 1\n"
		"3 1001 begin before\n"
		"4 1001 end before since 3\n"
		"4 1001 begin earlier since 4 early\n"
		"4 1001 begin early since 4 early\n"
		"4 1001 begin inner\n"
		"5 1001 end inner since 4\n"
		"6 1001 end early since 4\n"
		"7 1001 end earlier since 4\n",
		"{}");
}

/* ---- threads and fibers */

static void test_fibers(void **state)
{
	_cleanup_(ringmake_freep) struct ringmake *m = make(64);

	(void)state;
	ringmake_thread(m, 0, at(0), 1001, "one");
	ringmake_begin(m, 0, at(1), "poll");
	ringmake_fiber(m, 0, at(2), 7, "fiber A");
	ringmake_begin(m, 0, at(3), "request");
	ringmake_fiber(m, 0, at(4), 0, NULL);
	ringmake_end(m, 0, at(5), "poll", at(1));
	ringmake_thread(m, 1, at(6), 1002, "two");
	ringmake_fiber(m, 1, at(7), 7, "fiber A");
	ringmake_end(m, 1, at(8), "request", at(3));
	ringmake_fiber(m, 1, at(9), 8, "fiber B");
	expect(m,
		"0 1001 thread one\n"
		"1 1001 begin poll\n"
		"2 1001/7=fiber A fiber fiber A 7\n"
		"3 1001/7=fiber A begin request\n"
		"4 1001 fiber  0\n"
		"5 1001 end poll since 1\n"
		"6 1002 thread two\n"
		"7 1002/7=fiber A fiber fiber A 7\n"
		"8 1002/7=fiber A end request since 3\n"
		"9 1002/8=fiber B fiber fiber B 8\n",
		"{}");
}

/* Where the window begins on a fiber, the next switch says which, or the directory. */
static void test_fiber_at_the_edge(void **state)
{
	_cleanup_(ringmake_freep) struct ringmake *m = make(64);
	_cleanup_json_ struct json_object *losses = json_object_new_object(),
					  *stats = json_object_new_object();
	static char text[1 << 16];

	(void)state;
	for (uint32_t ring = 0; ring < 2; ring++) {
		ringmake_thread(m, ring, at(ring), 1001 + ring, "thread");
		ringmake_fiber(m, ring, at(2), 5 + ring, "fiber");
		for (size_t i = 0; i < 64; i++)
			ringmake_record(m, ring, RING_COUNTER, at(4), 0, 0, 0, NULL);
		ringmake_begin(m, ring, at(5), "a");
		overwrite(m, ring, 6);
	}
	ringmake_end(m, 0, at(10), "a", at(5));
	ringmake_fiber(m, 0, at(11), 0, NULL);
	ringmake_end(m, 1, at(12), "a", at(5));
	/* the first one's name is known by a later switch to it, the other's by none */
	ringmake_fiber(m, 0, at(13), 5, "fiber A");
	read_files(&m, 1, NULL, 0, text, sizeof(text), stats, losses);
	assert_non_null(strstr(text, "6 1001/5=fiber A begin a since 5 early\n"));
	assert_non_null(strstr(
		text,
		"10 1001/5=fiber A end a since 5\n11 1001 fiber  0\n12 1002/6 end a since 5\n"));
	assert_non_null(strstr(text, "6 1001/5=fiber A thread thread\n"));
}

static void test_ring_taken_over(void **state)
{
	_cleanup_(ringmake_freep) struct ringmake *m = make(64);
	_cleanup_json_ struct json_object *losses = json_object_new_object(),
					  *stats = json_object_new_object();
	static char text[1 << 16];

	(void)state;
	ringmake_thread(m, 0, at(0), 1001, "first");
	for (size_t i = 0; i < 60; i++)
		ringmake_record(m, 0, RING_INSTANT, at(1), ringmake_name(m, "x"), 0, 0, NULL);
	ringmake_thread(m, 0, at(2), 1002, "second");
	ringmake_record(m, 0, RING_INSTANT, at(3), ringmake_name(m, "y"), 0, 0, NULL);
	/* two more that only the second ring had; the newer came after the copy of the slots */
	ringmake_thread(m, 1, at(4), 1003, "third");
	overwrite(m, 1, 5);
	overwrite(m, 1, 6);
	overwrite(m, 1, 7);
	ringmake_entry(m, 1)->tid = 1004;
	ringmake_entry(m, 1)->claimed = at(8);
	read_files(&m, 1, NULL, 0, text, sizeof(text), stats, losses);
	assert_non_null(strstr(text, "1 1001 lost 39\n1 1001 thread -\n1 1001 instant x\n"));
	assert_non_null(strstr(text, "2 1002 thread second\n3 1002 instant y\n"));
	assert_non_null(strstr(text, "6 1073741824 thread unknown thread\n"));
	assert_null(strstr(text, "1004"));
}

/* In a pid namespace the program does not know what the daemon calls its threads. */
static void test_namespace(void **state)
{
	const struct ringmake_options o = {.pid = 5000, .nspid = 1};
	_cleanup_(ringmake_freep) struct ringmake *m = ringmake_new(&o);

	(void)state;
	assert_non_null(m);
	ringmake_thread(m, 0, at(0), 8, "gone");
	ringmake_thread(m, 0, at(1), 7, "main");
	ringmake_thread(m, 1, at(2), 9, NULL);
	ringmake_ring(m, 0)->host_tid = 5001;
	expect(m,
		"0 1073741824 thread gone (thread 8 of the program's)\n"
		"1 5001 thread main\n"
		"2 1073741825 thread thread 9 of the program's\n",
		"{}");
}

/* ---- wrong numbers */

static void test_stamps(void **state)
{
	_cleanup_(ringmake_freep) struct ringmake *m = make(64);

	(void)state;
	ringmake_program(m)->started = at(0);
	ringmake_thread(m, 0, at(0), 1001, NULL);
	for (uint64_t i = 1; i <= 8; i++)
		ringmake_begin(m, 0, at(i), "a");
	ringmake_slot(m, 0, 2)->stamp = 0;
	ringmake_slot(m, 0, 3)->stamp = UINT64_MAX;
	ringmake_slot(m, 0, 4)->stamp = 1;
	ringmake_slot(m, 0, 5)->stamp = at(10000); /* after the copy */
	ringmake_slot(m, 0, 6)->stamp = at(4500);  /* before it, but not between its neighbours */
	ringmake_slot(m, 0, 7)->stamp = at(5);	   /* as a signal handler's may be */
	expect(m,
		"0 1001 thread -\n"
		"1 1001 begin a unfinished\n"
		"5 1001 begin a unfinished\n"
		"8 1001 begin a unfinished\n",
		"{\"stamps_wrong\":5}");
}

static void test_signal_handler(void **state)
{
	_cleanup_(ringmake_freep) struct ringmake *m = make(64);

	(void)state;
	ringmake_thread(m, 0, at(0), 1001, NULL);
	/* it took its time, then was interrupted before it had its slots */
	ringmake_begin(m, 0, at(2), "handler");
	ringmake_end(m, 0, at(3), "handler", at(2));
	ringmake_begin(m, 0, at(1), "main");
	ringmake_end(m, 0, at(4), "main", at(1));
	expect(m,
		"0 1001 thread -\n"
		"1 1001 begin main\n"
		"2 1001 begin handler\n"
		"3 1001 end handler since 2\n"
		"4 1001 end main since 1\n",
		"{}");
}

static void test_names(void **state)
{
	_cleanup_(ringmake_freep) struct ringmake *m = make(64);
	struct ringmake_payload p = {0};

	(void)state;
	ringmake_thread(m, 0, at(0), 1001, "bad\x1b[31m\xff");
	ringmake_record(m, 0, RING_INSTANT, at(1), 0, 0, 0, NULL);
	ringmake_record(m, 0, RING_INSTANT, at(2), 200, 0, 0, NULL);
	ringmake_record(m, 0, RING_LOG, at(3), UINT32_MAX, RING_INFO, 0, NULL);
	ringmake_u64(&p, 99, 1);
	ringmake_field(&p, 0, RING_FIELD_NAME, &(uint32_t){12345}, 4);
	ringmake_record(m, 0, RING_INSTANT, at(4),
			ringmake_name(m, "\xe2\x80\xae"
					 "evil"),
			0, 0, &p);
	ringmake_record(m, 0, RING_LOG, at(5), ringmake_name(m, "%d\n"), 99, 0, &p);
	p.n = 0;
	ringmake_u64(&p, 0, 1);
	p.bytes[6] = 200; /* the field is longer than its record */
	ringmake_record(m, 0, RING_INSTANT, at(6), ringmake_name(m, "x"), 0, 0, &p);
	ringmake_record(m, 0, RING_FLOW, at(7), 0, 0, 0, NULL);
	ringmake_record(m, 0, RING_FLOW, at(8), 0, 1, 3, NULL);
	ringmake_record(m, 0, RING_TASK_BEGIN, at(9), 0, 0, 0, NULL);
	expect(m,
		"0 1001 thread bad\\x1b[31m\\xff\n"
		"1 1001 instant <no name>\n"
		"2 1001 instant <unknown name>\n"
		"3 1001 log <unknown format> !1\n"
		"4 1001 instant \\xe2\\x80\\xaeevil <unknown name>=1 ='<unknown name>'\n"
		"5 1001 log 1\\x0a !1\n"
		"6 1001 instant x\n",
		"{\"events_malformed\":3,\"names_unknown\":4,\"fields_malformed\":1}");
}

static void test_arguments_over_the_limit(void **state)
{
	_cleanup_(ringmake_freep) struct ringmake *m = make(128);
	_cleanup_(ringevents_freep) struct ringevents *r = NULL;
	_cleanup_close_ int fd = -1;
	struct ringmake_payload p = {0};
	char text[1100];
	struct ringevent ev;

	(void)state;
	memset(text, 1, sizeof(text)); /* each byte is shown as four */
	ringmake_thread(m, 0, at(0), 1001, NULL);
	for (size_t i = 0; i < 40; i++)
		ringmake_u64(&p, 0, i);
	ringmake_record(m, 0, RING_INSTANT, at(1), ringmake_name(m, "x"), 0, 0, &p);
	p.n = 0;
	ringmake_field(&p, 0, RING_FIELD_TEXT, text, sizeof(text));
	ringmake_record(m, 1, RING_INSTANT, at(2), ringmake_name(m, "y"), 0, 0, &p);
	fd = ringmake_file(m);
	assert_int_equal(ringevents_new(NULL, 0, &budget, &r), 0);
	assert_int_equal(ringevents_add(r, fd), 0);
	assert_int_equal(ringevents_finish(r), 0);
	while (ringevents_next(r, &ev) && ev.kind != RINGEVENT_INSTANT)
		;
	assert_int_equal(ev.n_args, RINGEVENT_MAX_ARGS);
	assert_int_equal(ev.args[23].value.u64, 23);
	while (ringevents_next(r, &ev) && ev.kind != RINGEVENT_INSTANT)
		;
	assert_int_equal(ev.n_args, 1);
	assert_int_equal(strlen(ev.args[0].value.text), 4 * sizeof(text));
}

/* ---- several programs, other clocks */

static void test_two_programs(void **state)
{
	const struct ringmake_options o[] = {{.pid = 1000, .clock = RING_CLOCK_TSC},
					     {.pid = 2000, .clock = RING_CLOCK_MONOTONIC_RAW}};
	const struct clock_bracket brackets[] = {{.source = 3 * at(0), .monotonic = at(0)},
		{.source = 3 * at(100), .monotonic = at(100)}};
	_cleanup_(ringmake_freep) struct ringmake *a = ringmake_new(&o[0]),
						  *b = ringmake_new(&o[1]);
	_cleanup_json_ struct json_object *losses = json_object_new_object(),
					  *stats = json_object_new_object();
	struct ringmake *both[] = {a, b};
	static char text[1 << 16];

	(void)state;
	assert_true(a && b);
	ringmake_thread(a, 0, 3 * at(1), 1001, "a");
	ringmake_begin(a, 0, 3 * at(3), "x");
	ringmake_record(a, 0, RING_TASK_BEGIN, 3 * at(5), ringmake_name(a, "t"), 1, 0, NULL);
	ringmake_end(a, 0, 3 * at(7), "x", 3 * at(3));
	ringmake_thread(b, 0, at(2), 2001, "b");
	ringmake_begin(b, 0, at(4), "x");
	ringmake_record(b, 0, RING_TASK_END, at(6), ringmake_name(b, "t"), 1, at(5), NULL);
	ringmake_program(a)->lost_events = UINT64_MAX;
	ringmake_program(b)->lost_events = 5;
	ringmake_program(b)->lost_names = 6;
	ringmake_program(a)->lost_long = 7;
	ringmake_program(b)->requests_suppressed = 1;
	ringmake_program(b)->suppressed[63] = 2;
	ringmake_header(b)->flags = RINGFILE_CUT;
	read_files(both, 2, brackets, 2, text, sizeof(text), stats, losses);
	assert_string_equal(text,
		"1 1001 thread a\n"
		"2 2001 thread b\n"
		"3 1001 begin x\n"
		"4 2001 begin x unfinished\n"
		"5 2001 task t #1<0 since 5 early\n"
		"5 1001 task t #1<0 unfinished\n"
		"6 2001 done t #1<0 since 5\n"
		"7 1001 end x since 3\n");
	assert_true(count_of(losses, "events_lost") == INT64_MAX);
	assert_int_equal(count_of(losses, "names_lost"), 6);
	assert_int_equal(count_of(losses, "texts_cut"), 7);
	assert_int_equal(count_of(losses, "programs_cut"), 1);
	assert_int_equal(count_of(stats, "requests_suppressed"), 3);
	assert_int_equal(count_of(stats, "programs"), 2);
	assert_int_equal(count_of(stats, "rings"), 2);
	assert_int_equal(count_of(stats, "events"), 8);
}

static void test_not_a_copy(void **state)
{
	_cleanup_(ringevents_freep) struct ringevents *r = NULL;
	_cleanup_json_ struct json_object *losses = json_object_new_object(),
					  *stats = json_object_new_object();
	_cleanup_close_ int empty = io_memfd("empty");
	struct ringevent ev;

	(void)state;
	assert_int_equal(ringevents_new(NULL, 0, &budget, &r), 0);
	assert_int_equal(ringevents_add(r, empty), RINGEVENTS_E_INVALID);
	assert_int_equal(ringevents_add(r, -1), -EBADF);
	assert_int_equal(ringevents_finish(r), 0);
	assert_true(ringevents_peek(r) == UINT64_MAX);
	assert_false(ringevents_next(r, &ev));
	ringevents_report(r, stats, losses);
	assert_int_equal(count_of(losses, "ring_files_invalid"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_begin_overwritten),
		cmocka_unit_test(test_unfinished),
		cmocka_unit_test(test_ends_of_nothing),
		cmocka_unit_test(test_crossing),
		cmocka_unit_test(test_same_time),
		cmocka_unit_test(test_fibers),
		cmocka_unit_test(test_fiber_at_the_edge),
		cmocka_unit_test(test_ring_taken_over),
		cmocka_unit_test(test_namespace),
		cmocka_unit_test(test_stamps),
		cmocka_unit_test(test_signal_handler),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_arguments_over_the_limit),
		cmocka_unit_test(test_two_programs),
		cmocka_unit_test(test_not_a_copy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
