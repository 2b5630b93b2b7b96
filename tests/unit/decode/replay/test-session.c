// SPDX-License-Identifier: Apache-2.0
/*
 * A made recording replayed into a timeline that only writes down what it is told (it stands here
 * in place of the real one): who is told when, forks, execs, names, switches, wake-ups, losses, and
 * events of programs, which a list stands for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <linux/perf_event.h>

#include "common/bundle/schedev.h"
#include "common/control/json.h"
#include "decode/object/process_maps.h"
#include "decode/perf/event.h"
#include "decode/replay/prescan.h"
#include "decode/replay/session.h"
#include "decode/rings/event.h"
#include "decode/timeline/go.h"
#include "tests/unit/decode/perf/perfdata-make.h"

static struct make m;
static struct stacktab *st;
static char told[16384];
static size_t told_len;
static bool quiet;

static _printf_(1, 2) int tell(const char *fmt, ...)
{
	va_list ap;
	int n;

	if (quiet)
		return 0;
	va_start(ap, fmt);
	n = vsnprintf(told + told_len, sizeof(told) - told_len, fmt, ap);
	va_end(ap);
	assert_true(n > 0 && (size_t)n < sizeof(told) - told_len);
	told_len += (size_t)n;
	return 0;
}

static const char *text_of(uint32_t stack)
{
	static char text[1024];
	uint32_t frames[64], n = stacktab_frames(st, stack, frames, ARRAY_SIZE(frames));
	size_t len = 0;

	text[0] = '\0';
	for (uint32_t i = 0; i < n; i++) {
		struct frame_info info;

		stacktab_info(st, frames[i], &info);
		len += (size_t)snprintf(
			text + len, sizeof(text) - len, "%s%s", i ? ">" : "", info.name);
	}
	return text;
}

int timeline_process(
	struct timeline *tl, uint32_t pid, uint32_t ppid, const char *name, uint64_t ts)
{
	return tell("%d process %u of %u %s\n", (int)ts, pid, ppid, name);
}

int timeline_thread(struct timeline *tl, uint32_t pid, uint32_t tid, const char *name, uint64_t ts)
{
	return tell("%d thread %u/%u %s\n", (int)ts, pid, tid, name);
}

int timeline_program(struct timeline *tl, uint32_t pid, uint64_t ts)
{
	return tell("%d program %u\n", (int)ts, pid);
}

void timeline_thread_forked(struct timeline *tl, uint32_t tid)
{
	(void)tell("forked %u\n", tid);
}

int timeline_thread_exit(struct timeline *tl, uint32_t tid, uint64_t ts)
{
	return tell("%d exit %u\n", (int)ts, tid);
}

int timeline_suspended(struct timeline *tl, uint64_t ts, const char *why)
{
	return tell("%d suspended: %s\n", (int)ts, why);
}

int timeline_sample(struct timeline *tl, uint32_t tid, uint64_t ts, uint32_t cpu, uint32_t stack)
{
	return tell("%d sample %u cpu %u %s\n", (int)ts, tid, cpu, text_of(stack));
}

void timeline_in_goroutine(struct timeline *tl, uint32_t tid, uint64_t ts, uint64_t id,
			   const char *function)
{
	(void)tell("%d in goroutine %u of %d %s\n", (int)ts, tid, (int)id, function);
}

int timeline_switch_out(struct timeline *tl, uint32_t tid, uint64_t ts, uint32_t cpu,
	enum off_cpu state, uint32_t stack, uint32_t other_tid, const char *other_name)
{
	return tell("%d out %u state %d next %u %s [%s]\n", (int)ts, tid, (int)state, other_tid,
		other_name ? other_name : "-", text_of(stack));
}

void timeline_wait_in(struct timeline *tl, uint32_t tid, const char *call, uint32_t fd,
		      const char *kind)
{
	(void)tell("%u in %s %d %s\n", tid, call, (int)fd, kind ? kind : "-");
}

void timeline_wait_for(struct timeline *tl, uint32_t tid, uint32_t futex)
{
	(void)tell("%u for futex %u\n", tid, futex);
}

int timeline_switch_gone(struct timeline *tl, uint64_t ts, uint32_t cpu, uint32_t other_tid,
			 const char *other_name)
{
	return tell("%d gone cpu %u next %u\n", (int)ts, cpu, other_tid);
}

int timeline_switch_in(struct timeline *tl, uint32_t tid, uint64_t ts, uint32_t cpu,
	uint32_t other_tid, const char *other_name)
{
	return tell("%d in %u\n", (int)ts, tid);
}

int timeline_waited(struct timeline *tl, uint32_t tid, uint64_t ts, uint64_t ns, uint32_t stack)
{
	return tell("%d waited %u for %d [%s]\n", (int)ts, tid, (int)ns, text_of(stack));
}

int timeline_blocked(struct timeline *tl, uint32_t tid, uint64_t ts, enum off_cpu state,
		     uint32_t stack)
{
	return tell("%d blocked %u state %d [%s]\n", (int)ts, tid, (int)state, text_of(stack));
}

int timeline_wakeup(struct timeline *tl, uint32_t wakee_tid, uint64_t ts, uint32_t cpu,
	uint32_t waker_tid, uint32_t waker_pid, const char *waker_name, bool in_irq, uint32_t stack)
{
	return tell("%d wake %u by %u/%d %s%s [%s]\n", (int)ts, wakee_tid, waker_tid,
		    (int)waker_pid, waker_name ? waker_name : "-", in_irq ? " irq" : "",
		    text_of(stack));
}

void timeline_wake_in(struct timeline *tl, uint32_t wakee_tid, const char *call)
{
	(void)tell("%u woken in %s\n", wakee_tid, call);
}

int timeline_loss(struct timeline *tl, uint32_t tid, uint64_t ts_begin, uint64_t ts_end,
	const char *kind, uint64_t count)
{
	return tell("%d loss from %d %s %d\n", (int)ts_end, (int)ts_begin, kind, (int)count);
}

int timeline_program_loss(struct timeline *tl, uint64_t ts_begin, uint64_t ts_end, const char *kind,
			  uint64_t count)
{
	return tell("%d program's loss from %d %s %d\n", (int)ts_end, (int)ts_begin, kind,
		    (int)count);
}

int timeline_go_begin(struct timeline *tl, uint32_t pid, uint64_t ts, const struct gosurvey *survey,
		      struct timeline_go **ret)
{
	*ret = (struct timeline_go *)told;
	return tell("%d Go trace of %u\n", (int)ts, pid);
}

int timeline_go_event(struct timeline *tl, struct timeline_go *go, uint64_t ts, uint32_t tid,
		      const struct goevent *ev, const struct gogeneration *gen)
{
	return tell("%d Go event of %u\n", (int)ts, tid);
}

uint64_t timeline_go_thread(const struct goevent *ev)
{
	return ev->m;
}

int timeline_go_end(struct timeline *tl, struct timeline_go *go, uint64_t ts)
{
	return tell("%d Go trace ends\n", (int)ts);
}

int timeline_mark(struct timeline *tl, uint64_t ts, const char *name)
{
	return tell("%d mark %s\n", (int)ts, name);
}

int timeline_exit(struct timeline *tl, uint64_t ts)
{
	return tell("%d all exit\n", (int)ts);
}

void timeline_incomplete(struct timeline *tl, uint64_t ts_begin, uint64_t ts_end)
{
	(void)tell("incomplete %d..%d\n", (int)ts_begin, (int)ts_end);
}

/* No recording here has PT. */
int timeline_call(struct timeline *tl, uint32_t tid, const struct call *call, const char *how,
		  const char *site)
{
	fail();
	return -1;
}

int timeline_return(struct timeline *tl, uint32_t tid, uint64_t ts, const struct call *call,
		    const struct timeline_return *end)
{
	fail();
	return -1;
}

int timeline_resync(struct timeline *tl, uint32_t tid, uint64_t ts, bool in_call)
{
	fail();
	return -1;
}

int timeline_identified(struct timeline *tl, uint32_t tid, const char *was, const char *is)
{
	fail();
	return -1;
}

int timeline_call_outside(struct timeline *tl, uint32_t tid, uint64_t ts, const struct call *call,
			  uint32_t more, const char *how)
{
	fail();
	return -1;
}

int timeline_moment(struct timeline *tl, uint32_t tid, uint64_t ts, const char *category,
		    const char *name, const struct timeline_value *values, uint32_t n_values)
{
	return tell("%d moment %u %s: %s\n", (int)ts, tid, category, name);
}

int timeline_counter(struct timeline *tl, uint32_t pid, uint64_t ts, const char *name,
		     enum writer_unit unit, int64_t value)
{
	fail();
	return -1;
}

int timeline_untraced(struct timeline *tl, uint32_t tid, uint64_t ts, const char *why)
{
	fail();
	return -1;
}

int timeline_traced(struct timeline *tl, uint32_t tid, uint64_t ts, uint64_t until)
{
	fail();
	return -1;
}

int timeline_event(struct timeline *tl, const struct ringevent *ev)
{
	return tell("%d event %d of %u/%u %s\n", (int)ev->ts, (int)ev->kind, ev->pid, ev->tid,
		ev->name ? ev->name : "-");
}

/* ---- the events of programs */

struct ringevents {
	const struct ringevent *list;
	size_t n, next;
};

size_t ringevents_count(const struct ringevents *r)
{
	return r->n;
}

uint64_t ringevents_peek(const struct ringevents *r)
{
	return r->next < r->n ? r->list[r->next].ts : UINT64_MAX;
}

bool ringevents_next(struct ringevents *r, struct ringevent *ret)
{
	if (r->next == r->n)
		return false;
	*ret = r->list[r->next++];
	return true;
}

static int ask(
	void *arg, const struct file_request *request, struct file_answer *ret_file, int *ret_fd)
{
	(void)tell("need %s %s\n", file_request_kind_to_string(request->kind), request->path);
	return *(int *)arg;
}

static int answer;
static struct json_object *reported; /* of the last replay */

static uint64_t report_of(const char *key)
{
	uint64_t n = 0;

	return json_get_uint(reported, key, &n) ? n : 0;
}

static bool without_perfdata;

/* Replays what was made, and compares what was told. */
static void replay(struct session_options so, const char *expected)
{
	const struct file_requester files = {.ask = ask, .arg = &answer};
	struct budget budget = {.max = 64u << 20};
	_cleanup_close_ int fd = make_file(&m);
	_cleanup_(perfdata_freep) struct perfdata *pd = NULL;
	_cleanup_(images_freep) struct images *images = NULL;
	_cleanup_(process_maps_freep) struct process_maps *maps = NULL;
	_cleanup_(session_freep) struct session *s = NULL;
	_cleanup_(prescan_fini) struct prescan prescan = {0};
	_cleanup_json_ struct json_object *report = json_object_new_object();

	told_len = 0;
	told[0] = '\0';
	assert_int_equal(stacktab_new(0, &st), 0);
	json_object_put(take_ptr(reported));
	if (!without_perfdata) {
		assert_int_equal(perfdata_open(fd, &budget, &pd), 0);
		assert_int_equal(perfdata_scan(pd, NULL, NULL), 0);
	}
	assert_int_equal(images_new(&files, &budget, &images), 0);
	assert_int_equal(process_maps_new(images, &budget, false, &maps), 0);
	so.pd = pd;
	so.images = images;
	so.maps = maps;
	so.st = st;
	so.files = &files;
	so.budget = &budget;
	so.symbols = true;
	if (pd) {
		assert_int_equal(prescan_run(&(struct prescan_options){.pd = pd,
								       .complete_from = true},
					     &prescan),
				 0);
		so.prescan = &prescan;
	}
	assert_int_equal(session_new(&so, &s), 0);
	assert_int_equal(session_run(s), answer < 0 ? answer : 0);
	if (so.events)
		assert_int_equal(so.events->next, so.events->n);
	session_report(s, report, report);
	session_hints(s, report);
	st = stacktab_free(st);
	reported = take_ptr(report);
	if (strcmp(told, expected) != 0)
		fail_msg("told:\n%s\nexpected:\n%s", told, expected);
}

static void test_tasks(void **state)
{
	const uint64_t ip = 0x401000;

	(void)state;
	make_init(&m);
	make_comm(&m, 0, 10, 10, "sh", 0);
	make_mmap(&m, 0, 10, 0x400000, 0x10000, 0, 5, "/bin/sh");
	make_sample(&m, 100, 10, 10, &ip, 1);
	make_fork(&m, 110, 20, 20, 10, 10); /* a child: its parent's maps and name */
	make_sample(&m, 120, 20, 20, &ip, 1);
	make_comm(&m, 130, 20, 20, "prog\n", 1); /* exec: no maps, another name */
	make_sample(&m, 140, 20, 20, &ip, 1);
	make_mmap(&m, 150, 20, 0x400000, 0x10000, 0, 6, "/bin/prog");
	make_sample(&m, 160, 20, 20, &ip, 1);
	make_fork(&m, 170, 20, 21, 20, 20); /* a thread */
	make_sample(&m, 180, 20, 21, &ip, 1);
	make_comm(&m, 190, 20, 21, "worker", 0);
	make_exit(&m, 200, 20, 21);
	make_sample(&m, 205, 20, 21, &ip, 1); /* on its way out: no second thread */
	/* when its ids have been taken away: no thread at all */
	make_sample(&m, 207, UINT32_MAX, UINT32_MAX, &ip, 1);
	make_exit(&m, 210, 20, 20);
	make_fork(&m, 220, 20, 20, 10, 10); /* the number comes again */
	make_sample(&m, 230, 20, 20, &ip, 1);
	make_sample(&m, 240, 10, 10, &ip, 1);
	replay((struct session_options){0}, "100 process 10 of 0 sh\n"
					    "100 thread 10/10 sh\n"
					    "need object /bin/sh\n"
					    "100 sample 10 cpu 0 [callers unknown]>[sh]\n"
					    "120 process 20 of 10 sh\n"
					    "120 thread 20/20 sh\n"
					    "120 sample 20 cpu 0 [callers unknown]>[sh]\n"
					    "130 program 20\n"
					    "130 thread 20/20 prog\\x0a\n"
					    "130 process 20 of 10 prog\\x0a\n"
					    "140 sample 20 cpu 0 [callers unknown]>[unknown]\n"
					    "need object /bin/prog\n"
					    "160 sample 20 cpu 0 [callers unknown]>[prog]\n"
					    "180 thread 20/21 prog\\x0a\n"
					    "180 sample 21 cpu 0 [callers unknown]>[prog]\n"
					    "190 thread 20/21 worker\n"
					    "200 exit 21\n"
					    "205 sample 21 cpu 0 [callers unknown]>[prog]\n"
					    "210 exit 20\n"
					    "220 program 20\n"
					    "230 process 20 of 10 sh\n"
					    "230 thread 20/20 sh\n"
					    "230 sample 20 cpu 0 [callers unknown]>[sh]\n"
					    "240 sample 10 cpu 0 [callers unknown]>[sh]\n");
}

/*
 * The last thing that is known of a process is what it has mapped: after its last stack, which was
 * of another program.
 */
static void test_hints(void **state)
{
	_cleanup_free_ char *expected = NULL;
	const uint64_t ip = 0x401000;
	const char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&expected, &len);

	(void)state;
	assert_non_null(f);
	make_init(&m);
	make_comm(&m, 0, 10, 10, "jit", 0);
	make_mmap(&m, 0, 10, 0x400000, 0x10000, 0, 0, "//anon");
	(void)fputs("100 process 10 of 0 jit\n100 thread 10/10 jit\n", f);
	for (uint64_t i = 0; i < 12; i++) {
		make_sample(&m, 100 + i, 10, 10, &ip, 1);
		(void)fprintf(f, "%u sample 10 cpu 0 [callers unknown]>[anon]\n",
			      100 + (unsigned int)i);
	}
	make_comm(&m, 130, 10, 10, "java", 1);
	make_mmap(&m, 140, 10, 0x400000, 0x10000, 0, 6, "/usr/lib/libjvm.so");
	(void)fputs("130 program 10\n130 thread 10/10 java\n130 process 10 of 0 java\n", f);
	assert_int_equal(fclose(f), 0);
	replay((struct session_options){0}, expected);
	text = json_object_to_json_string(json_get_array(reported, "hints"));
	assert_non_null(strstr(text, "Java"));
}

/*
 * A thread executes a program and gets the number of the one that began: the kernel reports the
 * others' exits, and its own number is nobody's.
 */
static void test_thread_executes(void **state)
{
	const uint64_t ip = 0x401000;

	(void)state;
	make_init(&m);
	make_comm(&m, 0, 30, 30, "sh", 0);
	make_fork(&m, 10, 30, 31, 30, 30);
	make_fork(&m, 20, 30, 32, 30, 30);
	make_fork(&m, 30, 40, 40, 30, 30);
	make_sample(&m, 40, 30, 30, &ip, 1);
	make_sample(&m, 50, 30, 31, &ip, 1);
	make_sample(&m, 60, 30, 32, &ip, 1);
	make_sample(&m, 70, 40, 40, &ip, 1);
	make_exit(&m, 80, 30, 32);
	make_exit(&m, 90, 30, 30);
	make_comm(&m, 100, 30, 30, "prog", 1);
	make_sample(&m, 110, 30, 30, &ip, 1);
	make_sample(&m, 120, 40, 40, &ip, 1);
	make_comm(&m, 130, 40, 40, "other", 1);
	replay((struct session_options){0}, "40 process 30 of 0 sh\n"
					    "40 thread 30/30 sh\n"
					    "40 sample 30 cpu 0 [callers unknown]>[unknown]\n"
					    "50 thread 30/31 sh\n"
					    "50 sample 31 cpu 0 [callers unknown]>[unknown]\n"
					    "60 thread 30/32 sh\n"
					    "60 sample 32 cpu 0 [callers unknown]>[unknown]\n"
					    "70 process 40 of 30 sh\n"
					    "70 thread 40/40 sh\n"
					    "70 sample 40 cpu 0 [callers unknown]>[unknown]\n"
					    "80 exit 32\n"
					    "90 exit 30\n"
					    "100 exit 31\n"
					    "100 program 30\n"
					    "100 process 30 of 0 prog\n"
					    "110 thread 30/30 prog\n"
					    "110 sample 30 cpu 0 [callers unknown]>[unknown]\n"
					    "120 sample 40 cpu 0 [callers unknown]>[unknown]\n"
					    "130 program 40\n"
					    "130 thread 40/40 other\n"
					    "130 process 40 of 30 other\n");
}

/*
 * A process's id comes again, and a thread's in it: that is the new process's thread, with its code
 * and its name.
 */
static void test_ids_again(void **state)
{
	const uint64_t ip = 0x401000;

	(void)state;
	make_init(&m);
	make_comm(&m, 0, 10, 10, "sh", 0);
	make_mmap(&m, 0, 10, 0x400000, 0x10000, 0, 5, "/bin/sh");
	make_fork(&m, 10, 20, 20, 10, 10);
	make_comm(&m, 20, 20, 20, "prog", 1);
	make_mmap(&m, 30, 20, 0x400000, 0x10000, 0, 6, "/bin/prog");
	make_fork(&m, 40, 20, 21, 20, 20);
	make_sample(&m, 50, 20, 21, &ip, 1);
	make_exit(&m, 60, 20, 21);
	make_exit(&m, 70, 20, 20);
	make_fork(&m, 80, 20, 20, 10, 10);
	make_fork(&m, 90, 20, 21, 20, 20);
	make_sample(&m, 100, 20, 21, &ip, 1);
	replay((struct session_options){0}, "20 program 20\n"
					    "50 process 20 of 10 prog\n"
					    "50 thread 20/21 prog\n"
					    "need object /bin/prog\n"
					    "50 sample 21 cpu 0 [callers unknown]>[prog]\n"
					    "60 exit 21\n"
					    "80 program 20\n"
					    "100 process 20 of 10 sh\n"
					    "100 thread 20/21 sh\n"
					    "need object /bin/sh\n"
					    "100 sample 21 cpu 0 [callers unknown]>[sh]\n");
}

/* A bundle's threads are all told, also those that sleep all along. */
static void test_whole_target(void **state)
{
	const struct session_note notes[] = {
		{.begin = 50, .end = 90, .count = 3, .text = "not recorded: it was late"},
		{.begin = 125, .end = 125, .kind = SESSION_EXIT},
		{.begin = 130, .end = 130, .kind = SESSION_MARK, .text = "snapshot"},
	};

	(void)state;
	make_init(&m);
	make_comm(&m, 1, 10, 10, "svc", 0);
	make_fork(&m, 1, 10, 11, 10, 10);
	make_comm(&m, 1, 10, 11, "sleeper", 0);
	make_fork(&m, 1, 10, 12, 10, 10);
	make_exit(&m, 5, 10, 12);
	make_switch(&m, 100, 10, 10, 1);
	make_fork(&m, 110, 10, 13, 10, 10);
	make_switch(&m, 120, 10, 10, 0);
	replay((struct session_options){.whole_target = true, .notes = notes, .n_notes = 3},
		"incomplete 50..90\n"
		/* they have been there all the time */
		"90 loss from 50 not recorded: it was late 3\n"
		"0 process 10 of 0 svc\n"
		"0 thread 10/10 svc\n"
		"0 thread 10/11 sleeper\n"
		"100 out 10 state 0 next 4294967294 - []\n"
		"110 thread 10/13 svc\n"
		"forked 13\n"
		"120 in 10\n"
		"125 all exit\n"
		"130 mark snapshot\n");

	/* nor is a target that did nothing at all left out */
	make_init(&m);
	make_comm(&m, 1, 10, 10, "svc", 0);
	replay((struct session_options){.whole_target = true, .notes = notes + 2, .n_notes = 1},
		"0 process 10 of 0 svc\n"
		"0 thread 10/10 svc\n"
		"130 mark snapshot\n");
}

/*
 * Processes that end while the recorder begins have no record of that: it has seen so itself,
 * later. What comes after that time is another process's with the number, and of who has had his
 * records nothing ends again.
 */
static void test_ends(void **state)
{
	const struct session_end ends[] = {{.ns = 105, .pid = 20},
					   {.ns = 110, .pid = 30},
					   {.ns = 130, .pid = 20},
					   {.ns = 140, .pid = 77}};
	const struct session_note notes[] = {
		{.begin = 150,
		 .end = 150,
		 .kind = SESSION_SUSPENDED,
		 .text = "it executed another program"},
		{.begin = 160, .end = 160, .kind = SESSION_MARK, .text = "snapshot"},
	};

	(void)state;
	make_init(&m);
	make_comm(&m, 1, 20, 20, "short", 0);
	make_fork(&m, 1, 20, 21, 20, 20);
	make_comm(&m, 1, 30, 30, "other", 0);
	make_comm(&m, 1, 10, 10, "svc", 0);
	make_switch(&m, 100, 10, 10, 1);
	make_exit(&m, 102, 30, 30);
	make_fork(&m, 105, 20, 20, 10, 10);
	make_switch(&m, 120, 10, 10, 0);
	replay((struct session_options){.whole_target = true,
					.notes = notes,
					.n_notes = 2,
					.ends = ends,
					.n_ends = 4},
	       "0 process 10 of 0 svc\n"
	       "0 thread 10/10 svc\n"
	       "0 process 20 of 0 short\n"
	       "0 thread 20/20 short\n"
	       "0 process 30 of 0 other\n"
	       "0 thread 30/30 other\n"
	       "0 thread 20/21 short\n"
	       "100 out 10 state 0 next 4294967294 - []\n"
	       "102 exit 30\n"
	       "105 exit 21\n"
	       "105 exit 20\n"
	       "105 program 20\n"
	       "105 process 20 of 10 svc\n"
	       "105 thread 20/20 svc\n"
	       "forked 20\n"
	       "120 in 10\n"
	       "130 exit 20\n"
	       "150 suspended: it executed another program\n"
	       "160 mark snapshot\n");
}

/* The time that a sample stands for: by the event, else by how far apart samples lie. */
static void test_period(void **state)
{
	const uint64_t ip = 0x401000;

	(void)state;
	for (int cycles = 0; cycles < 3; cycles++) {
		struct budget budget = {.max = 64u << 20};
		_cleanup_(perfdata_freep) struct perfdata *pd = NULL;
		_cleanup_close_ int fd = -1;
		struct prescan prescan;
		struct perfevent ev;

		make_init(&m);
		m.cycles = cycles;
		for (uint32_t i = 0; i < (cycles < 2 ? 40 : 4); i++)
			make_sample(&m, 100 + i * 5, 10, 10 + i % 2, &ip, 1);
		fd = make_file(&m);
		assert_int_equal(perfdata_open(fd, &budget, &pd), 0);
		assert_int_equal(perfdata_scan(pd, NULL, NULL), 0);
		/* two threads take turns; a few samples prove nothing */
		assert_int_equal(prescan_run(&(struct prescan_options){.pd = pd,
								       .complete_from = true},
					     &prescan),
				 0);
		assert_int_equal(prescan.period_ns, cycles == 0 ? 1000000 : cycles == 1 ? 10 : 0);
		prescan_fini(&prescan);
		assert_int_equal(perfdata_next(pd, &ev), 1);
		assert_int_equal(ev.time, 100);
	}
}

static void test_losses(void **state)
{
	const uint64_t ip = 0xffffffff81000000;

	(void)state;
	make_init(&m);
	make_sample(&m, 100, 10, 10, &ip, 1);
	make_begin(&m, PERF_RECORD_LOST, 0);
	make_u64(&m, 77);
	make_u64(&m, 12);
	make_end_with_id(&m, 0, 0, 150, 0);
	make_begin(&m, PERF_RECORD_THROTTLE, 0);
	make_u64(&m, 160);
	make_u64(&m, 77);
	make_u64(&m, 77);
	make_end_with_id(&m, 0, 0, 160, 0);
	make_begin(&m, PERF_RECORD_UNTHROTTLE, 0);
	make_u64(&m, 170);
	make_u64(&m, 77);
	make_u64(&m, 77);
	make_end_with_id(&m, 0, 0, 170, 0);
	/* idle, and what has no time of its own */
	make_sample(&m, 180, 0, 0, &ip, 1);
	make_begin(&m, PERF_RECORD_LOST, 0);
	make_u64(&m, 77);
	make_u64(&m, 12);
	make_end_with_id(&m, 0, 0, 0, 0);
	replay((struct session_options){0}, /* nobody knows what is missing */
					    "incomplete 100..150\n"
					    "100 process 10 of 0 \n"
					    "100 thread 10/10 \n"
					    /* an address of the kernel's half in the user's part */
					    "100 sample 10 cpu 0 \n"
					    "150 loss from 100 records lost 12\n"
					    "170 loss from 160 sampling throttled 1\n");
}

/*
 * perf sched record: the scheduler's tracepoints are what they say, others are moments; none is a
 * sample.
 */
static void test_tracepoints(void **state)
{
	struct sched_switch {
		uint16_t type;
		uint8_t flags, preempt;
		uint32_t tid;
		char prev_comm[16];
		uint32_t prev_tid, prev_prio;
		uint64_t prev_state;
		char next_comm[16];
		uint32_t next_tid, next_prio;
	} sw = {.tid = 10,
		.prev_comm = "svc",
		.prev_tid = 10,
		.prev_state = 2,
		.next_comm = "cc1",
		.next_tid = 20};
	struct waking {
		uint16_t type;
		uint8_t flags, preempt;
		uint32_t tid;
		char comm[16];
		uint32_t wakee, prio, cpu;
	} wake = {.tid = 20, .comm = "svc", .wakee = 10};

	(void)state;
	make_init(&m);
	make_tracepoint(&m, 501, "sched:sched_switch");
	make_tracepoint(&m, 502, "sched:sched_waking");
	make_tracepoint(&m, 503, "sched:sched_wakeup");
	make_tracepoint(&m, 504, "sched:sched_stat_runtime");
	make_comm(&m, 0, 10, 10, "svc", 0);
	make_tracepoint_sample(&m, 501, 100, 10, 10, &sw, sizeof(sw));
	make_switch(&m, 101, 10, 10, 1); /* says less */
	make_tracepoint_sample(&m, 502, 110, 20, 20, &wake, sizeof(wake));
	make_tracepoint_sample(&m, 503, 111, 20, 20, &wake, sizeof(wake)); /* the same once more */
	wake.flags = 0x10;
	make_tracepoint_sample(&m, 502, 112, 20, 20, &wake, sizeof(wake));
	make_tracepoint_sample(&m, 504, 115, 20, 20, &wake, sizeof(wake));
	make_tracepoint_sample(&m, 504, 116, 0, 0, &wake, sizeof(wake)); /* of no thread */
	sw = (struct sched_switch){
		.tid = 20, .prev_comm = "cc1", .prev_tid = 20, .next_comm = "svc", .next_tid = 10};
	make_tracepoint_sample(&m, 501, 120, 20, 20, &sw, sizeof(sw));
	/* it has exited, and the record has no number for it any more */
	sw = (struct sched_switch){.tid = 30,
				   .prev_comm = "old",
				   .prev_tid = 30,
				   .prev_state = 0x20,
				   .next_comm = "cc1",
				   .next_tid = 20};
	make_tracepoint_sample(&m, 501, 125, UINT32_MAX, UINT32_MAX, &sw, sizeof(sw));
	/* another layout than is known: too short, other threads, a name without an end */
	make_tracepoint_sample(&m, 501, 130, 10, 10, &sw, 56);
	make_tracepoint_sample(&m, 501, 131, 10, 10, &sw, sizeof(sw));
	sw.tid = 10;
	make_tracepoint_sample(&m, 501, 132, 10, 10, &sw, sizeof(sw));
	memset(wake.comm, 'x', sizeof(wake.comm));
	make_tracepoint_sample(&m, 502, 133, 20, 20, &wake, sizeof(wake));
	replay((struct session_options){0}, "100 process 10 of 0 svc\n"
					    "100 thread 10/10 svc\n"
					    "100 out 10 state 4 next 20 cc1 []\n"
					    "100 process 20 of 0 cc1\n"
					    "100 thread 20/20 cc1\n"
					    "100 in 20\n"
					    "110 wake 10 by 20/20 cc1 []\n"
					    "112 wake 10 by 20/20 - irq []\n"
					    "115 moment 20 event: sched:sched_stat_runtime\n"
					    "120 out 20 state 1 next 10 svc []\n"
					    "120 in 10\n"
					    "125 gone cpu 0 next 20\n"
					    "125 in 20\n");
	assert_int_equal(report_of("samples"), 0);
	assert_int_equal(report_of("switches"), 3);
	assert_int_equal(report_of("wakeups"), 2);
	assert_int_equal(report_of("kernel_events"), 2);
	assert_int_equal(report_of("bad_sched_events"), 4);
}

static uint64_t complete_from(void)
{
	struct budget budget = {.max = 64u << 20};
	_cleanup_(perfdata_freep) struct perfdata *pd = NULL;
	_cleanup_close_ int fd = make_file(&m);
	_cleanup_(prescan_fini) struct prescan prescan = {0};

	assert_int_equal(perfdata_open(fd, &budget, &pd), 0);
	assert_int_equal(perfdata_scan(pd, NULL, NULL), 0);
	assert_int_equal(prescan_run(&(struct prescan_options){.pd = pd, .complete_from = true},
				     &prescan),
			 0);
	return prescan.complete_from_ns;
}

/* Rings that keep the newest: since when all of them have everything. */
static void test_complete_from(void **state)
{
	const uint64_t ip = 0x401000;

	(void)state;
	make_init(&m);
	/* a CPU that was idle for long has little in its ring: that has not come round */
	for (uint32_t i = 0; i < 3500; i++) {
		m.cpu = 1;
		if (i < 1500)
			make_sample(&m, 50000 + i, 10, 10, &ip, 1);
		m.cpu = 0;
		make_sample(&m, 1000 + i * 100, 10, 11, &ip, 1);
	}
	m.cpu = 2;
	make_sample(&m, 400000, 10, 10, &ip, 1);
	assert_int_equal(complete_from(), 0); /* they are read while they fill */
	m.backward = 1;
	/* 246 of 256 KiB are full, and 105, and one record */
	assert_int_equal(complete_from(), 1000);
	/* one with as much begins later */
	make_init(&m);
	m.backward = 1;
	for (uint32_t i = 0; i < 3500; i++) {
		m.cpu = 0;
		make_sample(&m, 1000 + i * 100, 10, 11, &ip, 1);
		m.cpu = 1;
		make_sample(&m, 90000 + i * 10, 10, 10, &ip, 1);
	}
	assert_int_equal(complete_from(), 90000);
	/* whose record it was is not known: everything could be anywhere */
	m.cpu = UINT32_MAX;
	make_sample(&m, 300000, 10, 10, &ip, 1);
	assert_int_equal(complete_from(), 300000);
}

#define EVENT(at, of_pid, of_tid, is, named)                                                       \
	{                                                                                          \
		.ts = (at), .pid = (of_pid), .tid = (of_tid), .kind = (is), .name = (named)        \
	}

/* Records, notes and events of programs in one order; threads that only events tell of. */
static void test_program_events(void **state)
{
	const uint64_t ip = 0xffffffff81000000;
	const struct session_note notes[] = {
		{.begin = 125, .end = 125, .kind = SESSION_MARK, .text = "here"}};
	const struct ringevent list[] = {
		EVENT(90, 10, 10, RINGEVENT_REGION_BEGIN, "early"),
		EVENT(100, 10, 10, RINGEVENT_INSTANT, "at once"),
		EVENT(120, 10, 11, RINGEVENT_THREAD, "pool 1"),
		EVENT(120, 10, 11, RINGEVENT_REGION_BEGIN, "serve"),
		EVENT(130, 10, 12, RINGEVENT_THREAD, NULL),
		EVENT(145, 10, 11, RINGEVENT_REGION_END, "serve"),
		EVENT(155, 10, 12, RINGEVENT_THREAD, "late name"),
		EVENT(200, 10, 11, RINGEVENT_INSTANT, "the last"),
		EVENT(201, 10, 11, RINGEVENT_INSTANT, "after the freeze"),
		EVENT(202, 10, 14, RINGEVENT_THREAD, "begun after it"),
		EVENT(203, 10, 13, RINGEVENT_LOST, ""),
		EVENT(203, 10, 13, RINGEVENT_THREAD, "overtaken"),
		EVENT(204, 10, 13, RINGEVENT_INSTANT, "long after the freeze"),
	};
	struct ringevents events = {.list = list, .n = ARRAY_SIZE(list)};

	(void)state;
	make_init(&m);
	make_comm(&m, 1, 10, 10, "svc", 0);
	make_sample(&m, 100, 10, 10, &ip, 1);
	make_comm(&m, 140, 10, 11, "kernels", 0); /* the program has named it */
	make_sample(&m, 150, 10, 11, &ip, 1);
	make_exit(&m, 160, 10, 11);
	replay((struct session_options){
		       .events = &events, .events_end_ns = 200, .notes = notes, .n_notes = 1},
		"90 process 10 of 0 svc\n"
		"90 thread 10/10 svc\n"
		"90 event 1 of 10/10 early\n"
		"100 event 3 of 10/10 at once\n"
		"100 sample 10 cpu 0 \n"
		"120 thread 10/11 pool 1\n"
		"120 event 0 of 10/11 pool 1\n"
		"120 event 1 of 10/11 serve\n"
		"125 mark here\n"
		"130 thread 10/12 svc\n"
		"130 event 0 of 10/12 -\n"
		"140 thread 10/11 pool 1\n"
		"145 event 2 of 10/11 serve\n"
		"150 sample 11 cpu 0 \n"
		"155 thread 10/12 late name\n"
		"155 event 0 of 10/12 late name\n"
		"160 exit 11\n"
		/* rings are read after the freeze: what had just ended may still have written */
		"200 event 3 of 10/11 the last\n"
		/*
		 * and one that was so quick that nothing from before it is left is there all the
		 * same
		 */
		"200 thread 10/13 svc\n"
		"200 event 11 of 10/13 \n"
		"200 thread 10/13 overtaken\n"
		"200 event 0 of 10/13 overtaken\n");
	assert_int_equal(report_of("events_after_freeze"), 5);

	/* nothing but events */
	events.next = 0;
	without_perfdata = true;
	replay((struct session_options){.events = &events, .whole_target = true},
		"90 process 10 of 0 \n"
		"90 thread 10/10 \n"
		"90 event 1 of 10/10 early\n"
		"100 event 3 of 10/10 at once\n"
		"120 thread 10/11 pool 1\n"
		"120 event 0 of 10/11 pool 1\n"
		"120 event 1 of 10/11 serve\n"
		"130 thread 10/12 \n"
		"130 event 0 of 10/12 -\n"
		"145 event 2 of 10/11 serve\n"
		"155 thread 10/12 late name\n"
		"155 event 0 of 10/12 late name\n"
		"200 event 3 of 10/11 the last\n"
		"201 event 3 of 10/11 after the freeze\n"
		"202 thread 10/14 begun after it\n"
		"202 event 0 of 10/14 begun after it\n"
		"203 thread 10/13 \n"
		"203 event 11 of 10/13 \n"
		"203 thread 10/13 overtaken\n"
		"203 event 0 of 10/13 overtaken\n"
		"204 event 3 of 10/13 long after the freeze\n");
	without_perfdata = false;
}

/*
 * A program that says it is somebody else's thread is not; and it cannot make up threads without
 * end.
 */
static void test_program_events_of_others(void **state)
{
	const uint64_t ip = 0xffffffff81000000;
	struct ringevent many[5000];
	const struct ringevent list[] = {
		EVENT(110, 66, 10, RINGEVENT_THREAD, "liar"),
		EVENT(111, 66, 10, RINGEVENT_INSTANT, "mine"),
		EVENT(120, 10, 10, RINGEVENT_INSTANT, "true"),
	};
	struct ringevents events = {.list = list, .n = ARRAY_SIZE(list)};

	(void)state;
	make_init(&m);
	make_comm(&m, 1, 10, 10, "svc", 0);
	make_sample(&m, 100, 10, 10, &ip, 1);
	make_sample(&m, 130, 10, 10, &ip, 1);
	replay((struct session_options){.events = &events}, "100 process 10 of 0 svc\n"
							     "100 thread 10/10 svc\n"
							     "100 sample 10 cpu 0 \n"
							     "110 process 66 of 0 \n"
							     "110 thread 66/1073741834 liar\n"
							     "110 event 0 of 66/1073741834 liar\n"
							     "111 event 3 of 66/1073741834 mine\n"
							     "120 event 3 of 10/10 true\n"
							     "130 sample 10 cpu 0 \n");
	for (uint32_t i = 0; i < ARRAY_SIZE(many); i++)
		many[i] = (struct ringevent)EVENT(100 + i, 66, 1000 + i, RINGEVENT_LOST, "");
	events = (struct ringevents){.list = many, .n = ARRAY_SIZE(many)};
	quiet = true;
	replay((struct session_options){.events = &events}, "");
	quiet = false;
	assert_int_equal(report_of("events_without_thread"), 5000 - 4096);
}

/* The link fails at the first question: the replay ends there, with that. */
static void test_link_gone(void **state)
{
	const uint64_t ip = 0x401000;

	(void)state;
	make_init(&m);
	make_mmap(&m, 0, 10, 0x400000, 0x10000, 0, 5, "/bin/sh");
	make_sample(&m, 100, 10, 10, &ip, 1);
	make_sample(&m, 200, 10, 10, &ip, 1);
	answer = -32; /* EPIPE */
	replay((struct session_options){0}, "100 process 10 of 0 \n"
					    "100 thread 10/10 \n"
					    "need object /bin/sh\n"
					    "100 sample 10 cpu 0 [callers unknown]>[sh]\n");
	answer = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tasks), cmocka_unit_test(test_hints),
		cmocka_unit_test(test_thread_executes),
		cmocka_unit_test(test_ids_again),
		cmocka_unit_test(test_whole_target),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_period),
		cmocka_unit_test(test_losses),
		cmocka_unit_test(test_tracepoints),
		cmocka_unit_test(test_complete_from),
		cmocka_unit_test(test_program_events),
		cmocka_unit_test(test_program_events_of_others),
		cmocka_unit_test(test_link_gone),
	};
	int r = cmocka_run_group_tests(tests, NULL, NULL);

	json_object_put(reported);
	return r;
}
