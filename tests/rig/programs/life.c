// SPDX-License-Identifier: Apache-2.0
/*
 * What a target may do while it is recorded. Each prints a line when it has begun, waits for a byte on its standard input and
 * then does it:
 *
 *	life spin			nothing but calls, for ever
 *	life light			a little, five times a second, for ever
 *	life exec PROGRAM [ARG]...	executes a program
 *	life fork			makes a child that calls child_work(), and waits for it
 *	life storm N			makes N threads, each of which calls storm_work() and stays
 *	life storm-exit N		the same, but the threads end
 *	life crew N			makes N threads that work, as itself does, for ever
 *	life crash			dies of SIGSEGV in crash_here()
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned int sink;
static char what_ends[1];

#define NOINLINE __attribute__((noinline))

NOINLINE static void leaf(unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		sink += i;
}

NOINLINE static void middle(unsigned int n)
{
	leaf(n);
	leaf(n + 1);
}

NOINLINE static void outer(unsigned int n)
{
	middle(n);
	middle(n + 1);
}

NOINLINE static void child_work(void)
{
	outer(20);
}

NOINLINE static void storm_work(void)
{
	outer(4);
}

NOINLINE static void crash_here(char *where)
{
	outer(5);
	*where = 1;
}

static void nap(long ms)
{
	const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

	(void)nanosleep(&t, NULL);
}

static void work_on(void)
{
	for (;;) {
		outer(3);
		nap(20);
	}
}

static void *work(void *arg)
{
	work_on();
	return arg;
}

static void *stay(void *arg)
{
	storm_work();
	if (arg)
		return NULL;
	for (;;)
		nap(1000000);
}

static void make(int n, void *(*run)(void *), void *arg)
{
	pthread_attr_t attr;

	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setstacksize(&attr, 65536);
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	for (int i = 0; i < n; i++) {
		pthread_t thread;

		while (pthread_create(&thread, &attr, run, arg) != 0)
			nap(1);
	}
	nap(100);
	(void)puts("made");
	work_on();
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "spin";
	char byte;

	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	(void)puts("begun");
	if (strcmp(what, "spin") == 0) {
		for (;;) {
			outer(30);
			nap(3);
		}
	}
	if (strcmp(what, "light") == 0) {
		for (;;) {
			outer(3);
			nap(200);
		}
	}
	while (read(0, &byte, 1) < 0)
		;
	if (strcmp(what, "exec") == 0 && argc > 2)
		(void)execvp(argv[2], argv + 2);
	if (strcmp(what, "fork") == 0) {
		if (fork() == 0) {
			child_work();
			_exit(0);
		}
		(void)wait(NULL);
		outer(10);
	}
	if (strncmp(what, "storm", 5) == 0 && argc > 2)
		make(atoi(argv[2]), stay, what[5] ? what_ends : NULL);
	if (strcmp(what, "crew") == 0 && argc > 2)
		make(atoi(argv[2]), work, NULL);
	if (strcmp(what, "crash") == 0)
		crash_here(NULL);
	return 0;
}
