// SPDX-License-Identifier: Apache-2.0
/*
 * Writes events as fast as it can and says what one costs. bench/rings tells it what to do, line by
 * line on the standard input, so that the kinds, the clock alone and the peer's program take turns:
 *
 *	bench-rings [--off] [--rings N] [--events N]
 *
 *	kinds			their names
 *	wait MS			until the daemon has taken the program in: "on" or "off"
 *	run KIND THREADS COUNT	each thread does that so often: ns each (the mean of the threads), and
 *				the whole's events a second
 *	fill			one event into each slot of every ring that there is
 *	slow NS			a region "bench_slow" of that length: its ns
 *	memcpy MIB		ns a MiB
 *	through MIB FILE	ns a MiB, from a memfd into a new file by pread() and write()
 *	stats			rings, registrations, events lost
 *
 * With --off it never starts the library: what the calls cost in a program that nobody looks at.
 * Threads are pinned, one a processor in turn.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "tracerd.h"

#define MAX_THREADS 64u
#define WARM_UP 20000u

/* Nothing of a round may be moved out of it, or be left out. */
#define keep() __asm__ volatile("" ::: "memory")

static uint64_t now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static uint64_t clock_read(void)
{
#if defined(__x86_64__)
	return __rdtsc();
#else
	return now_ns();
#endif
}

static volatile uint64_t sink;
static char text_of_16[] = "sixteen letters.";

#define ROUNDS(...)                                                                                \
	for (uint64_t i = 0; i < n; i++) {                                                         \
		__VA_ARGS__;                                                                       \
		keep();                                                                            \
	}

static void run_empty(uint64_t n)
{
	ROUNDS((void)0)
}

static void run_clock(uint64_t n)
{
	uint64_t sum = 0;

	ROUNDS(sum += clock_read())
	sink = sum;
}

static void run_region(uint64_t n)
{
	ROUNDS({ TRACERD_SCOPE("bench region"); })
}

static void run_region_begin(uint64_t n)
{
	tracerd_region region;

	ROUNDS(region = tracerd_region_begin(TRACERD_NAME("bench begin")); sink = region.begin)
}

static void run_region_end(uint64_t n)
{
	tracerd_region region = tracerd_region_begin(TRACERD_NAME("bench end"));

	ROUNDS(tracerd_region_end(region))
}

static void run_region_args(uint64_t n)
{
	tracerd_name key_a = tracerd_intern("offset"), key_b = tracerd_intern("length");

	ROUNDS({
		tracerd_arg args[] = {tracerd_u64(key_a, i), tracerd_u64(key_b, 4096)};
		tracerd_region region =
			tracerd_region_begin_with(TRACERD_NAME("bench args"), 0, args, 2);

		tracerd_region_end(region);
	})
}

static void run_instant(uint64_t n)
{
	ROUNDS(tracerd_instant(TRACERD_NAME("bench instant")))
}

static void run_instant_int(uint64_t n)
{
	tracerd_name key = tracerd_intern("value");

	ROUNDS({
		tracerd_arg arg = tracerd_i64(key, (int64_t)i);

		tracerd_instant_with(TRACERD_NAME("bench instant 1"), 0, &arg, 1);
	})
}

static void run_instant_longs(uint64_t n)
{
	tracerd_name key_a = tracerd_intern("value"), key_b = tracerd_intern("other");

	ROUNDS({
		tracerd_arg args[] = {tracerd_i64(key_a, (int64_t)i),
				      tracerd_i64(key_b, (int64_t)n)};

		tracerd_instant_with(TRACERD_NAME("bench instant 2"), 0, args, 2);
	})
}

static void run_counter(uint64_t n)
{
	ROUNDS(tracerd_counter(TRACERD_NAME("bench counter"), (int64_t)i))
}

static void run_log_int(uint64_t n)
{
	ROUNDS(tracerd_log(TRACERD_INFO, "took %d rounds", (int)i))
}

static void run_log_text(uint64_t n)
{
	ROUNDS(tracerd_log(TRACERD_INFO, "read %s", text_of_16))
}

static void run_task(uint64_t n)
{
	ROUNDS({
		tracerd_task task = tracerd_task_begin(TRACERD_NAME("bench task"), 0);

		tracerd_task_end(task);
	})
}

static void run_flow(uint64_t n)
{
	ROUNDS(sink = tracerd_flow_begin(TRACERD_NAME("bench flow")))
}

static void run_intern(uint64_t n)
{
	ROUNDS(sink = tracerd_intern("bench interned"))
}

static const struct kind {
	const char *name;
	void (*run)(uint64_t n);
} kinds[] = {
	{"empty", run_empty},
	{"rdtsc", run_clock},
	{"region_begin", run_region_begin},
	{"region_end", run_region_end},
	{"region", run_region},
	{"region_args", run_region_args},
	{"instant", run_instant},
	{"instant_int", run_instant_int},
	{"instant_longs", run_instant_longs},
	{"counter", run_counter},
	{"log_int", run_log_int},
	{"log_text", run_log_text},
	{"task", run_task},
	{"flow", run_flow},
	{"intern", run_intern},
};
#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

static const struct kind *find_kind(const char *name)
{
	for (size_t i = 0; i < N_KINDS; i++)
		if (strcmp(kinds[i].name, name) == 0)
			return &kinds[i];
	return NULL;
}

/* ---- threads */

struct worker {
	pthread_t thread;
	pthread_barrier_t *barrier;
	const struct kind *kind;
	unsigned int index;
	uint64_t count;
	uint64_t began, ended;
};

/* To the processor of that number among those that the program may use. */
static void pin(unsigned int index)
{
	static cpu_set_t allowed;
	cpu_set_t one;
	unsigned int n;

	if (CPU_COUNT(&allowed) == 0 && sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
		return;
	n = index % (unsigned int)CPU_COUNT(&allowed);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &allowed) || n-- > 0)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		(void)pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
		return;
	}
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;

	pin(w->index);
	/* Its ring is memory that nobody has touched, the first time round. */
	w->kind->run(WARM_UP);
	(void)pthread_barrier_wait(w->barrier);
	w->began = now_ns();
	w->kind->run(w->count);
	w->ended = now_ns();
	return NULL;
}

static int run(const struct kind *kind, unsigned int n_threads, uint64_t count, double *ret_each,
	       double *ret_rate)
{
	struct worker workers[MAX_THREADS] = {};
	uint64_t began = UINT64_MAX, ended = 0;
	pthread_barrier_t barrier;
	double sum = 0;

	if (pthread_barrier_init(&barrier, NULL, n_threads) != 0)
		return -ENOMEM;
	for (unsigned int i = 0; i < n_threads; i++) {
		workers[i] = (struct worker){.barrier = &barrier,
					     .kind = kind,
					     .index = i,
					     .count = count};
		if (pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) != 0) {
			/* the others wait at the barrier for one that never comes */
			(void)fputs("bench-rings: cannot start a thread\n", stderr);
			exit(1);
		}
	}
	for (unsigned int i = 0; i < n_threads; i++) {
		(void)pthread_join(workers[i].thread, NULL);
		sum += (double)(workers[i].ended - workers[i].began) / (double)count;
		if (workers[i].began < began)
			began = workers[i].began;
		if (workers[i].ended > ended)
			ended = workers[i].ended;
	}
	(void)pthread_barrier_destroy(&barrier);
	*ret_each = sum / n_threads;
	*ret_rate = (double)count * n_threads * 1e9 / (double)(ended - began);
	return 0;
}

/* ---- the other commands */

static const char *wait_for_daemon(uint64_t ms)
{
	uint64_t end = now_ns() + ms * 1000000;
	struct timespec pause = {.tv_nsec = 5000000};

	for (;;) {
		tracerd_event_stats stats = {.size = sizeof(stats)};

		tracerd_get_event_stats(&stats);
		if (stats.enabled && stats.connected)
			return "on";
		if (now_ns() >= end)
			return "off";
		(void)nanosleep(&pause, NULL);
	}
}

struct filler {
	pthread_t thread;
	pthread_barrier_t *barrier;
	uint64_t events;
};

static void *filler_main(void *arg)
{
	struct filler *f = arg;

	run_instant(f->events);
	/* A ring is taken over when its thread has ended: none may before all have one. */
	(void)pthread_barrier_wait(f->barrier);
	return NULL;
}

/* So many threads at once that each ring has a writer; `rings` is without the calling thread's. */
static int fill(uint32_t rings, uint64_t events)
{
	struct filler *fillers = calloc(rings, sizeof(*fillers));
	pthread_barrier_t barrier;

	if (!fillers || pthread_barrier_init(&barrier, NULL, rings) != 0) {
		free(fillers);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < rings; i++) {
		fillers[i] = (struct filler){.barrier = &barrier, .events = events};
		if (pthread_create(&fillers[i].thread, NULL, filler_main, &fillers[i]) != 0) {
			(void)fputs("bench-rings: cannot start a thread\n", stderr);
			exit(1);
		}
	}
	for (uint32_t i = 0; i < rings; i++)
		(void)pthread_join(fillers[i].thread, NULL);
	(void)pthread_barrier_destroy(&barrier);
	free(fillers);
	return 0;
}

static uint64_t slow(uint64_t ns)
{
	tracerd_name name = tracerd_intern("bench_slow");
	tracerd_region region = tracerd_region_begin(name);
	uint64_t began = now_ns(), took;

	do
		took = now_ns() - began;
	while (took < ns);
	tracerd_region_end(region);
	return took;
}

/* ns a MiB; 0 without the memory. */
static double copy_speed(size_t mib)
{
	size_t bytes = mib << 20;
	char *from =
		mmap(NULL, bytes * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t began, ended;

	if (from == MAP_FAILED)
		return 0;
	memset(from, 1, bytes * 2);
	began = now_ns();
	memcpy(from + bytes, from, bytes);
	keep();
	ended = now_ns();
	(void)munmap(from, bytes * 2);
	return (double)(ended - began) / (double)mib;
}

/* What the kernel alone needs for what a copy of rings does. */
static double copy_through(size_t mib, const char *path)
{
	static char chunk[1 << 20];
	uint64_t began, ended;
	double took = 0;
	int from = memfd_create("bench", MFD_CLOEXEC),
	    to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	for (size_t i = 0; i < mib; i++) {
		memset(chunk, (int)i + 1, sizeof(chunk));
		if (write(from, chunk, sizeof(chunk)) != (ssize_t)sizeof(chunk))
			goto out;
	}
	began = now_ns();
	for (size_t i = 0; i < mib; i++)
		if (pread(from, chunk, sizeof(chunk), (off_t)(i * sizeof(chunk))) !=
			    (ssize_t)sizeof(chunk) ||
		    write(to, chunk, sizeof(chunk)) != (ssize_t)sizeof(chunk))
			goto out;
	ended = now_ns();
	took = (double)(ended - began) / (double)mib;
out:
	(void)close(from);
	(void)close(to);
	(void)unlink(path);
	return took;
}

static void answer(const char *line, const tracerd_options *options)
{
	unsigned int n_threads;
	uint64_t number;
	char name[32], path[200];
	double each, rate;

	if (strcmp(line, "kinds\n") == 0) {
		for (size_t i = 0; i < N_KINDS; i++)
			(void)printf("%s%s", kinds[i].name, i + 1 < N_KINDS ? " " : "\n");
	} else if (sscanf(line, "run %31s %u %" SCNu64, name, &n_threads, &number) == 3) {
		const struct kind *kind = find_kind(name);

		if (!kind || n_threads == 0 || n_threads > MAX_THREADS || number == 0 ||
			run(kind, n_threads, number, &each, &rate) < 0)
			(void)printf("cannot\n");
		else
			(void)printf("%.4f %.0f\n", each, rate);
	} else if (sscanf(line, "wait %" SCNu64, &number) == 1) {
		(void)printf("%s\n", wait_for_daemon(number));
	} else if (strcmp(line, "fill\n") == 0) {
		(void)printf("%d\n", fill(options->threads, options->events));
	} else if (sscanf(line, "slow %" SCNu64, &number) == 1) {
		(void)printf("%" PRIu64 "\n", slow(number));
	} else if (sscanf(line, "memcpy %" SCNu64, &number) == 1 && number > 0 && number <= 4096) {
		(void)printf("%.1f\n", copy_speed(number));
	} else if (sscanf(line, "through %" SCNu64 " %199s", &number, path) == 2 && number > 0 &&
		   number <= 4096) {
		(void)printf("%.1f\n", copy_through(number, path));
	} else if (strcmp(line, "stats\n") == 0) {
		tracerd_event_stats stats = {.size = sizeof(stats)};

		tracerd_get_event_stats(&stats);
		(void)printf("%" PRIu32 " %" PRIu64 " %" PRIu64 "\n", stats.rings_used,
			     stats.registrations, stats.events_lost);
	} else {
		(void)printf("what?\n");
	}
}

int main(int argc, char **argv)
{
	tracerd_options options = {.size = sizeof(options), .threads = 64, .events = 8192};
	bool start = true;
	char line[256];

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--off") == 0) {
			start = false;
		} else if (strcmp(argv[i], "--rings") == 0 && i + 1 < argc) {
			options.threads = (uint32_t)strtoul(argv[++i], NULL, 10);
		} else if (strcmp(argv[i], "--events") == 0 && i + 1 < argc) {
			options.events = (uint32_t)strtoul(argv[++i], NULL, 10);
		} else {
			(void)fputs("usage: bench-rings [--off] [--rings N] [--events N]\n",
				    stderr);
			return 2;
		}
	}
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	if (start) {
		int r = tracerd_start(&options);

		if (r < 0) {
			(void)fprintf(stderr, "bench-rings: tracerd_start: %s\n",
				      tracerd_error_name(r));
			return 1;
		}
	}
	while (fgets(line, sizeof(line), stdin))
		answer(line, &options);
	return 0;
}
