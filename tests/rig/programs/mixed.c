// SPDX-License-Identifier: Apache-2.0
/*
 * Whatever makes flow hard to follow, in few instructions: calls deeper than a processor remembers, indirect ones, signals from
 * outside and by faults, left by a jump or by a return, string instructions, the vDSO, threads, and children with a program of
 * their own and without.
 *
 *	mixed [ROUNDS]		default 1
 *	mixed stay		for ever, and its threads stay: who attaches to a process opens an event for each that it has listed. They
 *				rest in between, or who attaches would hardly get a processor
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEPTH 200

static volatile unsigned long sum;
static bool stays;
static sigjmp_buf out;
static char *page;

__attribute__((noinline)) unsigned long descend(unsigned int depth);

unsigned long descend(unsigned int depth)
{
	return depth ? descend(depth - 1) + depth : sum;
}

static unsigned long twice(unsigned long v)
{
	return v * 2;
}

static unsigned long halve(unsigned long v)
{
	return v / 2;
}

static unsigned long (*const indirect[])(unsigned long) = {twice, halve, twice, halve, halve};

static void on_alarm(int sig)
{
	sum += (unsigned long)sig;
}

/* The first fault makes the page writable, so that the instruction runs again; the second leaves by a jump. */
static void on_fault(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	if ((char *)info->si_addr == page && mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0)
		return;
	siglongjmp(out, 1);
}

static void faults(void)
{
	(void)mprotect(page, 4096, PROT_NONE);
	*(volatile char *)page = 1;
	if (sigsetjmp(out, 1) == 0)
		*(volatile char *)8 = 1;
	sum++;
}

static void strings(void)
{
	static char a[3000], b[3000];
	unsigned long n = sizeof(a), flags;
	const char *from = a;
	char *to = b;

	__asm__ volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(n) : : "memory");
	__asm__ volatile("pushfq\n\tpopq %0" : "=r"(flags));
	if (flags & 0x100) /* the trap flag, which nobody here has set */
		abort();
	n = 20;
	__asm__ volatile("1:\tloop 1b\n\tjrcxz 2f\n\tud2\n2:" : "+c"(n));
	__asm__ volatile("call 1f\n1:\tpopq %0" : "=r"(n) : : "memory");
}

/* A signal may end it early. */
static bool rest(void)
{
	(void)usleep(10000);
	return true;
}

static void *work(void *arg)
{
	struct timespec now;

	do {
		for (unsigned int i = 0; i < 60; i++) {
			for (unsigned int j = 0; j < sizeof(indirect) / sizeof(*indirect); j++)
				sum = indirect[j](sum + i);
			(void)clock_gettime(CLOCK_MONOTONIC, &now);
			sum += (unsigned long)now.tv_nsec;
			sum += descend((unsigned int)(long)arg * 7 % 50);
		}
	} while (stays && rest());
	return NULL;
}

static void children(char *self)
{
	for (int i = 0; i < 2; i++) {
		pid_t child = fork();

		if (child == 0 && i == 0) {
			sum += descend(DEPTH);
			_exit(0);
		}
		if (child == 0) {
			execl(self, self, "child", NULL);
			_exit(127);
		}
		(void)waitpid(child, NULL, 0);
	}
}

int main(int argc, char **argv)
{
	const struct itimerval often = {{0, 3000}, {0, 3000}}, off = {{0, 0}, {0, 0}};
	struct sigaction alarms = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	struct sigaction segvs = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
	unsigned int rounds = argc > 1 ? (unsigned int)atoi(argv[1]) : 1;
	pthread_t threads[3];

	if (argc > 1 && strcmp(argv[1], "child") == 0)
		return (int)(descend(DEPTH) & 0);
	if (argc > 1 && strcmp(argv[1], "stay") == 0) {
		stays = true;
		rounds = 1;
	}
	page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return 1;
	sigaction(SIGALRM, &alarms, NULL);
	sigaction(SIGSEGV, &segvs, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	for (unsigned int round = 0; round < rounds; round++) {
		for (long i = 0; i < 3; i++)
			if (pthread_create(&threads[i], NULL, work, (void *)(i + 1)))
				return 1;
		do {
			sum += descend(DEPTH);
			faults();
			strings();
		} while (stays && rest());
		for (long i = 0; i < 3; i++)
			pthread_join(threads[i], NULL);
	}
	setitimer(ITIMER_REAL, &off, NULL);
	children(argv[0]);
	(void)!write(1, "done\n", 5);
	return 0;
}
