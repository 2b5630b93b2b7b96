// SPDX-License-Identifier: Apache-2.0
/*
 * Deep in calls before anybody looks: main, a, 5 of deep, b, loop; with "threads" two threads more, within routine, first, second,
 * loop; with "fiber" loop runs on a stack of its own. Each thread waits in loop for its turn, a line on stdin, calls work, which
 * calls leaf three times, and says so. With "handler" the main thread does so in a handler of SIGUSR1, which
 * it has sent itself.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

volatile int sum;
static ucontext_t outside, inside;
static char stack[1 << 16];
static int turns[3][2], answers[2];
static const char *how = "";

NOINLINE void leaf(int n)
{
	sum += n;
}

NOINLINE void work(int n)
{
	for (int i = 0; i < 3; i++)
		leaf(n + i);
	sum++;
}

NOINLINE void loop(int me)
{
	char c;

	while (read(me ? turns[me][0] : 0, &c, 1) == 1) {
		work(me);
		if (me == 0 && strcmp(how, "threads") == 0)
			for (int i = 1; i < 3; i++)
				if (write(turns[i][1], &c, 1) != 1 || read(answers[0], &c, 1) != 1)
					exit(3);
		if (write(me ? answers[1] : 1, "d", 1) != 1)
			exit(4);
	}
	sum++;
}

static void fiber(void)
{
	loop(0);
	sum++;
}

static void handler(int signal)
{
	(void)signal;
	loop(0);
	sum++;
}

NOINLINE void b(void)
{
	if (strcmp(how, "fiber") == 0) {
		getcontext(&inside);
		inside.uc_stack.ss_sp = stack;
		inside.uc_stack.ss_size = sizeof(stack);
		inside.uc_link = &outside;
		makecontext(&inside, fiber, 0);
		swapcontext(&outside, &inside);
	} else if (strcmp(how, "handler") == 0) {
		(void)raise(SIGUSR1);
	} else {
		loop(0);
	}
	sum++;
}

NOINLINE void deep(int n)
{
	if (n > 1)
		deep(n - 1);
	else
		b();
	sum++;
}

NOINLINE void a(void)
{
	deep(5);
	sum++;
}

NOINLINE void second(int me)
{
	loop(me);
	sum++;
}

NOINLINE void first(int me)
{
	second(me);
	sum++;
}

static void *routine(void *arg)
{
	first((int)(long)arg);
	sum++;
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t;

	if (argc > 1)
		how = argv[1];
	(void)signal(SIGUSR1, handler);
	if (pipe(answers) < 0)
		return 1;
	for (long i = 1; i < 3 && strcmp(how, "threads") == 0; i++)
		if (pipe(turns[i]) < 0 || pthread_create(&t, NULL, routine, (void *)i) != 0)
			return 2;
	a();
	sum++;
	return 0;
}
