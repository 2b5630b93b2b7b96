// SPDX-License-Identifier: Apache-2.0
/* Where stacks begin: a forked process, one of vfork, threads, a program that exec makes, and deep in calls. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int kept;

static void leaf(int n)
{
	for (int i = 0; i < n; i++)
		kept += i;
}

static void in_child(void)
{
	leaf(2);
}

static void in_parent(void)
{
	leaf(3);
}

static pid_t forks(void)
{
	pid_t pid = fork();

	if (pid == 0)
		in_child();
	else
		in_parent();
	return pid;
}

static void vforks(void)
{
	pid_t pid = vfork();

	if (pid == 0) {
		leaf(1);
		_exit(0);
	}
	in_parent();
	(void)waitpid(pid, NULL, 0);
}

static void *routine(void *arg)
{
	leaf(1);
	return arg;
}

static void threads(void)
{
	pthread_t t;

	if (pthread_create(&t, NULL, routine, NULL) == 0)
		pthread_join(t, NULL);
}

/* Long enough that what is kept of a ring begins in here. */
static void deepest(void)
{
	for (int i = 0; i < 4000; i++)
		leaf(1);
}

static void deep(int n)
{
	if (n == 0)
		deepest();
	else
		deep(n - 1);
	leaf(1);
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "deep") == 0) {
		deep(5);
		return 0;
	}
	if (argc > 1)
		return 0; /* what exec has made */
	if (forks() == 0) {
		char *const again[] = {argv[0], "again", NULL};

		execv(argv[0], again);
		_exit(1);
	}
	vforks();
	threads();
	(void)wait(NULL);
	return 0;
}
