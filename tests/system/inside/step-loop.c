// SPDX-License-Identifier: Apache-2.0
/*
 * For step-life.py: runs until it is killed. One thread counts and makes system calls, one waits with all
 * signals blocked, one handles SIGTRAP and SIGALRM; the first says each tenth of a second how far the count is.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <unistd.h>

static volatile unsigned long count, alarms;
static int pipe_fds[2];

static void on_signal(int s)
{
	if (s == SIGALRM)
		alarms++;
}

static void *run(void *arg)
{
	(void)arg;
	for (;;)
		if (++count % 256 == 0)
			(void)getppid();
	return NULL;
}

static void *wait_blocked(void *arg)
{
	sigset_t all;
	char c;

	(void)arg;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	while (read(pipe_fds[0], &c, 1) == 1)
		;
	return NULL;
}

int main(void)
{
	const struct itimerval often = {{0, 20000}, {0, 20000}};
	struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	pthread_t t;

	sigaction(SIGTRAP, &a, NULL);
	sigaction(SIGALRM, &a, NULL);
	if (pipe(pipe_fds) < 0 || pthread_create(&t, NULL, run, NULL) != 0 ||
	    pthread_create(&t, NULL, wait_blocked, NULL) != 0)
		return 1;
	setitimer(ITIMER_REAL, &often, NULL);
	for (;;) {
		struct sigaction now;

		(void)usleep(100000);
		if (sigaction(SIGTRAP, NULL, &now) != 0 || now.sa_handler != on_signal) {
			(void)printf("SIGTRAP is not handled any more\n");
			return 1;
		}
		(void)printf("%lu\n", count);
		(void)fflush(stdout);
	}
}
