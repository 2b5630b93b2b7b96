// SPDX-License-Identifier: Apache-2.0
/*
 * A program that comes to a place. It does what the bytes on its standard input say, and answers each: w calls three functions and then the
 * place, s runs for some milliseconds, l calls other functions; t starts a thread, and 0 to 3 have the thread of that number, in the order of
 * their begin, do what w does.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned int sink;

#define NOINLINE __attribute__((noinline))

NOINLINE static void first_step(void)
{
	sink += 1;
}

NOINLINE static void second_step(void)
{
	sink += 2;
}

NOINLINE static void third_step(void)
{
	sink += 3;
}

NOINLINE static void the_place(void)
{
	sink += 4;
}

NOINLINE static void goes_on(void)
{
	sink += 5;
}

NOINLINE static void work(void)
{
	first_step();
	second_step();
	third_step();
	the_place();
	goes_on();
}

NOINLINE static void later_leaf(void)
{
	sink += 6;
}

NOINLINE static void later(void)
{
	later_leaf();
	sink += 7;
}

/* So long as its own time goes on, however slow the machine is. */
static void spin(void)
{
	struct timespec begin, now;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
	do {
		for (int i = 0; i < 2000; i++)
			sink++;
		(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	} while ((now.tv_sec - begin.tv_sec) * 1000000000L + now.tv_nsec - begin.tv_nsec < 5000000);
}

#define THREADS 4

static int orders[THREADS][2], answers[2];
static int n_threads;

static void *obey(void *arg)
{
	const int *order = arg;
	char c;

	while (read(order[0], &c, 1) == 1) {
		work();
		if (write(answers[1], "d", 1) != 1)
			break;
	}
	return NULL;
}

static void begin_thread(void)
{
	pthread_t thread;

	if (n_threads < THREADS && pipe(orders[n_threads]) == 0 && pthread_create(&thread, NULL, obey, orders[n_threads]) == 0)
		n_threads++;
}

static void tell(int thread)
{
	char c;

	if (thread >= n_threads || write(orders[thread][1], "w", 1) != 1 || read(answers[0], &c, 1) != 1)
		puts("failed");
}

int main(int argc, char **argv)
{
	const cpu_set_t one = {.__bits = {2}};
	char c;

	(void)argv;
	/* Paused is a thread on a CPU: on another one it is traced. With an argument it goes where it is sent. */
	if (pipe(answers) < 0 || (argc < 2 && sched_setaffinity(0, sizeof(one), &one) < 0))
		return 1;
	puts("begun");
	fflush(stdout);
	while (read(STDIN_FILENO, &c, 1) == 1) {
		if (c == 'w')
			work();
		else if (c == 's')
			spin();
		else if (c == 'l')
			later();
		else if (c == 't')
			begin_thread();
		else if (c >= '0' && c < '0' + THREADS)
			tell(c - '0');
		else
			continue;
		printf("did %c\n", c);
		fflush(stdout);
	}
	for (;;)
		pause();
}
