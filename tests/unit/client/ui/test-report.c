// SPDX-License-Identifier: Apache-2.0
/* The protocol's objects as text: what a reader must find in it, and that nothing odd breaks it. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/ui/report.h"
#include "client/ui/report_internal.h"
#include "client/ui/view.h"

static char *text_of(void (*print)(FILE *, struct json_object *), const char *json)
{
	_cleanup_json_ struct json_object *o = json ? json_tokener_parse(json) : NULL;
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	assert_non_null(f);
	assert_true(!json || o);
	print(f, o);
	assert_int_equal(fclose(f), 0);
	return text;
}

/* The same as it looks on a terminal that is so wide, with line feeds alone. */
static char *text_on_terminal(void (*print)(FILE *, struct json_object *), const char *json,
			      unsigned short columns)
{
	enum { SIZE = 4096 }; /* a terminal's buffer */
	_cleanup_json_ struct json_object *o = json_tokener_parse(json);
	const struct winsize ws = {.ws_row = 24, .ws_col = columns};
	int master = posix_openpt(O_RDWR | O_NOCTTY), slave;
	char *text = calloc(1, SIZE), *to = text;
	struct pollfd p = {.fd = master, .events = POLLIN};
	FILE *f;

	assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
	slave = open(ptsname(master), O_RDWR | O_NOCTTY);
	assert_true(slave >= 0);
	assert_int_equal(ioctl(slave, TIOCSWINSZ, &ws), 0);
	f = fdopen(slave, "w");
	assert_non_null(f);
	assert_int_equal(unsetenv("COLUMNS"), 0);
	print(f, o);
	assert_int_equal(fflush(f), 0);
	while (poll(&p, 1, 0) > 0 && (size_t)(to - text) < SIZE - 1) {
		ssize_t n = read(master, to, SIZE - 1 - (size_t)(to - text));

		assert_true(n > 0);
		to += n;
	}
	assert_int_equal(fclose(f), 0);
	assert_int_equal(close(master), 0);
	*to = 0;
	to = text;
	for (const char *from = text; *from; from++)
		if (*from != '\r')
			*to++ = *from;
	*to = 0;
	return text;
}

static void has(const char *text, const char *words)
{
	if (!strstr(text, words))
		fail_msg("'%s' is not in:\n%s", words, text);
}

static void has_not(const char *text, const char *words)
{
	if (strstr(text, words))
		fail_msg("'%s' is in:\n%s", words, text);
}

static const char summary[] =
	"{\"from_ns\":1000000000,\"to_ns\":4200000000,"
	"\"threads\":[{\"tid\":7,\"name\":\"maintenance\",\"on_cpu_ns\":45000000,\"off_cpu_ns\":"
	"3100000000,\"samples\":30},"
	"{\"tid\":8,\"name\":\"w\\u001b[2J\",\"on_cpu_ns\":2000000,\"off_cpu_ns\":3190000000,"
	"\"samples\":10}],"
	"\"heaviest\":[{\"stack\":[\"main\",\"rebuild_index\",\"sort_entries\"],\"samples\":30,"
	"\"ns\":30000000}],"
	"\"waits\":["
	"{\"tid\":1,\"name\":\"slowlock\",\"ns\":100000000,\"begin_ns\":4000000000,\"state\":"
	"\"sleeping\","
	"\"stack\":[\"main\",\"clock_nanosleep\"],\"woken_by\":{\"interrupt\":true},\"count\":31,"
	"\"total_ns\":3100000000},"
	"{\"tid\":8,\"name\":\"worker-1\",\"ns\":42000000,\"begin_ns\":4100000000,\"state\":"
	"\"sleeping\","
	"\"stack\":[\"start_thread\",\"handle_request\",\"cache_get\",\"pthread_mutex_lock\"],"
	"\"woken_by\":{\"tid\":7,\"name\":\"maintenance\",\"stack\":[\"rebuild_index\",\"pthread_"
	"mutex_unlock\"]}}],"
	"\"losses\":{\"records lost\":{\"events\":1,\"count\":12,\"ns\":5},\"nothing\":{\"events\":0,\"count\":0},"
	"\"stacks in doubt\":{\"events\":1,\"count\":9059,\"ns\":0}}"
	"}";

static void test_summary(void **state)
{
	_cleanup_free_ char *text = text_of(report_print, summary);
	const char *lock = strstr(text, "longest waits for a lock"),
		   *other = strstr(text, "longest other waits");

	has(text, "the last 3.20 s");
	has(text,
	    "lost        records lost 12\n"
	    "              stacks in doubt 9059: code was mapped or records were lost just then; they count as not recorded\n");
	has(text, "sort_entries <- rebuild_index <- main");
	has(text, "75.0 %");
	assert_non_null(lock);
	assert_non_null(other);
	/* the wait for the lock comes first, although the idle thread slept longer */
	assert_true(lock < other);
	has(lock, "1. 42.0 ms  worker-1 (tid 8), sleeping, began 100 ms before the end\n");
	has(lock, "waited in pthread_mutex_lock <- cache_get <- handle_request <- start_thread\n");
	has(lock, "held by maintenance (tid 7), which released it in pthread_mutex_unlock <- "
		  "rebuild_index\n");
	has(other, "the longest of 31 here, 3.10 s in all\n");
	has(other, "ended by an interrupt");
	has(text, "w\\x1b[2J");
	has_not(text, "\033");
}

static void assert_narrow(const char *text, size_t columns)
{
	for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
		if (strcspn(line, "\n") > columns)
			fail_msg("longer than %zu: %.*s", columns, (int)strcspn(line, "\n"), line);
}

/*
 * The innermost frames are the libraries'; those of the program come after them and are what is
 * looked for.
 */
static void test_stacks_on_a_terminal(void **state)
{
	static const char json[] =
		"{\"from_ns\":1,\"to_ns\":2,\"threads\":[{\"tid\":7,\"name\":\"w\",\"samples\":3}],"
		"\"heaviest\":[{\"stack\":[\"main\",\"handle_every_request_there_is\",\"cache_get\","
		"\"pthread_mutex_lock\",\"__pthread_mutex_lock_full\",\"__futex_abstimed_wait_common\"],"
		"\"samples\":3,\"ns\":3000000}],"
		"\"waits\":[{\"tid\":7,\"name\":\"w\",\"ns\":5,\"state\":\"sleeping\",\"stack\":["
		"\"main\",\"outer\",\"f3\",\"f4\",\"f5\",\"f6\",\"f7\",\"f8\",\"f9\",\"f10\",\"f11\",\"f12\","
		"\"f13\",\"f14\",\"f15\",\"f16\",\"f17\",\"f18\",\"f19\",\"f20\",\"f21\",\"f22\",\"f23\","
		"\"a_function_with_a_name_that_is_much_longer_than_any_line_on_this_terminal(its, end)\","
		"\"inner\",\"innermost\"]}]}";
	_cleanup_free_ char *wide = text_on_terminal(report_print, json, 200),
			    *narrow = text_on_terminal(report_print, json, 60),
			    *pipe = text_of(report_print, json);

	(void)state;
	has(wide,
	    "  __futex_abstimed_wait_common <- __pthread_mutex_lock_full <- pthread_mutex_lock <- cache_get <- "
	    "handle_every_request_there_is <- main\n");
	has(narrow, "  100.0 %   3.00 ms  __futex_abstimed_wait_common\n"
		    "      <- __pthread_mutex_lock_full <- pthread_mutex_lock\n"
		    "      <- cache_get <- handle_every_request_there_is <- main\n");
	assert_narrow(narrow, 60);
	has(narrow, "     waited in innermost <- inner\n");
	has(narrow, "         <- a_function_with_a_name_~this_terminal(its, end)\n");
	has(narrow, " more) <- ");
	has(narrow, "<- outer <- main\n");
	has(pipe,
	    "innermost <- inner <- a_function_with_a_name_that_is_much_longer_than_any_line_on_this_terminal(its, "
	    "end) <- f23 <- f22 <- ");
	has(pipe, "f3 <- outer <- main\n");
}

static bool is_lock_in(const char *call, const char *frames)
{
	_cleanup_free_ char *json = NULL;
	_cleanup_json_ struct json_object *wait = NULL;

	assert_true(asprintf(&json, "{\"state\":\"sleeping\",%s\"stack\":[%s]}", call, frames) > 0);
	wait = json_tokener_parse(json);
	assert_non_null(wait);
	return report_is_lock_wait(wait);
}

static bool is_lock(const char *frames)
{
	return is_lock_in("", frames);
}

/* A lock has a holder. An idle worker waits for work, which somebody posts who holds nothing. */
static void test_locks(void **state)
{
	(void)state;
	assert_true(is_lock("\"main\",\"cache_get\",\"pthread_mutex_lock\",\"__lll_lock_wait\""));
	assert_true(is_lock("\"f\",\"pthread_rwlock_wrlock\",\"__futex_abstimed_wait_common\""));
	assert_true(is_lock(
		"\"f\",\"take_gil\",\"pthread_cond_timedwait\",\"__futex_abstimed_wait_common\""));
	/* the mutex of a condition, once that was signalled */
	assert_true(is_lock(
		"\"pop\",\"pthread_cond_wait\",\"__pthread_mutex_cond_lock\",\"__lll_lock_wait\""));
	/* Python's queue.get() */
	assert_false(is_lock(
		"\"_PyEval_EvalFrameDefault\",\"lock_PyThread_acquire_lock\",\"acquire_timed\","
		"\"PyThread_acquire_lock_timed\",\"__new_sem_wait_slow64\",\"do_futex_wait\""));
	assert_false(is_lock(
		"\"lock_PyThread_acquire_lock\",\"PyThread_acquire_lock_timed\",\"[libc.so.6+0x8b8]\""));
	assert_false(is_lock(
		"\"queue_mutex_lock_and_pop\",\"pthread_cond_wait\",\"__futex_abstimed_wait_common\""));
	assert_false(is_lock("\"rwlock_rd_work\",\"sem_timedwait\""));
	/* a signal's handler sleeps while the lock is waited for */
	assert_false(is_lock(
		"\"pthread_mutex_lock\",\"__lll_lock_wait\",\"__restore_rt\",\"on_signal\",\"clock_nanosleep\""));
	assert_true(is_lock(
		"\"clock_nanosleep\",\"__restore_rt\",\"on_signal\",\"pthread_mutex_lock\",\"__lll_lock_wait\""));
	assert_true(is_lock(
		"\"f\",\"pthread_mutex_timedlock\",\"__pthread_mutex_clocklock_common\",\"__futex_lock_pi64\""));
	assert_true(is_lock("\"f\",\"___pthread_mutex_clocklock\",\"g\""));
	assert_true(is_lock(
		"\"f\",\"std::sys::sync::rwlock::futex::RwLock::read_contended\",\"syscall\""));
	assert_true(is_lock(
		"\"f\",\"std::sys::sync::rwlock::futex::RwLock::write_contended\",\"syscall\""));
	assert_true(is_lock("\"f\",\"parking_lot::raw_mutex::RawMutex::lock_slow\",\"syscall\""));
	assert_true(is_lock(
		"\"f\",\"parking_lot::raw_rwlock::RawRwLock::lock_exclusive_slow\",\"syscall\""));
	assert_false(is_lock(
		"\"my_mutex_lock_test\",\"std::sys::sync::condvar::futex::Condvar::wait\",\"syscall\""));
	assert_false(is_lock(
		"\"join_mutex_locker\",\"__pthread_clockjoin_ex\",\"__futex_abstimed_wait_common\""));
	/* the call is known, and it is no lock's */
	assert_false(is_lock_in("\"call\":\"read\",", "\"drain_mutex_lock_stats\",\"read\""));
	assert_false(is_lock_in("\"call\":\"clock_nanosleep\",", "\"my_spin_lock\",\"nanosleep\""));
	assert_true(is_lock_in("\"call\":\"flock\",", "\"f\",\"flock\""));
	assert_true(is_lock_in("\"call\":\"fcntl\",", "\"f\",\"fcntl\""));
	assert_true(
		is_lock_in("\"call\":\"futex\",", "\"pthread_mutex_lock\",\"__lll_lock_wait\""));
	assert_false(is_lock("\"pthread_mutex_lock\",\"a\",\"b\",\"c\",\"d\",\"e\",\"read\""));
}

/*
 * Sleeps that repeat, which timers end, take no line from a wait that is not much shorter; from one
 * that is, they do.
 */
static void test_timers(void **state)
{
	(void)state;
	for (unsigned int ms = 10; ms <= 79; ms += 69) {
		_cleanup_free_ char *json = NULL, *text = NULL;

		assert_true(
			asprintf(
				&json,
				"{\"from_ns\":1000000000,\"to_ns\":3100000000,\"waits\":["
				"{\"tid\":1,\"ns\":106000000,\"count\":3,\"state\":\"sleeping\",\"stack\":[\"a\"],\"woken_by\":{\"interrupt\":true}},"
				"{\"tid\":2,\"ns\":105000000,\"count\":3,\"state\":\"sleeping\",\"stack\":[\"b\"],\"woken_by\":{\"interrupt\":true}},"
				"{\"tid\":3,\"ns\":104000000,\"count\":3,\"state\":\"sleeping\",\"stack\":[\"c\"],\"woken_by\":{\"interrupt\":true}},"
				"{\"tid\":4,\"ns\":103000000,\"count\":3,\"state\":\"sleeping\",\"stack\":[\"d\"],\"woken_by\":{\"interrupt\":true}},"
				"{\"tid\":5,\"ns\":102000000,\"count\":3,\"state\":\"sleeping\",\"stack\":[\"e\"],\"woken_by\":{\"interrupt\":true}},"
				"{\"tid\":6,\"ns\":%u000000,\"count\":1,\"state\":\"sleeping\",\"stack\":[\"read\"],\"woken_by\":{\"tid\":7,\"name\":\"g\"}}]}",
				ms) > 0);
		text = text_of(report_print, json);
		has(text, "4. 103 ms");
		has(text, ms == 79 ? "5. 79.0 ms" : "5. 102 ms");
		has_not(text, "6. ");
	}
}

/* So do waits that have not ended; not those for a lock. */
static void test_not_over(void **state)
{
#define NOT_OVER(ns, stack) "{\"ns\":" ns "000000,\"open\":true,\"state\":\"sleeping\",\"stack\":[" stack "]},"
	_cleanup_free_ char *text = text_of(
		report_print,
		"{\"from_ns\":1000000000,\"to_ns\":1900000000,\"waits\":[" NOT_OVER(
			"250", "\"a\"") NOT_OVER("240", "\"b\"") NOT_OVER("230", "\"c\"")
			NOT_OVER("220", "\"d\"") NOT_OVER("210", "\"e\"") NOT_OVER(
				"200",
				"\"l\",\"pthread_mutex_lock\"") "{\"tid\":6,\"ns\":79000000,\"state\":\"sleeping\",\"stack\":[\"read\"],\"woken_by\":{\"tid\":7,\"name\":\"g\"}}]}");

	(void)state;
	has(text, "waited in pthread_mutex_lock <- l\n");
	has(text, "5. 79.0 ms");
	has_not(text, "waited in e\n");
}

/*
 * Threads that wait throughout the recording leave lines to the others, but for those that wait for
 * a lock.
 */
static void test_throughout(void **state)
{
#define THROUGHOUT(stack) "{\"ns\":900000000,\"open\":true,\"since_before\":true,\"state\":\"sleeping\",\"stack\":[" stack "]},"
	_cleanup_free_ char *text = text_of(
		report_print,
		"{\"from_ns\":1000000000,\"to_ns\":1900000000,\"waits\":[" THROUGHOUT(
			"\"a\"") THROUGHOUT("\"b\"") THROUGHOUT("\"c\"") THROUGHOUT("\"d\"")
			THROUGHOUT("\"e\"") THROUGHOUT(
				"\"l\",\"pthread_mutex_lock\"") "{\"tid\":6,\"ns\":79000000,\"state\":\"sleeping\",\"stack\":[\"read\"],\"woken_by\":{\"tid\":7,\"name\":\"g\"}}]}");

	(void)state;
	has(text,
	    "not over yet, since before what is recorded\n     waited in pthread_mutex_lock <- l\n");
	has(text, "2. 900 ms");
	has(text, "5. 79.0 ms");
	has_not(text, "waited in e\n");
}

/* Who sends a signal to one that waits for a lock holds nothing. */
static void test_signalled(void **state)
{
	static const char *const by[] = {
		"\"stack\":[\"f\"],\"call\":\"tgkill\"", "\"call\":\"kill\"", "\"name\":\"other\"",
		"\"stack\":[\"f\"],\"call\":\"futex\"",  "\"stack\":[\"f\"]", "\"call\":\"futex\""};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(by); i++) {
		_cleanup_free_ char *json = NULL, *text = NULL;

		assert_true(
			asprintf(
				&json,
				"{\"from_ns\":1000000000,\"to_ns\":3100000000,\"waits\":[{\"tid\":7,\"name\":\"a\",\"ns\":5000000,\"call\":\"futex\","
				"\"state\":\"sleeping\",\"stack\":[\"pthread_mutex_lock\"],\"woken_by\":{\"tid\":8,%s}}]}",
				by[i]) > 0);
		text = text_of(report_print, json);
		has(text, "longest waits for a lock");
		if (i < 3)
			has_not(text, "held by");
		else
			has_not(text, "ended by");
		has(text, i < 3 ? "ended by" : "held by");
	}
}

/* Who had a lock before is not known of one that was handed on too often. */
static void test_handed_on(void **state)
{
#define HELD "{\"from_ns\":1,\"to_ns\":2,\"waits\":[{\"tid\":7,\"ns\":5,\"state\":\"sleeping\",\"stack\":[\"pthread_mutex_lock\"]," \
	"\"woken_by\":{\"tid\":8,\"name\":\"b\",\"stack\":[\"f\"]},\"held_by\":{\"tid\":9,\"name\":\"a\",\"stack\":[\"g\"],\"handovers\":3"
	_cleanup_free_ char *whole = text_of(report_print, HELD "}}]}"),
			    *cut = text_of(report_print, HELD ",\"cut\":true}}]}"),
			    *longest = text_of(
				    report_print, HELD
				    ",\"longest\":{\"tid\":4,\"name\":\"c\",\"ns\":97000000}}}]}");

	(void)state;
	has(whole,
	    "     held by a (tid 9), which released it in g\n     then by 3 that had waited longer, the last b (tid 8) in f\n");
	has(cut,
	    "     held by a (tid 9), and by somebody before who is not known; it was released in g\n     then by 3");
	has(longest, "the last b (tid 8) in f\n     held longest by c (tid 4), 97.0 ms\n");
}

/*
 * Who had CPython's interpreter is said by who ran, or not at all: who ended the wait had it last
 * only, and a timer had it never.
 */
static void test_interpreter(void **state)
{
#define GIL(more) "{\"from_ns\":1,\"to_ns\":2,\"waits\":[{\"tid\":7,\"ns\":5,\"state\":\"sleeping\",\"stack\":[\"take_gil\",\"pthread_cond_timedwait\"]," more "}]}"
#define HOLDER "\"held_by\":{\"tid\":9,\"name\":\"a\",\"stack\":[\"gilhog\",\"int_pow\"],\"ran_ns\":97000000},"
	static const char held[] =
		"     perhaps held by a (tid 9), which alone ran or was preempted nearly all the time (97.0 ms), mostly in int_pow <- gilhog\n";
	_cleanup_free_ char *
		timer = text_of(report_print, GIL(HOLDER "\"woken_by\":{\"interrupt\":true}")),
	       *woken = text_of(
		       report_print,
		       GIL(HOLDER
			   "\"woken_by\":{\"tid\":8,\"name\":\"b\",\"stack\":[\"drop_gil\"]}")),
	       *unknown = text_of(
		       report_print,
		       GIL("\"holder_unknown\":true,\"woken_by\":{\"tid\":8,\"name\":\"b\",\"stack\":[\"drop_gil\"]}")),
	       *open = text_of(report_print, GIL("\"holder_unknown\":true"));

	(void)state;
	has(timer, held);
	has(timer, "     ended by an interrupt");
	has(woken, held);
	has(woken, "     ended by b (tid 8) in drop_gil\n");
	has(unknown,
	    "     ended by b (tid 8) in drop_gil\n     who held it until then is not known\n");
	has_not(unknown, "held by");
	has(open, "     who held it is not known\n");
}

/* A monitor of Java is a lock, who waits to be notified waits for none. */
static void test_monitor(void **state)
{
#define JAVA(function) "{\"from_ns\":1,\"to_ns\":2,\"waits\":[{\"tid\":7,\"ns\":5,\"state\":\"sleeping\"," \
	"\"stack\":[\"Interpreter\",\"" function "\",\"os::PlatformEvent::park\",\"pthread_cond_wait\",\"__futex_abstimed_wait_common\"]," \
	"\"woken_by\":{\"tid\":8,\"name\":\"b\",\"stack\":[\"ObjectMonitor::ExitEpilog\"]}}]}"
	_cleanup_free_ char *enter = text_of(report_print, JAVA("ObjectMonitor::EnterI")),
			    *wait = text_of(report_print, JAVA("ObjectMonitor::wait"));

	(void)state;
	has(enter, "longest waits for a lock");
	has(enter, "     held by b (tid 8), which released it in ObjectMonitor::ExitEpilog\n");
	has(wait, "longest other waits");
	has(wait, "     ended by b (tid 8)");
}

/* Most of it was before the time that is looked at. */
static void test_inside(void **state)
{
	_cleanup_free_ char *text = text_of(
		report_print,
		"{\"from_ns\":9000000000,\"to_ns\":9150000000,\"waits\":[{\"tid\":7,\"name\":\"a\",\"ns\":5000000000,\"inside_ns\":100000000,"
		"\"begin_ns\":4100000000,\"state\":\"sleeping\",\"stack\":[]}]}");

	(void)state;
	has(text,
	    "1. 5.00 s  a (tid 7), sleeping, began 5.05 s before the end, 100 ms of it in this time\n");
}

static void test_throttled(void **state)
{
#define THROTTLED(sum) "{\"from_ns\":1,\"to_ns\":2,\"waits\":[{\"tid\":7,\"name\":\"a\",\"ns\":5,\"state\":\"throttled\",\"behind\":{\"tid\":8,\"name\":\"b\"},\"stack\":[]}],\"throttled\":" sum "}"
	_cleanup_free_ char *one = text_of(report_print, THROTTLED("{\"waits\":1,\"ns\":5}")),
			    *many = text_of(report_print, THROTTLED("{\"waits\":2,\"ns\":7}")),
			    *wrong = text_of(report_print, THROTTLED("[2]"));

	(void)state;
	has(one,
	    "a (tid 7), throttled (the CPU quota of its cgroup was used up as it began), at last behind b (tid 8)\n");
	has(one,
	    "the CPU quota of the cgroup was used up: 1 wait of all threads began so, 5 ns in all\n");
	has(many, "used up: 2 waits of all threads began so, 7 ns in all\n");
	has_not(wrong, "of the cgroup");
#undef THROTTLED
}

static void test_preempted(void **state)
{
#define PREEMPTED(more) "{\"from_ns\":1,\"to_ns\":2,\"waits\":[{\"tid\":7,\"name\":\"a\",\"ns\":5,\"state\":\"preempted\"" more ",\"stack\":[]}]}"
	_cleanup_free_ char *by = text_of(
				    report_print,
				    PREEMPTED(",\"instead\":{\"tid\":8,\"name\":\"b\\u001b\"}")),
			    *unknown = text_of(report_print, PREEMPTED("")),
			    *wrong = text_of(report_print, PREEMPTED(",\"instead\":[7]"));

	(void)state;
	has(by, "a (tid 7), preempted by b\\x1b (tid 8)\n");
	has(unknown, "a (tid 7), preempted\n");
	has(wrong, "a (tid 7), preempted\n");
}

/* Who was woken and had no CPU did not wait for what it had waited for. */
static void test_runnable(void **state)
{
#define RUNNABLE(ns, runnable) \
	"{\"from_ns\":1,\"to_ns\":2,\"waits\":[{\"tid\":7,\"ns\":" ns ",\"runnable_ns\":" runnable ",\"state\":\"sleeping\",\"stack\":[]}]}"
	_cleanup_free_ char *
		much = text_of(report_print, RUNNABLE("103400000", "93100000")),
	       *little = text_of(report_print, RUNNABLE("103400000", "9100000")),
	       *brief = text_of(report_print, RUNNABLE("1200000", "900000")),
	       *wrong = text_of(report_print, RUNNABLE("5000000", "6000000")),
	       *behind = text_of(report_print,
				 RUNNABLE("103400000",
					  "93100000,\"behind\":{\"tid\":8,\"name\":\"b\\u001b\"}"));

	(void)state;
	has(much, "sleeping, woken after 10.3 ms, then 93.1 ms for a CPU\n");
	has(behind, "then 93.1 ms for a CPU behind b\\x1b (tid 8)\n");
	has_not(little, "woken after");
	has_not(brief, "woken after");
	has_not(wrong, "woken after");
}

/* Of a lock of a file, who closes it gives it back, and who sends a signal does not. */
static void test_file_locks(void **state)
{
#define FLOCK(by) \
	"{\"from_ns\":1,\"to_ns\":2,\"waits\":[{\"tid\":7,\"ns\":5,\"call\":\"flock\",\"state\":\"sleeping\",\"stack\":[\"flock\"]," \
	"\"woken_by\":{\"tid\":8,\"name\":\"b\",\"stack\":[\"f\"],\"call\":\"" by "\"}}]}"
	_cleanup_free_ char *closed = text_of(report_print, FLOCK("close")),
			    *killed = text_of(report_print, FLOCK("tgkill"));

	(void)state;
	has(closed, "longest waits for a lock");
	has(closed, "held by b");
	has(killed, "ended by b");
	has_not(killed, "held by");
}

/* What was not recorded is not known, which is neither none nor all. */
static void test_not_known(void **state)
{
	_cleanup_free_ char *rings = text_of(
		report_print,
		"{\"from_ns\":1000000000,\"to_ns\":9100000000,\"complete_ns\":430000000,"
		"\"complete_from_ns\":8670000000,\"threads\":["
		"{\"tid\":7,\"name\":\"a\",\"on_cpu_ns\":45000000,\"off_cpu_ns\":null,\"samples\":30},"
		"{\"tid\":8,\"name\":\"b\",\"on_cpu_ns\":null,\"off_cpu_ns\":null,\"samples\":0}],"
		"\"waits\":[{\"tid\":7,\"name\":\"a\",\"ns\":5000000,\"state\":\"uninterruptible\",\"stack\":[]}],"
		"\"focus\":{\"from_ns\":8000000000,\"to_ns\":9000000000,\"complete_ns\":330000000}}");
	_cleanup_free_ char *lost = text_of(report_print,
		"{\"from_ns\":1000000000,\"to_ns\":9100000000,\"complete_ns\":7900000000,"
		"\"focus\":{\"region\":{\"name\":\"x\",\"ns\":7000000,\"tid\":8,\"thread\":\"w\","
		"\"on_cpu_ns\":2000000,\"off_cpu_ns\":null}}}");
	_cleanup_free_ char *suspended = text_of(
		report_print,
		"{\"from_ns\":1000000000,\"to_ns\":3100000000,\"suspended\":{\"why\":\"it executed another program\\n\",\"ns\":7000000000}}");
	_cleanup_free_ char *exited = text_of(report_print,
		"{\"from_ns\":1000000000,\"to_ns\":3100000000,\"exited\":true}");
	_cleanup_free_ char *events = text_of(
		report_print,
		"{\"from_ns\":1000000000,\"to_ns\":3100000000,\"threads\":[{\"tid\":8,\"name\":\"b\","
		"\"on_cpu_ns\":null,\"off_cpu_ns\":null,\"samples\":0}],\"regions\":[{\"name\":\"serve\","
		"\"count\":12,\"total_ns\":20000000,\"self_ns\":9000000,\"max_ns\":7310000}]}");

	(void)state;
	has(rings, "recorded    complete for 430 ms, parts back to 8.10 s\n");
	has(rings, "a         7  45.0 ms  unknown       30\n");
	has(rings, "b         8  unknown  unknown        0\n");
	has(rings, "waited in (stack not recorded)\n");
	has(rings, "in the slow moment, 1.00 s long, complete for 330 ms:\n");
	has(lost, "recorded    complete for 7.90 s of the last 8.10 s\n");
	has(exited, "recorded    the last 2.10 s before it exited\n");
	has(suspended, "suspended   7.00 s before the snapshot: it executed another program\\x0a\n"
		       "  recorded    the last 2.10 s before it was suspended\n");
	has(events, "\nthreads: 1; when they ran and waited is not recorded\n");
	has_not(events, "ON CPU");
	has(events, "serve      12");
	has(lost, "2.00 ms on the CPU; waits were not recorded\n");
}

/* Of a region that caused the snapshot, how its thread spent that time comes first. */
static void test_slow_region(void **state)
{
	static const char json[] =
		"{\"from_ns\":1000000000,\"to_ns\":4200000000,"
		"\"threads\":[{\"tid\":7,\"name\":\"w\",\"samples\":30}],"
		"\"focus\":{\"from_ns\":4000000000,\"to_ns\":4007310000,\"threads\":[],\"region\":{"
		"\"name\":\"ser\\u001bve\",\"ns\":7310000,\"to_ns\":4007310000,\"over_ns\":5000000,"
		"\"tid\":8,\"thread\":\"worker\",\"on_cpu_ns\":1200000,\"off_cpu_ns\":6020000,"
		"\"samples\":2,\"heaviest\":[{\"stack\":[\"main\",\"parse\"],\"samples\":1,\"ns\":"
		"1000000}],"
		"\"waits\":[{\"tid\":8,\"name\":\"worker\",\"ns\":6020000,\"begin_ns\":4001000000,"
		"\"state\":\"sleeping\",\"stack\":[\"main\",\"pthread_mutex_lock\"],\"woken_by\":{\"tid\":"
		"7,\"name\":\"w\",\"stack\":[\"hold\"]}}]}},"
		"\"regions\":[{\"name\":\"serve\",\"count\":12,\"total_ns\":20000000,\"self_ns\":9000000,"
		"\"max_ns\":7310000}],\"regions_omitted\":3,"
		"\"slowest_regions\":[{\"name\":\"serve\",\"pid\":7,\"tid\":8,\"thread\":\"worker\","
		"\"begin_ns\":4000000000,\"ns\":7310000,\"on_cpu_ns\":200000,\"off_cpu_ns\":6020000,"
		"\"waits\":[{\"tid\":8,\"ns\":6020000,\"stack\":[\"main\",\"read\"],\"woken_by\":{"
		"\"interrupt\":true}}]},{\"name\":\"x\",\"ns\":5,\"tid\":9,\"thread\":\"y\"}]}";
	_cleanup_free_ char *text = text_of(report_print, json);
	const char *all = strstr(text, "in all threads meanwhile:");

	(void)state;
	has(text, "the slow region: ser\\x1bve took 7.31 ms (over 5.00 ms) in worker (tid 8): "
		  "1.20 ms on the CPU, 6.02 ms waiting\n");
	has_not(text, "in the slow moment");
	assert_non_null(all);
	assert_true(strstr(text, "50.0 %") < all);
	assert_true(strstr(text, "parse <- main") < all);
	assert_true(strstr(text, "held by w (tid 7), which released it in hold") < all);
	has(all, "regions of the program\n");
	has(all, "serve      12  7.31 ms  20.0 ms  9.00 ms\n");
	has(all, "... and 3 more\n");
	has(all,
	    "1. 7.31 ms  serve in worker (tid 8), began 200 ms before the end: 200 us on the CPU, "
	    "6.02 ms waiting, of 1.09 ms nothing is recorded\n");
	has(all, "waited 6.02 ms in read <- main\n");
	has(all, "2. 5 ns  x in y (tid 9)\n");
}

/* Where every call is known there are no samples to show. */
static void test_functions(void **state)
{
	_cleanup_free_ char *text = text_of(
		report_print,
		"{\"threads\":[{\"tid\":7,\"name\":\"a\",\"samples\":0,\"calls\":12,\"traced_ns\":5000,"
		"\"outside_ns\":2000000}],\"heaviest\":[],"
		"\"functions\":[{\"name\":\"re\\u001bad\",\"calls\":3,\"self_ns\":400,\"outside_ns\":2000000,"
		"\"max_ns\":1500000,\"instructions\":77},7]}");

	(void)state;
	has(text, "THREAD  TID   TRACED  OUTSIDE  CALLS\n");
	has(text, "a         7  5.00 us  2.00 ms     12\n");
	has(text, "400 ns  2.00 ms      3  1.50 ms            77  re\\x1bad\n");
	has_not(text, "SAMPLES");
}

/* Of a stepped program no time is told: it would be the stepper's. */
static void test_stepped(void **state)
{
	_cleanup_free_ char *text = text_of(
		report_print,
		"{\"stepped\":true,\"from_ns\":0,\"to_ns\":2000000000,"
		"\"threads\":[{\"tid\":7,\"name\":\"a\",\"samples\":0,\"calls\":12,\"instructions\":345}],"
		"\"functions\":[{\"name\":\"re\\u001bad\",\"calls\":3,\"instructions\":77},7]}");

	(void)state;
	has(text, "stepped     times are the stepper's");
	has(text, "THREAD  TID  INSTRUCTIONS  CALLS\n");
	has(text, "a         7           345     12\n");
	has(text, "INSTRUCTIONS  CALLS  FUNCTION\n");
	has(text, "77      3  re\\x1bad\n");
	has_not(text, "TRACED");
	has_not(text, "OUTSIDE");
	has_not(text, "ITSELF");
}

/* Shares are of all threads' samples, also of those that are not listed. */
static void test_omitted(void **state)
{
	_cleanup_free_ char *text =
		text_of(report_print,
			"{\"threads\":[{\"tid\":7,\"name\":\"a\",\"samples\":10}],"
			"\"threads_omitted\":900,\"samples_omitted\":30,"
			"\"heaviest\":[{\"stack\":[\"main\"],\"samples\":20,\"ns\":20000000}]}");

	(void)state;
	has(text, "50.0 %");
	has(text, "... and 900 more");
}

static void test_odd_summaries(void **state)
{
	static const char *const odd[] = {
		NULL,

		"[]",
		"7",
		"{}",
		"{\"threads\":7,\"heaviest\":{},\"waits\":\"x\",\"losses\":[]}",
		"{\"threads\":[null,7,{}],\"heaviest\":[null,{\"stack\":[null,7,[],{}]}],\"waits\":"
		"[null,{},"
		"{\"stack\":[],\"woken_by\":{}},{\"woken_by\":7}]}",
		"{\"threads\":[{}],\"functions\":[7,{}]}",
		"{\"focus\":{\"region\":7},\"regions\":[7,{}],\"slowest_regions\":[null,{\"waits\":[7]}]}",
		"{\"focus\":{\"region\":{\"thread\":7,\"on_cpu_ns\":\"x\",\"waits\":[{}],\"heaviest\":[{}]}},"
		"\"regions\":7}",
		"{\"from_ns\":-1,\"to_ns\":1e300,\"focus\":{\"from_ns\":9,\"to_ns\":3}}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
		_cleanup_free_ char *text = text_of(report_print, odd[i]);

		assert_non_null(text);
	}
}

static void test_incomplete(void **state)
{
	_cleanup_free_ char *whole = text_of(report_print_incomplete,
		"{\"stats\":{\"samples\":7,\"switches\":0},\"losses\":{\"torn_records\":0}}");
	_cleanup_free_ char *cut = text_of(report_print_incomplete,
		"{\"stats\":{\"samples\":0},\"losses\":{\"torn_records\":1,\"bytes_unread\":11536,"
		"\"images_missing\":[\"/a\\u001b\",\"/b\",\"/c\",\"/d\",\"/e\",\"/f\",null]}}");
	_cleanup_free_ char *odd = text_of(report_print_incomplete,
		"{\"stats\":7,\"losses\":{\"images_missing\":{},\"images_changed\":[null,{}]}}");
	_cleanup_free_ char *none = text_of(report_print_incomplete, NULL);

	assert_string_equal(whole, "");
	has(cut, "  empty       the recording holds no samples\n"
		 "  incomplete  torn records: 1\n"
		 "              bytes unread: 11536\n"
		 "  not found   /a\\x1b\n"
		 "              /b\n");
	has(cut, "and 2 more\n");
	has_not(cut, "/f");
	assert_non_null(odd);
	assert_string_equal(none, "");
}

static const char target[] =
	"{\"id\":\"t3\",\"scope\":\"process\",\"pid\":1234,\"comm\":\"slow\\nlock\",\"exe\":\"/bin/"
	"slow\",\"uid\":1000,"
	"\"state\":\"exited\",\"stacks\":\"dwarf\",\"method\":\"cgroup\",\"waits\":true,\"why\":["
	"\"no frame pointers\"],"
	"\"warnings\":[],\"armed_at\":1,\"state_at\":86400000000000,\"lookback_ns\":12300000000,\"samples\":45210,\"switches\":"
	"99,"
	"\"lost\":{\"torn\":2,\"late\":0},\"ring_bytes\":8388608,\"fds\":12,\"owner_uid\":0}";

static const char pending[] =
	"{\"id\":\"t4\",\"scope\":\"process\",\"pid\":1234,\"state\":\"armed\",\"stacks\":\"dwarf\",\"stacks_auto\":true,"
	"\"stacks_pending\":true,\"method\":\"cpu\",\"waits\":true}";

static void test_target_pending(void **state)
{
	_cleanup_free_ char *text = text_of(view_target, pending);

	has(text,
	    "stacks dwarf until its files have been looked at, waits on, recorded by cpu events\n");
}

static void test_target(void **state)
{
	_cleanup_free_ char *text = text_of(view_target, target);

	has(text, "t3: slow\\x0alock (pid 1234)\n");
	has(text, "stacks dwarf, waits on, recorded by cgroup events\n");
	has(text, "because     no frame pointers\n");
	/* in any time zone more than half a day after it was armed */
	assert_null(strstr(text, "since 1970-01-01 00:00:00"));
	has(text, "state       exited since 1970-01-0");
	has(text, "look-back   12.3 s\n");
	has(text, "lost        torn 2\n");
	has(text, "8.0 MiB of rings, 12 file descriptors");
}

/*
 * How far a ring of trace looks back nobody knows, and it does not say that it is not at all, or as
 * far as its waits.
 */
static void test_target_of_pt(void **state)
{
	static const char pt[] =
		"{\"id\":\"t5\",\"pid\":7,\"comm\":\"life\",\"state\":\"armed\",\"backend\":\"pt\",\"lookback_ns\":12300000000,"
		"\"pt\":{\"timing\":\"normal\",\"ring_bytes\":4096,\"cpus\":2}}";
	_cleanup_free_ char *text = text_of(view_target, pt), *json = NULL, *list = NULL;

	has(text, "look-back   not measured");
	assert_true(asprintf(&json, "[%s]", pt) > 0);
	list = text_of(view_targets, json);
	has(list, "not measured");
	assert_null(strstr(list, "12.3 s"));
}

static void test_lists(void **state)
{
	_cleanup_free_ char *none = text_of(view_targets, "[]");
	_cleanup_free_ char *targets = NULL, *snapshots = NULL, *json = NULL;

	assert_string_equal(none, "");
	assert_true(asprintf(&json, "[%s,{\"id\":\"t4\",\"unit\":\"nginx.service\"}]", target) > 0);
	targets = text_of(view_targets, json);
	has(targets, "TARGET");
	has(targets, "t3");
	has(targets, "nginx.service");
	snapshots = text_of(view_snapshots,
		"[{\"id\":\"20261121-101500-3f9a\",\"target\":\"t3\",\"pid\":1234,"
		"\"comm\":\"x\",\"state\":\"done\",\"bytes\":8396,\"cause\":{\"reason\":\"why\"}}"
		"]");
	has(snapshots, "20261121-101500-3f9a");
	has(snapshots, "8.1 KiB");
	has(snapshots, "why\n");
}

static void test_snapshot(void **state)
{
	_cleanup_free_ char *text = text_of(view_snapshot,
		"{\"id\":\"s\",\"target\":\"t3\",\"pid\":1234,\"comm\":\"x\",\"state\":\"failed\","
		"\"created_at\":1000,"
		"\"published_at\":310001000,\"error\":{\"code\":\"decode_failed\",\"message\":"
		"\"bad\"},"
		"\"files\":[{\"name\":\"perf.data\",\"size\":1024}],\"blind_ns\":5000}");
	_cleanup_free_ char *empty = text_of(view_snapshot, "{}");
	/* not by one of its processes */
	_cleanup_free_ char *unit = text_of(
		view_snapshot,
		"{\"id\":\"s\",\"target\":\"t3\",\"pid\":1234,\"comm\":\"x\",\"unit\":\"nginx.service\"}");
	_cleanup_free_ char *host = text_of(
		view_snapshot,
		"{\"id\":\"s\",\"target\":\"t3\",\"pid\":1234,\"comm\":\"x\",\"unit\":\"/\"}");

	has(text, "snapshot s of x (pid 1234, target t3)\n");
	has(unit, "snapshot s of unit nginx.service (target t3)\n");
	has(host, "snapshot s of the host (target t3)\n");
	has(text, "failed in 310 ms\n");
	has(text, "error       bad\n");
	has(text, "perf.data (1.0 KiB)\n");
	has(text, "5.00 us\n");
	assert_non_null(empty);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_summary),
		cmocka_unit_test(test_stacks_on_a_terminal),
		cmocka_unit_test(test_locks),
		cmocka_unit_test(test_timers),
		cmocka_unit_test(test_not_over),
		cmocka_unit_test(test_throughout),
		cmocka_unit_test(test_file_locks),
		cmocka_unit_test(test_throttled),
		cmocka_unit_test(test_preempted),
		cmocka_unit_test(test_inside),
		cmocka_unit_test(test_runnable),
		cmocka_unit_test(test_handed_on),
		cmocka_unit_test(test_interpreter),
		cmocka_unit_test(test_monitor),
		cmocka_unit_test(test_signalled),
		cmocka_unit_test(test_not_known),
		cmocka_unit_test(test_slow_region),
		cmocka_unit_test(test_functions),
		cmocka_unit_test(test_stepped),
		cmocka_unit_test(test_omitted),
		cmocka_unit_test(test_odd_summaries),
		cmocka_unit_test(test_incomplete),
		cmocka_unit_test(test_target),
		cmocka_unit_test(test_target_pending),
		cmocka_unit_test(test_target_of_pt),
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_snapshot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
