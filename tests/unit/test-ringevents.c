// SPDX-License-Identifier: Apache-2.0
/* What a program wrote into its rings, and what is made of it: whole, overwritten, damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/json.h"
#include "decode/ringevent.h"
#include "tests/unit/ring-make.h"

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
			(void)snprintf(out + n, size - n, " %s=%llu", a->key, (unsigned long long)a->value.u64);
			break;
		case RINGEVENT_I64:
			(void)snprintf(out + n, size - n, " %s=%lldi", a->key, (long long)a->value.i64);
			break;
		case RINGEVENT_F64:
			(void)snprintf(out + n, size - n, " %s=%gf", a->key, a->value.f64);
			break;
		case RINGEVENT_TEXT:
			(void)snprintf(out + n, size - n, " %s='%s'%s", a->key, a->value.text, a->cut ? "..." : "");
			break;
		case RINGEVENT_POINTER:
			(void)snprintf(out + n, size - n, " %s=%#llx", a->key, (unsigned long long)a->value.u64);
			break;
		}
	}
}

static long long since(uint64_t ts)
{
	return (long long)((int64_t)(ts - T0) / (int64_t)MS);
}

/* "TIME TID[/FIBER] WHAT" with times in ms since T0. */
static void print_event(char *out, size_t size, const struct ringevent *ev)
{
	static const char *const kinds[] = {"thread", "begin", "end", "instant", "log", "counter", "task", "done", "flow",
		"fiber", "trigger", "lost"};
	size_t n;

	(void)snprintf(out, size, "%lld %u", since(ev->ts), ev->tid);
	if (ev->fiber) {
		n = strlen(out);
		(void)snprintf(out + n, size - n, "/%llu", (unsigned long long)ev->fiber);
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
		(void)snprintf(out + n, size - n, " #%llu %u", (unsigned long long)ev->id, ev->flow);
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
	(void)snprintf(out + n, size - n, "%s%s", ev->began_early ? " early" : "", ev->unfinished ? " unfinished" : "");
}

static void read_files(struct ringmake **makes, size_t n_makes, const struct clock_bracket *brackets,
	size_t n_brackets, char *out, size_t size, struct json_object *stats, struct json_object *losses)
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
	_cleanup_json_ struct json_object *stats = json_object_new_object(), *lost = json_object_new_object();
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
	ringmake_field(&p, ringmake_name(m, "state"), RING_FIELD_NAME, &(uint32_t){ringmake_name(m, "ready")}, 4);
	ringmake_record(m, 0, RING_REGION_BEGIN, at(2), ringmake_name(m, "inner"), 0, 77, &p);
	ringmake_record(m, 0, RING_INSTANT, at(3), ringmake_name(m, "ping"), 0, 0, NULL);
	ringmake_end(m, 0, at(4), "inner", at(2));
	ringmake_record(m, 0, RING_COUNTER, at(5), ringmake_name(m, "queue"), (uint64_t)-3, 0, NULL);
	ringmake_record(m, 0, RING_COUNTER | RING_FLAG_F64, at(6), ringmake_name(m, "load"), bits, 0, NULL);
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
	ringmake_record(m, 0, RING_LOG, at(15), ringmake_name(m, "%s has %d%%"), RING_WARNING, 0, &p);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kinds),
	};

	(void)count_of;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
