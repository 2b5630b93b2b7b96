// SPDX-License-Identifier: Apache-2.0
/* Signals: on a stack of their own, inside of each other, in system calls that go on and that do not, left by siglongjmp. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static sigjmp_buf out;
static volatile sig_atomic_t seen;

static void work(int n)
{
	for (volatile int i = 0; i < n; i++)
		seen = seen;
}

static void on_usr2(int sig)
{
	(void)sig;
	work(3);
	seen++;
}

static void on_usr1(int sig)
{
	work(2);
	raise(SIGUSR2);
	work(sig & 1);
	seen++;
}

static void on_segv(int sig)
{
	(void)sig;
	work(1);
	siglongjmp(out, 1);
}

static void on_alarm(int sig)
{
	(void)sig;
	work(1);
	seen++;
}

static void fault(int depth)
{
	if (depth == 0)
		*(volatile int *)8 = 1;
	else
		fault(depth - 1);
	work(1);
}

static void handle(int sig, void (*f)(int), int flags)
{
	struct sigaction sa;

	memset(&sa, 0, sizeof(sa));
	sa.sa_handler = f;
	sa.sa_flags = flags;
	sigaction(sig, &sa, NULL);
}

static int wait_for(int flags)
{
	const struct itimerval soon = {.it_value = {.tv_usec = 20000}}, off = {0};
	int pipes[2];
	char c = 0;
	long r;

	if (pipe(pipes) < 0)
		return -1;
	handle(SIGALRM, on_alarm, flags);
	setitimer(ITIMER_REAL, &soon, NULL);
	if (flags & SA_RESTART) {
		/* goes on until the child closes its end */
		if (fork() == 0) {
			usleep(60000);
			_exit(0);
		}
		close(pipes[1]);
	}
	r = read(pipes[0], &c, 1);
	work(1);
	setitimer(ITIMER_REAL, &off, NULL);
	return r < 0 ? errno : (int)r;
}

int main(void)
{
	stack_t st = {.ss_sp = aligned_alloc(1 << 20, 1 << 20), .ss_size = 1 << 20};
	int a, b;

	sigaltstack(&st, NULL);
	handle(SIGUSR1, on_usr1, 0);
	handle(SIGUSR2, on_usr2, SA_ONSTACK);
	handle(SIGSEGV, on_segv, SA_ONSTACK | SA_NODEFER);
	for (int i = 0; i < 3; i++)
		raise(SIGUSR1);
	for (volatile int i = 0; i < 3; i++)
		if (!sigsetjmp(out, 1))
			fault(i);
	a = wait_for(0);
	b = wait_for(SA_RESTART);
	printf("%d %d %d\n", (int)seen, a, b);
	return 0;
}
