// SPDX-License-Identifier: Apache-2.0
/*
 * The peer of bench-rings: the same lines on the standard input, answered with events of LTTng-UST.
 * bench/rings compiles it, where liblttng-ust is installed, and starts it under a session daemon
 * of its own; nothing of tracerd is in it.
 *
 *	wait MS			until the session has switched the events on: "on" or "off"
 *	run KIND THREADS COUNT	lttng_int or lttng_longs: ns each, and the whole's events a second
 */
#define _GNU_SOURCE
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "tracerd-peer.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_THREADS 64u
#define WARM_UP 20000u

static uint64_t now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static void run_int(uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		lttng_ust_tracepoint(tracerd_peer, one_int, (int)i);
		__asm__ volatile("" ::: "memory");
	}
}

static void run_longs(uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		lttng_ust_tracepoint(tracerd_peer, two_longs, (long)i, (long)n);
		__asm__ volatile("" ::: "memory");
	}
}

struct worker {
	pthread_t thread;
	pthread_barrier_t *barrier;
	void (*run)(uint64_t n);
	unsigned int index;
	uint64_t count, began, ended;
};

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	cpu_set_t allowed, one;
	unsigned int n;

	if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
		n = w->index % (unsigned int)CPU_COUNT(&allowed);
		for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
			if (!CPU_ISSET(cpu, &allowed) || n-- > 0)
				continue;
			CPU_ZERO(&one);
			CPU_SET(cpu, &one);
			(void)pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
			break;
		}
	}
	w->run(WARM_UP);
	(void)pthread_barrier_wait(w->barrier);
	w->began = now_ns();
	w->run(w->count);
	w->ended = now_ns();
	return NULL;
}

static void run(void (*kind)(uint64_t), unsigned int n_threads, uint64_t count)
{
	struct worker workers[MAX_THREADS] = {};
	uint64_t began = UINT64_MAX, ended = 0;
	pthread_barrier_t barrier;
	double sum = 0;

	if (pthread_barrier_init(&barrier, NULL, n_threads) != 0)
		exit(1);
	for (unsigned int i = 0; i < n_threads; i++) {
		workers[i] = (struct worker){.barrier = &barrier,
					     .run = kind,
					     .index = i,
					     .count = count};
		if (pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) != 0)
			exit(1);
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
	(void)printf("%.4f %.0f\n", sum / n_threads,
		     (double)count * n_threads * 1e9 / (double)(ended - began));
}

int main(void)
{
	char line[256], name[32];
	unsigned int n_threads;
	uint64_t number;

	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "wait %" SCNu64, &number) == 1) {
			uint64_t end = now_ns() + number * 1000000;
			struct timespec pause = {.tv_nsec = 5000000};

			while (!lttng_ust_tracepoint_enabled(tracerd_peer, one_int) &&
			       now_ns() < end)
				(void)nanosleep(&pause, NULL);
			(void)printf("%s\n",
				lttng_ust_tracepoint_enabled(tracerd_peer, one_int) ? "on" : "off");
		} else if (sscanf(line, "run %31s %u %" SCNu64, name, &n_threads, &number) == 3 &&
			   n_threads > 0 && n_threads <= MAX_THREADS && number > 0) {
			run(strcmp(name, "lttng_int") == 0 ? run_int : run_longs, n_threads,
			    number);
		} else {
			(void)printf("what?\n");
		}
	}
	return 0;
}
