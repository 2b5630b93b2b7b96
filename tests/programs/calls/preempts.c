// SPDX-License-Identifier: Apache-2.0
/* Threads in user space that signals take turns: the handler exchanges the registers that it returns to. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define TASKS 5
#define STACK (64u << 10)
#define SEED 13

#include "handmade.h"

static struct task {
	char *stack;
	mcontext_t registers;
	struct _libc_fpstate fp;
	int live;
} tasks[TASKS]; /* the first is main */
static volatile int current;
static long tid;

static void start(void);

static QUIET void save(struct task *t, const mcontext_t *m)
{
	t->registers = *m;
	t->fp = *m->fpregs;
	t->live = 1;
}

static QUIET void load(const struct task *t, mcontext_t *m)
{
	fpregset_t fp = m->fpregs;

	*fp = t->fp;
	*m = t->registers;
	m->fpregs = fp;
}

static void on_usr1(int sig, siginfo_t *si, void *context)
{
	mcontext_t *m = &((ucontext_t *)context)->uc_mcontext;
	const int to = (int)draw(TASKS);

	(void)si;
	leaf(sig);
	if (to == current)
		return;
	save(&tasks[current], m);
	if (!tasks[to].live) {
		save(&tasks[to], m);
		tasks[to].registers.gregs[REG_RIP] = (greg_t)(uintptr_t)start;
		tasks[to].registers.gregs[REG_RSP] = (greg_t)(uintptr_t)(tasks[to].stack + STACK - 72);
	}
	load(&tasks[to], m);
	current = to;
}

/* All that are interrupted in raise() go on at one place. */
static void in_library(void)
{
	leaf(2);
	raise(SIGUSR1);
	leaf(3);
}

static void in_itself(void)
{
	long r = SYS_tkill;

	leaf(4);
	__asm__ volatile("syscall" : "+a"(r) : "D"(tid), "S"((long)SIGUSR1) : "rcx", "r11", "memory");
	leaf(5);
}

static void walk(int n)
{
	if (n > 0)
		walk(n - 1);
	if (draw(2))
		in_library();
	else
		in_itself();
	leaf(6);
}

static void odd(int n)
{
	leaf(7);
	walk(n);
	in_library();
}

static void start(void)
{
	for (;;) {
		if (current & 1)
			walk(3);
		else
			odd(1);
	}
}

int main(void)
{
	struct sigaction sa = {.sa_sigaction = on_usr1, .sa_flags = SA_SIGINFO};

	tid = syscall(SYS_gettid);
	sigaction(SIGUSR1, &sa, NULL);
	for (int i = 1; i < TASKS; i++)
		tasks[i].stack = new_stack();
	for (int i = 0; i < 8; i++) {
		walk(i % 3);
		odd(1);
		leaf(8);
	}
	return 0;
}
