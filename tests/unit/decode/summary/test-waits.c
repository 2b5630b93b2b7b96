/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who held what a wait was for, where the waits that tell it are many, or in functions that say
 * what it was.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "common/control/json.h"
#include "decode/summary/summary.h"

#define FUTEX 7u
#define FIRST 1000u /* who waits; those before it in the queue have the numbers below */

struct fixture {
	struct stacktab *st;
	struct summary *s;
	struct json_object *json;
};

static void start(struct fixture *x)
{
	*x = (struct fixture){.s = NULL};
	assert_int_equal(stacktab_new(0, &x->st), 0);
	assert_int_equal(summary_new(x->st, false, &x->s), 0);
}

static void end(struct fixture *x)
{
	json_object_put(x->json);
	summary_free(x->s);
	stacktab_free(x->st);
}

/* Outermost first. */
static uint32_t stack(struct fixture *x, const char *const *names)
{
	uint32_t id = STACKTAB_ROOT;

	for (; *names; names++)
		id = stacktab_push(x->st, id,
				   stacktab_frame(x->st, &(struct frame_info){.name = *names}));
	return id;
}

/* Who woke it is to be said. */
static struct summary_wait in_futex(struct fixture *x, uint32_t tid, uint64_t begin, uint64_t until,
				    const char *const *names)
{
	return (struct summary_wait){.thread = tid,
				     .tid = tid,
				     .name = "waiter",
				     .begin = begin,
				     .end = until,
				     .state = OFF_CPU_SLEEPING,
				     .stack = stack(x, names),
				     .call = "futex",
				     .fd = UINT32_MAX,
				     .woken = true};
}

static void waits_woken(struct fixture *x, uint32_t tid, uint32_t futex, uint64_t begin,
			uint64_t woken_at, uint64_t until, uint32_t waker, const char *const *names)
{
	struct summary_wait w = in_futex(x, tid, begin, until, names);

	w.woken_at = woken_at;
	w.futex = futex;
	w.waker_tid = waker;
	w.waker_name = "waker";
	w.waker_call = "futex";
	summary_wait(x->s, &w);
}

static void waits(struct fixture *x, uint32_t tid, uint32_t futex, uint64_t begin, uint64_t until,
		  uint32_t waker, const char *const *names)
{
	waits_woken(x, tid, futex, begin, 0, until, waker, names);
}

static void nobody(void *arg, uint32_t index, struct summary_thread *ret)
{
	(void)arg;
	(void)index;
	*ret = (struct summary_thread){.name = ""};
}

static struct json_object *member(struct json_object *o, const char *key)
{
	struct json_object *v = NULL;

	(void)json_object_object_get_ex(o, key, &v);
	return v;
}

/* The `held_by` of the longest wait, or NULL. */
static struct json_object *held_by(struct fixture *x)
{
	assert_int_equal(summary_to_json(x->s, 1, 1000000, 0, nobody, NULL, &x->json), 0);
	return member(json_object_array_get_idx(member(x->json, "waits"), 0), "held_by");
}

static int64_t number(struct json_object *o, const char *key)
{
	return json_object_get_int64(member(o, key));
}

static const char *const in_lock[] = {"main", "lock", NULL};

/*
 * FIRST waits from 100 on, behind `n` others: who is woken wakes the next, and the first of them
 * was woken by who held it.
 */
static void queue(struct fixture *x, uint32_t n)
{
	for (uint32_t i = n; i > 0; i--)
		waits(x, FIRST + i, FUTEX, 50, 1000 + 10 * (n - i), FIRST + i + 1, in_lock);
	waits(x, FIRST, FUTEX, 100, 1000 + 10 * n, FIRST + 1, in_lock);
}

static void a_long_queue_is_followed_to_its_begin(void **state)
{
	struct json_object *held;
	struct fixture x;

	(void)state;
	start(&x);
	queue(&x, 300);
	/* it is longer than any of the queue's */
	waits(&x, FIRST + 500, FUTEX, 1, 4010, FIRST, in_lock);
	held = held_by(&x);
	assert_int_equal(number(held, "tid"), FIRST + 301);
	assert_int_equal(number(held, "handovers"), 301);
	assert_null(member(held, "cut"));
	end(&x);
}

static void what_is_forgotten_is_said(void **state)
{
	struct json_object *held;
	struct fixture x;

	(void)state;
	start(&x);
	queue(&x, 3);
	/* others wait for another lock meanwhile, so often that the queue is not remembered */
	for (uint32_t i = 0; i < 5000; i++)
		waits(&x, FIRST + 600, 8, 2000 + i, 2001 + i, FIRST + 601, in_lock);
	waits(&x, FIRST + 500, FUTEX, 1, 8000, FIRST, in_lock);
	held = held_by(&x);
	assert_int_equal(number(held, "tid"), FIRST);
	assert_int_equal(number(held, "handovers"), 0);
	assert_true(json_object_get_boolean(member(held, "cut")));
	end(&x);
}

/* One of the queue kept it for 97 us, the first one, after the wait had begun, for 10 us. */
static void who_held_it_longest_is_named(void **state)
{
	struct json_object *held, *longest;
	struct fixture x;

	(void)state;
	start(&x);
	waits(&x, FIRST + 2, FUTEX, 500, 11000, FIRST + 3, in_lock);
	waits(&x, FIRST + 1, FUTEX, 600, 108000, FIRST + 2, in_lock);
	waits(&x, FIRST, FUTEX, 1000, 110000, FIRST + 1, in_lock);
	waits(&x, FIRST + 4, FUTEX, 400, 112000, FIRST, in_lock);
	held = held_by(&x);
	longest = member(held, "longest");
	assert_int_equal(number(held, "tid"), FIRST + 3);
	assert_int_equal(number(longest, "tid"), FIRST + 2);
	assert_int_equal(number(longest, "ns"), 97000);
	end(&x);
}

/* It was the first one: there is nothing to add. */
static void who_held_it_first_and_longest_is_named_once(void **state)
{
	struct json_object *held;
	struct fixture x;

	(void)state;
	start(&x);
	waits(&x, FIRST + 1, FUTEX, 600, 90000, FIRST + 2, in_lock);
	waits(&x, FIRST, FUTEX, 500, 110000, FIRST + 1, in_lock);
	held = held_by(&x);
	assert_int_equal(number(held, "tid"), FIRST + 2);
	assert_null(member(held, "longest"));
	end(&x);
}

/* It was let go before the wait began; who had it next had no CPU at first, and then kept it. */
static void what_was_let_go_before_is_not_held(void **state)
{
	struct json_object *longest;
	struct fixture x;

	(void)state;
	start(&x);
	waits_woken(&x, FIRST, FUTEX, 500, 900, 100000, FIRST + 1, in_lock);
	waits_woken(&x, FIRST + 4, FUTEX, 1000, 200000, 201000, FIRST, in_lock);
	longest = member(held_by(&x), "longest");
	assert_int_equal(number(longest, "tid"), FIRST);
	assert_int_equal(number(longest, "ns"), 100000);
	end(&x);
}

/*
 * Who is woken by a broadcast waits for the mutex, in a queue like the others. What comes before
 * that has no holder.
 */
static void the_mutex_of_a_condition_is_held(void **state)
{
	static const char *const in_mutex[] = {"pop", "pthread_cond_wait",
					       "__pthread_mutex_cond_lock", "__lll_lock_wait",
					       NULL};
	struct json_object *held;
	struct fixture x;

	(void)state;
	start(&x);
	waits(&x, FIRST + 1, FUTEX, 600, 90000, FIRST + 2, in_mutex);
	waits(&x, FIRST, FUTEX, 500, 110000, FIRST + 1, in_mutex);
	held = held_by(&x);
	assert_int_equal(number(held, "tid"), FIRST + 2);
	end(&x);
}

static void nobody_holds_what_is_posted(void **state)
{
	static const char *const stacks[][5] = {
		{"pop", "pthread_cond_wait@@GLIBC_2.3.2", "__futex_abstimed_wait_common"},
		{"pop", "__pthread_cond_timedwait", "__futex_abstimed_wait_common"},
		{"acquire", "sem_wait@@GLIBC_2.34", "do_futex_wait"},
		{"acquire", "__new_sem_wait_slow64", "do_futex_wait"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(stacks); i++) {
		struct fixture x;

		start(&x);
		waits(&x, FIRST + 1, FUTEX, 600, 90000, FIRST + 2, stacks[i]);
		waits(&x, FIRST, FUTEX, 500, 110000, FIRST + 1, stacks[i]);
		assert_null(held_by(&x));
		end(&x);
	}
}

/*
 * Both kinds have their places, in the slow moment, too, each with three stacks, and all of it
 * fits.
 */
static void the_longest_of_both_kinds_fit(void **state)
{
	static char texts[64][300];
	const char *names[65] = {NULL};
	struct json_object *focus;
	struct fixture x;
	size_t len = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		memset(texts[i], 'f', sizeof(texts[i]) - 1);
		names[i] = texts[i];
	}
	start(&x);
	summary_focus(x.s, 1, 1000000);
	for (uint32_t i = 0; i < 30; i++) {
		const uint32_t place = stack(&x, names);
		struct summary_wait w = {.thread = i,
					 .tid = i,
					 .name = texts[0],
					 .begin = 100,
					 .end = 50000 + i,
					 .state = OFF_CPU_SLEEPING,
					 .stack = place,
					 .fd = UINT32_MAX,
					 .woken = true,
					 .waker_tid = i + 1,
					 .waker_name = texts[0],
					 .waker_stack = place};

		texts[0][0] = (char)('A' + i);
		summary_wait(x.s, &w);
		w.woken_by_irq = true;
		summary_wait(x.s, &w);
	}
	assert_int_equal(summary_to_json(x.s, 1, 1000000, 0, nobody, NULL, &x.json), 0);
	assert_non_null(json_text(x.json, &len));
	assert_true(len <= SUMMARY_MAX_JSON);
	focus = member(x.json, "focus");
	/* shortened, but there are as many of each kind */
	for (struct json_object *o = x.json; o; o = o == focus ? NULL : focus) {
		struct json_object *list = member(o, "waits");
		size_t by_thread = 0, n = json_object_array_length(list);

		for (size_t i = 0; i < n; i++)
			by_thread += member(member(json_object_array_get_idx(list, i), "woken_by"),
					    "tid") != NULL;
		assert_true(by_thread > 0);
		assert_int_equal(by_thread * 2, n);
	}
	end(&x);
}

static void times_out(struct fixture *x, uint64_t begin, uint64_t until, const char *const *names)
{
	struct summary_wait w = in_futex(x, FIRST, begin, until, names);

	w.woken_by_irq = true;
	w.waker_name = "idle";
	summary_wait(x->s, &w);
}

/* It asks for CPython's interpreter every 5 ms, three times, and has it then. */
static void play_retries(struct fixture *x, const char *const *names, uint64_t apart)
{
	start(x);
	for (uint64_t i = 0; i < 3; i++)
		times_out(x, 1000000 + i * (5000000 + apart), 6000000 + i * (5000000 + apart),
			  names);
	waits(x, FIRST, 0, 1000000 + 3 * (5000000 + apart), 17000000 + 3 * apart, FIRST + 1, names);
	assert_int_equal(summary_to_json(x->s, 1, 100000000, 0, nobody, NULL, &x->json), 0);
}

static void a_lock_that_is_tried_again_is_one_wait(void **state)
{
	static const char *const in_gil[] = {"main", "_PyEval_EvalFrameDefault", "take_gil",
					     "pthread_cond_timedwait", NULL};
	static const char *const in_stripped[] = {"main", "_PyEval_EvalFrameDefault",
						  "[python3.11+0x42]", "pthread_cond_clockwait",
						  NULL};
	static const char *const in_queue[] = {"main", "idle", "pthread_cond_timedwait", NULL};
	static const char *const in_module[] = {"[python3.11+0x42]", "idle",
						"pthread_cond_timedwait", NULL};
	struct json_object *list, *w;
	struct fixture x;

	(void)state;
	play_retries(&x, in_gil, 20000);
	list = member(x.json, "waits");
	assert_int_equal(json_object_array_length(list), 1);
	w = json_object_array_get_idx(list, 0);
	assert_int_equal(number(w, "ns"), 16060000);
	assert_int_equal(number(w, "begin_ns"), 1000000);
	assert_int_equal(number(w, "count"), 1);
	assert_int_equal(number(w, "total_ns"), 16060000);
	assert_int_equal(number(member(w, "woken_by"), "tid"), FIRST + 1);
	end(&x);

	/*
	 * the interpreter's functions have no names; but one that it has called does wait for a
	 * condition
	 */
	play_retries(&x, in_stripped, 20000);
	assert_int_equal(json_object_array_length(member(x.json, "waits")), 1);
	end(&x);
	play_retries(&x, in_module, 20000);
	assert_int_equal(json_object_array_length(member(x.json, "waits")), 2);
	end(&x);

	/* it has run in between */
	play_retries(&x, in_gil, 200000);
	assert_int_equal(json_object_array_length(member(x.json, "waits")), 2);
	end(&x);

	/* nor is a condition a lock */
	play_retries(&x, in_queue, 20000);
	assert_int_equal(json_object_array_length(member(x.json, "waits")), 2);
	end(&x);

	/* the last that is known of it */
	start(&x);
	times_out(&x, 1000000, 6000000, in_gil);
	assert_int_equal(summary_to_json(x.s, 1, 100000000, 0, nobody, NULL, &x.json), 0);
	assert_int_equal(json_object_array_length(member(x.json, "waits")), 1);
	end(&x);
}

static void one_process(void *arg, uint32_t index, struct summary_thread *ret)
{
	(void)arg;
	*ret = (struct summary_thread){.pid = index == FIRST + 9 ? 2 : 1,
				       .tid = index,
				       .name = "python",
				       .switches = true};
}

static void runs(struct fixture *x, uint32_t thread, uint64_t from, uint64_t until,
		 const char *const *names)
{
	assert_int_equal(summary_sample(x->s, thread, from, stack(x, names), 1000000), 0);
	assert_int_equal(summary_on_cpu(x->s, thread, from, until), 0);
}

/* It is not woken: it runs on. */
static void is_preempted(struct fixture *x, uint32_t thread, uint64_t from, uint64_t until,
			 const char *const *names)
{
	struct summary_wait w = in_futex(x, thread, from, until, names);

	w.state = OFF_CPU_PREEMPTED;
	w.call = NULL;
	w.woken = false;
	summary_wait(x->s, &w);
}

/*
 * FIRST waits from 10 ms on for the interpreter; FIRST + 2 wakes it at 200 ms. Another one has
 * waited so long for it that it has asked twice and was not woken. `names` of FIRST + 1 was
 * preempted most of the time; FIRST + 3 ran in `others` for `ns`.
 */
static struct json_object *play_gil(struct fixture *x, const char *const *names,
				    const char *const *others, uint64_t ns)
{
	static const char *const in_gil[] = {"main", "_PyEval_EvalFrameDefault", "take_gil",
					     "pthread_cond_timedwait", NULL};
	struct json_object *list;

	start(x);
	waits(x, FIRST + 5, 0, 100000, 200000, FIRST + 6, in_gil);
	runs(x, FIRST + 1, 9000000, 20000000, names);
	is_preempted(x, FIRST + 1, 20000000, 150000000, names);
	runs(x, FIRST + 3, 30000000, 30000000 + ns, others);
	for (uint64_t i = 0; i < 9; i++) {
		times_out(x, 10000000 + i * 20000000, 29980000 + i * 20000000, in_gil);
		assert_int_equal(summary_on_cpu(x->s, FIRST, 29980000 + i * 20000000,
						30000000 + i * 20000000),
				 0);
	}
	runs(x, FIRST + 1, 150000000, 199000000, names);
	waits(x, FIRST, 0, 190000000, 200000000, FIRST + 2, in_gil);
	assert_int_equal(summary_to_json(x->s, 1, 300000000, FIRST + 10, one_process, NULL,
					 &x->json),
			 0);
	list = member(x->json, "waits");
	for (size_t i = 0; i < json_object_array_length(list); i++)
		if (number(json_object_array_get_idx(list, i), "tid") == FIRST &&
		    number(json_object_array_get_idx(list, i), "ns") == 190000000)
			return json_object_array_get_idx(list, i);
	fail_msg("no wait of 190 ms");
	return NULL;
}

/* Who ended the wait had it for a moment only; who had it all the time was preempted with it. */
static void who_alone_ran_held_the_interpreter(void **state)
{
	static const char *const in_pow[] = {"main",   "_PyEval_EvalFrameDefault",
					     "gilhog", "long_pow",
					     "k_mul",  NULL};
	static const char *const in_other[] = {"main", "_PyEval_EvalFrameDefault", "other", NULL};
	static const char *const in_native[] = {"start_thread", "worker", NULL};
	struct json_object *w, *held, *frames;
	struct fixture x;

	(void)state;
	w = play_gil(&x, in_pow, in_other, 1000000);
	held = member(w, "held_by");
	assert_int_equal(number(held, "tid"), FIRST + 1);
	assert_int_equal(number(held, "ran_ns"), 189000000);
	frames = member(held, "stack");
	assert_string_equal(json_object_get_string(json_object_array_get_idx(
				    frames, json_object_array_length(frames) - 1)),
			    "k_mul");
	assert_int_equal(number(member(w, "woken_by"), "tid"), FIRST + 2);
	assert_null(member(w, "holder_unknown"));
	end(&x);

	/* another one ran a good part of the time: it may have been either */
	w = play_gil(&x, in_pow, in_other, 50000000);
	assert_null(member(w, "held_by"));
	assert_true(json_object_get_boolean(member(w, "holder_unknown")));
	end(&x);

	/* nor is it one that runs no Python */
	w = play_gil(&x, in_native, in_other, 1000000);
	assert_null(member(w, "held_by"));
	assert_true(json_object_get_boolean(member(w, "holder_unknown")));
	end(&x);
}

/*
 * What those in Java's queue were woken through is each one's own: it tells nothing of the queue.
 */
static void who_has_queued_for_a_monitor_is_not_the_first(void **state)
{
	static const char *const in_monitor[] = {"run",
						 "ObjectMonitor::enter",
						 "ObjectMonitor::EnterI",
						 "os::PlatformEvent::park",
						 "pthread_cond_wait",
						 "__futex_abstimed_wait_common",
						 NULL};
	static const char *const in_wait[] = {"run", "ObjectMonitor::wait",
					      "os::PlatformEvent::park", "pthread_cond_wait", NULL};
	struct json_object *held;
	struct fixture x;

	(void)state;
	start(&x);
	waits(&x, FIRST + 1, 11, 600, 90000, FIRST + 2, in_monitor);
	waits(&x, FIRST, 12, 500, 110000, FIRST + 1, in_monitor);
	held = held_by(&x);
	assert_int_equal(number(held, "tid"), FIRST + 1);
	assert_true(json_object_get_boolean(member(held, "cut")));
	end(&x);

	/* it had not */
	start(&x);
	waits(&x, FIRST, 12, 500, 110000, FIRST + 1, in_monitor);
	assert_null(held_by(&x));
	end(&x);

	/* who waits to be notified waits for no lock */
	start(&x);
	waits(&x, FIRST + 1, 11, 600, 90000, FIRST + 2, in_wait);
	waits(&x, FIRST, 12, 500, 110000, FIRST + 1, in_wait);
	assert_null(held_by(&x));
	end(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_long_queue_is_followed_to_its_begin),
		cmocka_unit_test(what_is_forgotten_is_said),
		cmocka_unit_test(who_held_it_longest_is_named),
		cmocka_unit_test(who_held_it_first_and_longest_is_named_once),
		cmocka_unit_test(what_was_let_go_before_is_not_held),
		cmocka_unit_test(the_mutex_of_a_condition_is_held),
		cmocka_unit_test(the_longest_of_both_kinds_fit),
		cmocka_unit_test(nobody_holds_what_is_posted),
		cmocka_unit_test(a_lock_that_is_tried_again_is_one_wait),
		cmocka_unit_test(who_alone_ran_held_the_interpreter),
		cmocka_unit_test(who_has_queued_for_a_monitor_is_not_the_first),
	};

	return cmocka_run_group_tests_name("waits", tests, NULL, NULL);
}
