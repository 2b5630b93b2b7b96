// SPDX-License-Identifier: Apache-2.0
/*
 * Writes numbered events as fast as it can, and says in shared memory which number it has written last, so that
 * a test can kill it at any moment and know what must be found afterwards.
 *
 *	numbers FILE THREADS [PAUSE_US]
 *
 * FILE is mapped: a line of 64 bytes a thread, whose first u64 is the last number whose event was written. Thread t
 * writes, for n = 1, 2, ..., the counter "numbers t" = n; every 5th as a log "number %llu of t ..." that
 * spans slots instead. Prints "ready" when the daemon has taken it in. Ends when its standard input does.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <tracerd.h>

#define MAX_THREADS 64

struct told {
	_Alignas(64) _Atomic uint64_t number;
};

static struct told *told;
static long pause_us;

static void *writer_main(void *arg)
{
	unsigned int t = (unsigned int)(uintptr_t)arg;
	struct timespec pause = {.tv_sec = pause_us / 1000000, .tv_nsec = pause_us % 1000000 * 1000};
	char text[32];
	tracerd_name name;

	(void)snprintf(text, sizeof(text), "numbers %u", t);
	name = tracerd_intern(text);
	for (uint64_t n = 1;; n++) {
		if (n % 5 == 0)
			tracerd_log(TRACERD_INFO, "number %llu of %u %s", (unsigned long long)n, t,
				"and a text that is long enough to span several slots");
		else
			tracerd_counter(name, (int64_t)n);
		atomic_store_explicit(&told[t].number, n, memory_order_release);
		if (pause_us)
			(void)nanosleep(&pause, NULL);
	}
	return NULL;
}

static void wait_for_daemon(void)
{
	struct timespec pause = {.tv_nsec = 2000000};

	for (;;) {
		tracerd_event_stats stats = {.size = sizeof(stats)};

		tracerd_get_event_stats(&stats);
		if (stats.enabled && stats.connected)
			return;
		(void)nanosleep(&pause, NULL);
	}
}

int main(int argc, char **argv)
{
	long threads = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
	pthread_t thread;
	char byte;
	int fd;

	if (argc < 3 || threads < 1 || threads > MAX_THREADS)
		return 2;
	if (argc > 3)
		pause_us = strtol(argv[3], NULL, 10);
	fd = open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)sizeof(*told) * threads) < 0)
		return 1;
	told = mmap(NULL, sizeof(*told) * (size_t)threads, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (told == MAP_FAILED || tracerd_start(NULL) < 0)
		return 1;
	wait_for_daemon();
	for (long t = 0; t < threads; t++)
		if (pthread_create(&thread, NULL, writer_main, (void *)(uintptr_t)t) != 0)
			return 1;
	(void)puts("ready");
	(void)fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	return 0;
}
