// SPDX-License-Identifier: Apache-2.0
/*
 * Signal handlers that leave their stack: for coroutines, on the stack of signals and on that of what they have interrupted, to come back
 * later; and by siglongjmp, out of handlers within handlers, to the base or to a handler that is one of those.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>

#define TASKS 5
#define STACK (64u << 10)
#define SEED 7

#include "handmade.h"

static struct task {
	void *sp;
	char *stack;
	int live;
} tasks[TASKS]; /* the first is main */
static int current;
static sigjmp_buf base, middle;
static volatile int has_middle;

static void transfer(int to)
{
	const int from = current;

	leaf(1);
	current = to;
	swap_stacks(&tasks[from].sp, tasks[to].sp);
	leaf(2);
}

static void give(void)
{
	const int to = (int)draw(TASKS);

	if (to != current && tasks[to].live)
		transfer(to);
	leaf(3);
}

static void on_usr1(int sig)
{
	leaf(sig);
	give();
	leaf(4);
}

static void on_usr2(int sig)
{
	leaf(sig);
	give();
	give();
}

static void interrupt(void)
{
	if (current == 0 && draw(2))
		raise(SIGUSR2); /* on the stack of signals */
	else
		raise(SIGUSR1);
	leaf(5);
}

static void walk(int n)
{
	if (n > 0)
		walk(n - 1);
	switch (draw(3)) {
	case 0:
		give();
		break;
	case 1:
		interrupt();
		break;
	default:
		leaf(6);
	}
}

static void forever(void)
{
	for (;;) {
		walk((int)draw(4));
		interrupt();
	}
}

static void on_hup(int sig)
{
	leaf(sig);
	if (draw(2))
		siglongjmp(base, 1);
	if (has_middle && draw(2))
		siglongjmp(middle, 1);
	leaf(7);
}

static void on_term(int sig)
{
	leaf(sig);
	if (draw(2) && !has_middle && !sigsetjmp(middle, 1)) {
		has_middle = 1;
		leaf(8);
		raise(SIGHUP);
	}
	has_middle = 0;
	raise(SIGHUP);
	leaf(9);
}

static void dig(int n)
{
	leaf(n);
	if (n > 0)
		dig(n - 1);
	else
		raise(SIGTERM);
	leaf(n);
}

static void out(int n)
{
	if (!sigsetjmp(base, 1))
		dig(n);
	else
		leaf(10);
	has_middle = 0;
	leaf(11);
}

static void handle(int sig, void (*f)(int), int flags)
{
	struct sigaction sa;

	memset(&sa, 0, sizeof(sa));
	sa.sa_handler = f;
	sa.sa_flags = flags | SA_NODEFER;
	sigaction(sig, &sa, NULL);
}

static QUIET void make(struct task *t)
{
	t->stack = new_stack();
	t->sp = first_frame(t->stack, forever);
	t->live = 1;
}

int main(void)
{
	stack_t st = {.ss_sp = aligned_alloc(1 << 16, 1 << 16), .ss_size = 1 << 16};

	sigaltstack(&st, NULL);
	handle(SIGUSR1, on_usr1, 0);
	handle(SIGUSR2, on_usr2, SA_ONSTACK);
	handle(SIGHUP, on_hup, SA_ONSTACK);
	handle(SIGTERM, on_term, 0);
	for (int i = 0; i < 12; i++)
		out(i % 4);
	tasks[0].live = 1;
	for (int i = 1; i < TASKS; i++)
		make(&tasks[i]);
	for (int i = 0; i < 24; i++)
		walk(i % 4);
	return 0;
}
