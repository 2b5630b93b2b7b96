// SPDX-License-Identifier: Apache-2.0
/*
 * A small service with a rare slow request, to find the cause of with tracectl.
 *
 * Workers serve requests that take a fraction of a millisecond: parse, look into a cache that is
 * shared and locked, render. A maintenance thread expires old entries of the cache, which is
 * quick, and every few seconds rebuilds its index, which is not, with the lock held all the time. A
 * request that comes in that moment waits, and neither the request's code nor a profile of the CPU
 * says for what.
 *
 *	cc -O2 -g -pthread -o slowlock slowlock.c $(pkg-config --cflags --libs tracerd)
 *	./slowlock [--seconds N] [--every MS] [--hold MS] [--events] &
 *
 * It prints a line for every slow request. With --events it also writes events of its own (docs/events.md):
 * each request and its parts are regions, so that a slow one can be the trigger of a snapshot:
 *
 *	tracectl trigger add $! --region request --over 20ms
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <tracerd.h>

#define WORKERS 4
#define ENTRIES 4096
#define SLOW_NS 20000000
#define PAUSE_NS 15000000

/* Functions that shall be seen in a stack keep a frame of their own. */
#define visible __attribute__((noinline))

struct entry {
	uint64_t key, value;
};

static struct {
	pthread_mutex_t lock;
	struct entry entries[ENTRIES];
	uint64_t rebuilds;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t every_ns = 3000000000, hold_ns = 45000000;
static volatile sig_atomic_t stopping;

static uint64_t now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static visible void wait_for_work(uint64_t ns)
{
	struct timespec ts = {
		.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};

	(void)nanosleep(&ts, NULL);
}

/* Something to compute: a hash that the compiler cannot foresee. */
static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdULL;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ULL;
	return x ^ x >> 33;
}

static visible uint64_t parse_request(uint64_t number)
{
	TRACERD_SCOPE("parse");
	uint64_t key = number;

	for (int i = 0; i < 20000; i++)
		key = mix(key + (uint64_t)i);
	return key;
}

static visible uint64_t cache_get(uint64_t key)
{
	TRACERD_SCOPE("cache");
	uint64_t value;

	(void)pthread_mutex_lock(&cache.lock);
	value = cache.entries[key % ENTRIES].value;
	cache.entries[key % ENTRIES].key = key;
	(void)pthread_mutex_unlock(&cache.lock);
	return value;
}

static visible uint64_t render_reply(uint64_t value)
{
	TRACERD_SCOPE("render");

	for (int i = 0; i < 60000; i++)
		value = mix(value ^ (uint64_t)i);
	return value;
}

static visible uint64_t handle_request(uint64_t number)
{
	tracerd_arg arg = tracerd_u64(TRACERD_NAME("number"), number);
	tracerd_region request = tracerd_region_begin_with(TRACERD_NAME("request"), 0, &arg, 1);
	uint64_t key = parse_request(number);
	uint64_t value = cache_get(key);

	value = render_reply(value);
	tracerd_region_end(request);
	return value ^ key;
}

static void name_thread(const char *name)
{
	(void)prctl(PR_SET_NAME, name);
}

static void *worker_main(void *arg)
{
	uint64_t number = (uint64_t)(uintptr_t)arg * 1000003, sum = 0;
	char name[16];

	(void)snprintf(name, sizeof(name), "worker-%u", (unsigned int)(uintptr_t)arg);
	name_thread(name);
	while (!stopping) {
		uint64_t begin, took;

		wait_for_work(PAUSE_NS);
		begin = now_ns();
		sum += handle_request(number++);
		took = now_ns() - begin;
		if (took < SLOW_NS)
			continue;
		tracerd_log(TRACERD_WARNING, "slow request: %.1f ms", (double)took / 1e6);
		(void)printf("slow request: %" PRIu64 ".%" PRIu64 " ms in %s\n", took / 1000000,
			took / 100000 % 10, name);
	}
	return (void *)(uintptr_t)sum;
}

static visible void expire_entries(uint64_t round)
{
	(void)pthread_mutex_lock(&cache.lock);
	cache.entries[round % ENTRIES].value = 0;
	(void)pthread_mutex_unlock(&cache.lock);
}

static visible void sort_entries(uint64_t until_ns)
{
	uint64_t i = 0;

	while (now_ns() < until_ns) {
		for (int n = 0; n < 2000; n++, i++)
			cache.entries[i % ENTRIES].value =
				mix(cache.entries[(i + 1) % ENTRIES].key + i);
	}
}

/* The culprit: correct, and done with the lock held from begin to end. */
static visible void rebuild_index(void)
{
	TRACERD_SCOPE("rebuild index");

	(void)pthread_mutex_lock(&cache.lock);
	sort_entries(now_ns() + hold_ns);
	tracerd_counter(TRACERD_NAME("rebuilds"), (int64_t)++cache.rebuilds);
	(void)pthread_mutex_unlock(&cache.lock);
	/* work after the unlock, so that the unlock is a call and not a jump */
	cache.entries[0].key ^= 1;
}

static void *maintenance_main(void *arg)
{
	uint64_t next = now_ns() + every_ns, round = 0;

	name_thread("maintenance");
	while (!stopping) {
		wait_for_work(20000000);
		expire_entries(round++);
		if (now_ns() >= next) {
			rebuild_index();
			next = now_ns() + every_ns;
		}
	}
	return NULL;
}

static void on_signal(int signal_number)
{
	stopping = 1;
}

static bool number_option(
	int argc, char **argv, int *i, const char *name, uint64_t scale, uint64_t *ret)
{
	char *end;
	unsigned long long v;

	if (strcmp(argv[*i], name) != 0 || *i + 1 >= argc)
		return false;
	errno = 0;
	v = strtoull(argv[*i + 1], &end, 10);
	if (errno || *end || end == argv[*i + 1] || v > 1000000)
		return false;
	*ret = (uint64_t)v * scale;
	(*i)++;
	return true;
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_signal};
	pthread_t threads[WORKERS + 1];
	uint64_t run_ns = 0, begin = now_ns();
	bool events = false;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--events") == 0)
			events = true;
		else if (!number_option(argc, argv, &i, "--seconds", 1000000000, &run_ns) &&
			!number_option(argc, argv, &i, "--every", 1000000, &every_ns) &&
			!number_option(argc, argv, &i, "--hold", 1000000, &hold_ns)) {
			(void)fputs("usage: slowlock [--seconds N] [--every MS] [--hold MS] [--events]\n",
				stderr);
			return 2;
		}
	}
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	(void)sigaction(SIGTERM, &action, NULL);
	(void)sigaction(SIGINT, &action, NULL);
	if (events)
		(void)tracerd_start(NULL);
	(void)printf("slowlock: pid %d, %d workers, index rebuilt every %" PRIu64 " ms\n",
		(int)getpid(), WORKERS, every_ns / 1000000);
	for (uintptr_t i = 0; i < WORKERS; i++) {
		if (pthread_create(&threads[i], NULL, worker_main, (void *)(i + 1)) != 0)
			return 1;
	}
	if (pthread_create(&threads[WORKERS], NULL, maintenance_main, NULL) != 0)
		return 1;
	while (!stopping && (!run_ns || now_ns() - begin < run_ns))
		wait_for_work(100000000);
	stopping = 1;
	for (size_t i = 0; i < WORKERS + 1; i++)
		(void)pthread_join(threads[i], NULL);
	return 0;
}
