// SPDX-License-Identifier: Apache-2.0
/*
 * For step-perf.sh: all that signals can do to control flow, and what a program could see of being stepped:
 * SIGTRAP handled and blocked, the trap flag in pushf's and in r11, what is executed with one trap, its own trap flag, interrupted and
 * restarted system calls. Says "ok".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static sigjmp_buf back;
static volatile int alarms, faults, inner, outer, traps;
static char *page;

static void check(int holds, const char *what)
{
	if (holds)
		return;
	(void)printf("wrong: %s\n", what);
	exit(1);
}

static void on_alarm(int s)
{
	(void)s;
	alarms++;
}

static void on_trap(int s)
{
	(void)s;
	traps++;
}

static void on_inner(int s)
{
	(void)s;
	inner++;
}

static void on_outer(int s)
{
	(void)s;
	outer++;
	raise(SIGUSR2);
}

static void on_fault(int s, siginfo_t *info, void *context)
{
	(void)s;
	(void)info;
	(void)context;
	if (faults++ == 0)
		mprotect(page, 4096, PROT_READ | PROT_WRITE);
	else
		siglongjmp(back, 1);
}

static void handle(int s, void (*handler)(int), int flags)
{
	struct sigaction a = {.sa_handler = handler, .sa_flags = flags};

	sigaction(s, &a, NULL);
}

static void faults_and_nesting(void)
{
	stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
	struct sigaction a = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};

	sigaltstack(&stack, NULL);
	sigaction(SIGSEGV, &a, NULL);
	handle(SIGUSR1, on_outer, 0);
	handle(SIGUSR2, on_inner, SA_ONSTACK);
	page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	page[0] = 1; /* the handler makes it right */
	if (sigsetjmp(back, 1) == 0)
		*(volatile char *)8 = 1; /* the handler jumps */
	check(faults == 2, "two faults");
	raise(SIGUSR1);
	check(outer == 1 && inner == 1, "a signal in a handler");
}

static void own_traps(void)
{
	handle(SIGTRAP, on_trap, 0);
	raise(SIGTRAP);
	__asm__ volatile("int3");
	check(traps == 2, "raise() and int3");
	/* six instructions behind the first popf, with the second one */
	__asm__ volatile(
		"pushfq; orq $0x100,(%%rsp); popfq; nop; nop; nop; pushfq; andq $~0x100,(%%rsp); popfq; nop" ::
			: "memory", "cc");
	check(traps == 8, "the program's own trap flag");
}

static void not_seen(void)
{
	unsigned long flags, r11, number;
	sigset_t all, old;

	__asm__ volatile("pushfq; popq %0" : "=r"(flags));
	check(!(flags & 0x100), "no trap flag in the flags");
	/* one trap for two instructions */
	__asm__ volatile("movl %%ss,%%eax; movl %%eax,%%ss; pushfq; popq %0" : "=r"(flags) : : "rax");
	check(!(flags & 0x100), "no trap flag behind a load of the stack segment");
	__asm__ volatile("movl %%ss,%%eax; movl %%eax,%%ss; call 1f; jmp 2f; 1: ret; 2: movl %%eax,%%ss; jmp 3f; nop; 3:" : : : "rax", "memory");
	__asm__ volatile("syscall; movq %%r11,%0" : "=r"(r11), "=a"(number) : "a"(39L) : "rcx", "r11", "memory");
	check(!(r11 & 0x100), "no trap flag in r11");
	__asm__ volatile("int $0x80" : "=a"(number) : "a"(20L) : "memory");
	check(number == (unsigned long)getpid(), "int 0x80");
	sigfillset(&all);
	check(sigprocmask(SIG_SETMASK, &all, &old) == 0 && !sigismember(&old, SIGTRAP), "SIGTRAP was not blocked");
	check(sigprocmask(SIG_SETMASK, &old, &all) == 0 && sigismember(&all, SIGTRAP), "SIGTRAP was blocked");
	raise(SIGTRAP);
	check(traps == 9, "its handler is still there");
}

static void interrupted(void)
{
	const struct itimerval often = {{0, 3000}, {0, 3000}}, off = {{0, 0}, {0, 0}};
	struct timespec t = {60, 0}; /* a machine that stands still for a moment must not have it end by itself */
	int fds[2], status;
	pid_t child;
	char c = 0;

	handle(SIGALRM, on_alarm, 0);
	setitimer(ITIMER_REAL, &often, NULL);
	check(nanosleep(&t, NULL) == -1 && errno == EINTR, "an interrupted sleep");
	handle(SIGALRM, on_alarm, SA_RESTART);
	check(pipe(fds) == 0, "a pipe");
	child = fork();
	if (child == 0) {
		setitimer(ITIMER_REAL, &off, NULL);
		usleep(50000);
		_exit(write(fds[1], "x", 1) == 1 ? 0 : 1);
	}
	check(read(fds[0], &c, 1) == 1 && c == 'x', "a restarted read");
	setitimer(ITIMER_REAL, &off, NULL);
	check(waitpid(child, &status, 0) == child && status == 0, "the child");
	check(alarms > 1, "alarms");
}

int main(void)
{
	faults_and_nesting();
	own_traps();
	not_seen();
	interrupted();
	(void)printf("ok\n");
	return 0;
}
