// SPDX-License-Identifier: Apache-2.0
/* What the kernel is asked for at a place in code, and a breakpoint in this very program. */
#include "daemon/trigger/probe.h"

#include <dirent.h>
#include <errno.h>
#include <linux/hw_breakpoint.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <event2/event.h>

#include "common/base/procfs.h"
#include "common/base/raw_clock.h"
#include "daemon/config.h"
#include "daemon/control/quota.h"
#include "tests/unit/cmocka_names.h"
#include "tests/unit/own_map.h"

static void check_common(const struct perf_event_attr *a, bool inherit)
{
	assert_int_equal(a->sample_period, 1);
	assert_int_equal(a->wakeup_events, 1);
	assert_int_equal(a->sample_type,
			 PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR | PERF_SAMPLE_ID);
	assert_true(a->exclude_kernel && a->exclude_hv && a->use_clockid && !a->disabled);
	assert_int_equal(a->clockid, CLOCK_MONOTONIC_RAW);
	assert_int_equal(a->inherit, inherit);
	assert_int_equal(a->inherit_thread, inherit);
	assert_true(a->remove_on_exec);
}

static void test_attr(void **state)
{
	static const char path[] = "/proc/1/map_files/1000-2000";
	struct perf_event_attr a;

	probe_attr_breakpoint(0x1234, true, &a);
	assert_int_equal(a.type, PERF_TYPE_BREAKPOINT);
	assert_int_equal(a.bp_type, HW_BREAKPOINT_X);
	assert_int_equal(a.bp_addr, 0x1234);
	assert_int_equal(a.bp_len, sizeof(long));
	check_common(&a, true);
	probe_attr_breakpoint(0x1234, false, &a);
	check_common(&a, false);
	probe_attr_uprobe(8, path, 0x40, &a);
	assert_int_equal(a.type, 8);
	assert_int_equal(a.config1, (uint64_t)(uintptr_t)path);
	assert_int_equal(a.config2, 0x40);
	check_common(&a, false);
}

/* ---- a process that comes to a place */

static volatile unsigned int sink;

__attribute__((noinline)) static void the_place(void)
{
	sink++;
}

struct seen {
	unsigned int hits, changes;
	struct probe_hit first;
};

static void on_hit(void *arg, struct probe *p, const struct probe_hit *first, uint64_t n)
{
	struct seen *s = arg;

	if (!s->hits)
		s->first = *first;
	s->hits += (unsigned int)n;
}

static void on_changed(void *arg, struct probe *p)
{
	struct seen *s = arg;

	s->changes++;
}

struct fixture {
	struct event_base *base;
	struct config config;
	struct quota quota;
	struct probes *probes;
	pid_t child;
	int tell;
	struct probe_place place;
	struct probe_process process;
};

/* It comes to the place once for each byte, and says so. */
static void run_child(int fd)
{
	char c;

	while (read(fd, &c, 1) == 1) {
		the_place();
		(void)!write(fd, &c, 1);
	}
	_exit(0);
}

/* The place as the memory map of this program, and so of its child, has it. */
static void find_place(struct probe_place *ret)
{
	const struct proc_map map = own_map_of((const void *)(uintptr_t)the_place);

	*ret = (struct probe_place){.maj = map.maj,
				    .min = map.min,
				    .ino = map.ino,
				    .offset = map.pgoff +
					      ((uint64_t)(uintptr_t)the_place - map.start)};
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct proc proc = PROC_INIT;
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	f->child = fork();
	assert_true(f->child >= 0);
	if (!f->child) {
		(void)close(fds[1]);
		run_child(fds[0]);
	}
	(void)close(fds[0]);
	f->tell = fds[1];
	find_place(&f->place);
	assert_int_equal(proc_open(f->child, -1, &proc), 0);
	f->process = (struct probe_process){.pid = f->child,
					    .start_time = proc.start_time,
					    .uid = getuid(),
					    .any_user = true};
	proc_close(&proc);
	f->base = event_base_new();
	assert_int_equal(config_init(&f->config), 0);
	quota_init(&f->quota, &f->config);
	assert_int_equal(probes_new(f->base, &f->quota, &f->probes), 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	(void)probes_free(f->probes);
	(void)kill(f->child, SIGKILL);
	(void)waitpid(f->child, NULL, 0);
	(void)close(f->tell);
	quota_fini(&f->quota);
	config_fini(&f->config);
	event_base_free(f->base);
	free(f);
	return 0;
}

static void turn(struct fixture *f)
{
	const struct timeval t = {.tv_usec = 5000};

	(void)event_base_loopexit(f->base, &t);
	(void)event_base_loop(f->base, 0);
}

#define turn_until(f, condition)                                                                   \
	do                                                                                         \
		turn(f);                                                                           \
	while (!(condition))

static void come(struct fixture *f)
{
	char c = 'x';

	assert_int_equal(write(f->tell, &c, 1), 1);
	assert_int_equal(read(f->tell, &c, 1), 1);
}

static const struct probe_callbacks callbacks = {.hit = on_hit, .changed = on_changed};

/* NULL: there are no breakpoints here. */
static struct probe *open_probe(struct fixture *f, struct seen *s)
{
	struct probe *p = NULL;

	assert_int_equal(probe_new(f->probes, &f->place, &f->process, &callbacks, s, &p), 0);
	turn_until(f, probe_state(p) != PROBE_OPENING);
	if (probe_state(p) == PROBE_FAILED) {
		print_message("no breakpoints here: %s\n", probe_why(p));
		return probe_free(p);
	}
	assert_int_equal(probe_state(p), PROBE_OPEN);
	return p;
}

static void test_hits(void **state)
{
	struct fixture *f = *state;
	const uint64_t begin = clock_raw_ns();
	struct seen s = {0};
	struct probe *p = open_probe(f, &s);

	if (!p)
		skip();
	assert_int_equal(probe_threads(p), 1);
	assert_true(probe_fds(p) > 0 && quota_used(&f->quota, getuid(), QUOTA_FDS) == probe_fds(p));
	come(f);
	turn_until(f, s.hits == 1);
	assert_int_equal(s.first.pid, f->child);
	assert_int_equal(s.first.tid, f->child);
	assert_true(begin < s.first.time_ns && s.first.time_ns < clock_raw_ns());
	/* off nothing comes, and nothing comes later */
	(void)probe_enable(p, false, true);
	come(f);
	turn(f);
	assert_int_equal(s.hits, 1);
	assert_int_equal(probe_enable(p, true, true), 0);
	come(f);
	turn_until(f, s.hits == 2);
	/* it ends, and says so */
	(void)kill(f->child, SIGKILL);
	turn_until(f, probe_state(p) == PROBE_ENDED);
	(void)probe_free(p);
	assert_int_equal(quota_used(&f->quota, getuid(), QUOTA_FDS), 0);
}

/* Of this process. */
static size_t count_events(void)
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *entry;
	size_t n = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir)) != NULL) {
		char target[64] = "";

		n += readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1) > 0 &&
		     strstr(target, "[perf_event]");
	}
	(void)closedir(dir);
	return n;
}

/* The kernel watches it, and the loop has not heard of that. */
static void test_hit_before_it_is_open(void **state)
{
	struct fixture *f = *state;
	struct seen s = {0};
	struct probe *p = open_probe(f, &s);
	size_t n;

	if (!p)
		skip();
	n = probe_fds(p);
	(void)probe_free(p);
	turn_until(f, count_events() == 0);
	assert_int_equal(probe_new(f->probes, &f->place, &f->process, &callbacks, &s, &p), 0);
	/* the thread has it from here on */
	(void)event_base_loop(f->base, EVLOOP_NONBLOCK);
	while (count_events() < n)
		(void)usleep(1000);
	come(f);
	turn_until(f, probe_state(p) != PROBE_OPENING);
	assert_int_equal(probe_state(p), PROBE_OPEN);
	assert_int_equal(s.hits, 1);
	(void)probe_free(p);
}

static void test_not_there(void **state)
{
	struct fixture *f = *state;
	struct seen s = {0};
	struct probe *p = NULL;

	f->place.ino++;
	assert_int_equal(probe_new(f->probes, &f->place, &f->process, &callbacks, &s, &p), 0);
	turn_until(f, s.changes);
	assert_int_equal(probe_state(p), PROBE_NOT_MAPPED);
	(void)probe_free(p);
	/* another process has the number */
	f->place.ino--;
	f->process.start_time++;
	assert_int_equal(probe_new(f->probes, &f->place, &f->process, &callbacks, &s, &p), 0);
	turn_until(f, s.changes == 2);
	assert_int_equal(probe_state(p), PROBE_ENDED);
	(void)probe_free(p);
	/* a process of somebody else's */
	f->process.start_time--;
	f->process.any_user = false;
	f->process.uid = getuid() + 1;
	assert_int_equal(probe_new(f->probes, &f->place, &f->process, &callbacks, &s, &p), 0);
	turn_until(f, s.changes == 3);
	assert_int_equal(probe_state(p), PROBE_FAILED);
	(void)probe_free(p);
	/* one that is freed before it is open; the rest is teardown's */
	assert_int_equal(probe_new(f->probes, &f->place, &f->process, &callbacks, &s, &p), 0);
	(void)probe_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_attr),
		cmocka_unit_test_setup_teardown(test_hits, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hit_before_it_is_open, setup, teardown),
		cmocka_unit_test_setup_teardown(test_not_there, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
