// SPDX-License-Identifier: Apache-2.0
/*
 * A program to record: what it does is known and steady, and how much of it was done can be read
 * from outside at any time, so that a benchmark compares windows with and without a recording.
 *
 *	target busy THREADS [COUNTER-FILE]	computes, 16 calls deep, never waits
 *	target switch PAIRS [COUNTER-FILE]	two threads on one processor pass a byte to and fro
 *	target deep PAIRS [COUNTER-FILE]	so do these, each wait 17 functions deep
 *	target fresh PAIRS [COUNTER-FILE]	and these, where no wait has the stack of the thread's last one
 *	target idle THREADS [COUNTER-FILE]	waits
 *
 * The counter file is mapped: one 64-bit count of finished rounds per thread or pair. The program
 * prints "ready" and ends when its standard input does.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/cleanup.h"

#define MAX_THREADS 256
#define DEPTH 16

/* A cache line each: the threads must not slow each other down. */
struct counter {
	_Alignas(64) _Atomic uint64_t rounds;
};

static struct counter *counters;

struct side {
	int in, out;
	size_t index;
	int cpu;
	int first;
	bool deep, fresh;
};

__attribute__((noinline)) static uint64_t work_leaf(uint64_t x)
{
	for (int i = 0; i < 100; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
	}
	return x;
}

/* Depth is a constant of this program, not an input. */
__attribute__((noinline)) static uint64_t work_level(uint64_t x, int depth)
{
	if (depth == 0)
		return work_leaf(x);
	x = work_level(x + 1, depth - 1);
	/* Not a tail call: the frame is on the stack while the levels below run. */
	return work_leaf(x);
}

__attribute__((noinline)) static uint64_t handle_request(uint64_t x)
{
	return work_level(x, DEPTH);
}

static void *busy_main(void *arg)
{
	struct counter *c = arg;
	uint64_t x = 88172645463325252u;

	for (;;) {
		x = handle_request(x) | 1;
		atomic_fetch_add_explicit(&c->rounds, 1, memory_order_relaxed);
	}
	return NULL;
}

__attribute__((noinline)) static int pass_byte(const struct side *s)
{
	char c = 'x';

	return write(s->out, &c, 1) == 1 ? 0 : -1;
}

__attribute__((noinline)) static int await_byte(const struct side *s)
{
	char c;

	return read(s->in, &c, 1) == 1 ? 0 : -1;
}

static int descend(const struct side *s, int depth, uint64_t path);

/* Two ways down, so that a stack tells which were taken. */
__attribute__((noinline)) static int left(const struct side *s, int depth, uint64_t path)
{
	int r = descend(s, depth, path);

	__asm__ volatile("");
	return r;
}

__attribute__((noinline)) static int right(const struct side *s, int depth, uint64_t path)
{
	int r = descend(s, depth, path);

	__asm__ volatile("");
	return r;
}

__attribute__((always_inline)) static inline int descend(const struct side *s, int depth,
							 uint64_t path)
{
	if (depth == 0)
		return await_byte(s) == 0 ? pass_byte(s) : -1;
	return path & 1 ? right(s, depth - 1, path >> 1) : left(s, depth - 1, path >> 1);
}

static int play(const struct side *s, uint64_t round)
{
	if (!s->deep)
		return await_byte(s) == 0 ? pass_byte(s) : -1;
	return descend(s, DEPTH - 4, s->fresh ? round : 0);
}

static void *switch_main(void *arg)
{
	const struct side *s = arg;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)s->cpu, &set);
	(void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
	if (s->first && pass_byte(s) < 0)
		return NULL;
	for (uint64_t round = 0; play(s, round) == 0; round++)
		if (s->first)
			atomic_fetch_add_explicit(&counters[s->index].rounds, 1,
						  memory_order_relaxed);
	return NULL;
}

static void *idle_main(void *arg)
{
	(void)arg;
	for (;;)
		(void)pause();
	return NULL;
}

static int thread_start(void *(*run)(void *), void *arg, const char *name)
{
	pthread_t t;
	int r = pthread_create(&t, NULL, run, arg);

	if (r != 0)
		return -r;
	(void)pthread_setname_np(t, name);
	return -pthread_detach(t);
}

static int start_pair(size_t index, bool deep, bool fresh)
{
	/* They live as long as the process. */
	struct side *a = calloc(2, sizeof(*a)), *b;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	int there[2], back[2], r;

	if (!a)
		return -ENOMEM;
	b = a + 1;
	if (pipe2(there, O_CLOEXEC) < 0 || pipe2(back, O_CLOEXEC) < 0) {
		free(a);
		return -errno;
	}
	*a = (struct side){.in = back[0],
			   .out = there[1],
			   .index = index,
			   .first = 1,
			   .deep = deep,
			   .fresh = fresh};
	*b = (struct side){
		.in = there[0], .out = back[1], .index = index, .deep = deep, .fresh = fresh};
	a->cpu = b->cpu = (int)(index % (size_t)(cpus > 0 ? cpus : 1));
	r = thread_start(switch_main, b, "pong");
	return r < 0 ? r : thread_start(switch_main, a, "ping");
}

static int map_counters(const char *path, size_t n)
{
	_cleanup_close_ int fd = -1;
	size_t size = n * sizeof(struct counter);
	void *p;

	if (path) {
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
		if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
			return -errno;
	}
	p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		 path ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	counters = p;
	return 0;
}

int main(int argc, char **argv)
{
	unsigned long n = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
	int r = 0;
	char c;

	if (argc < 3 || argc > 4 || n > MAX_THREADS) {
		(void)fprintf(stderr,
			      "usage: target busy|switch|deep|fresh|idle COUNT [COUNTER-FILE]\n");
		return 2;
	}
	r = map_counters(argc > 3 ? argv[3] : NULL, n ? n : 1);
	for (size_t i = 0; i < n && r == 0; i++) {
		if (strcmp(argv[1], "busy") == 0)
			r = thread_start(busy_main, &counters[i], "busy");
		else if (strcmp(argv[1], "switch") == 0)
			r = start_pair(i, false, false);
		else if (strcmp(argv[1], "deep") == 0)
			r = start_pair(i, true, false);
		else if (strcmp(argv[1], "fresh") == 0)
			r = start_pair(i, true, true);
		else if (strcmp(argv[1], "idle") == 0)
			r = thread_start(idle_main, NULL, "idle");
		else
			r = -EINVAL;
	}
	if (r < 0) {
		(void)fprintf(stderr, "target: %s\n", strerror(-r));
		return 1;
	}
	(void)printf("ready\n");
	(void)fflush(stdout);
	while (read(STDIN_FILENO, &c, 1) > 0 || errno == EINTR)
		errno = 0;
	return 0;
}
