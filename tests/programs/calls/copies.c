// SPDX-License-Identifier: Apache-2.0
/*
 * Coroutines in the way of greenlet: one begins on top of who begins it, on one stack; where another one is to go on, what the two have in common of it is
 * copied out and in, and the stack pointer moves by the distance.
 */
#define TASKS 6
#define STACK (64u << 10)
#define SEED 17

#include "handmade.h"

/* The log's (hooks.c). */
void calls_copied(int from, int to, int begins);
/* 1: the target is a new one, which is to begin here; 0: switched to, by somebody else. */
int move_stack(void);

static struct task {
	char *start, *stop; /* of the stack; NULL: it has not begun, or has ended */
	char *copy;
	size_t n_copied; /* from `start` on */
	struct task *around; /* whose part of the stack is the next one */
	int live;
} tasks[TASKS]; /* the first is main */
static volatile int current, target;

static QUIET void copy_out(struct task *t, char *stop)
{
	const size_t have = t->n_copied;

	if (stop <= t->start + have)
		return;
	t->n_copied = (size_t)(stop - t->start);
	t->copy = (char *)realloc(t->copy, t->n_copied);
	memcpy(t->copy + have, t->start + have, t->n_copied - have);
}

QUIET __attribute__((used)) int move_out(char *sp)
{
	struct task *t = &tasks[current], *to = &tasks[target];

	if (t->start)
		t->start = sp;
	else
		t = t->around;
	for (; t->stop < to->stop; t = t->around)
		copy_out(t, t->stop);
	if (t != to)
		copy_out(t, to->stop);
	return !to->start;
}

QUIET __attribute__((used)) long distance(const char *sp)
{
	return tasks[target].start - sp;
}

QUIET __attribute__((used)) void move_in(void)
{
	struct task *t = &tasks[current], *to = &tasks[target];

	if (to->n_copied)
		memcpy(to->start, to->copy, to->n_copied);
	to->n_copied = 0;
	if (!t->start)
		t = t->around;
	while (t && t->stop <= to->stop)
		t = t->around;
	to->around = t;
	current = target;
}

__asm__(".globl move_stack; .type move_stack,@function; move_stack: push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15; sub $8,%rsp;"
	"mov %rsp,%rdi; call move_out; test %eax,%eax; jne 1f;"
	"mov %rsp,%rdi; call distance; add %rax,%rsp; call move_in; xor %eax,%eax;"
	"1: add $8,%rsp; pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp; ret; .size move_stack,.-move_stack");

static void change(int to);

static void give(void)
{
	int to = (int)draw(TASKS);

	if (to == current)
		to = 0;
	if (to != current)
		change(to);
	leaf(3);
}

static void walk(int n)
{
	if (n > 0)
		walk(n - 1);
	if (draw(2))
		give();
	leaf(4);
}

static void odd(int n)
{
	leaf(5);
	give();
	walk(n);
}

static void often(int n)
{
	for (int i = 0; i < n; i++) {
		odd(i);
		leaf(6);
	}
}

static void begin(void)
{
	leaf(7);
	switch (draw(3)) {
	case 0:
		walk(3);
		break;
	case 1:
		odd(2);
		break;
	default:
		often(2);
	}
	tasks[current].live = 0;
	tasks[current].start = NULL;
	change(0);
	abort();
}

static void change(int to)
{
	const int from = current;
	struct task *t = &tasks[to];

	leaf(1);
	target = to;
	if (t->live) {
		calls_copied(from, to, 0);
	} else {
		t->stop = (char *)__builtin_frame_address(0) - 8;
		t->n_copied = 0;
		t->around = tasks[from].start ? &tasks[from] : tasks[from].around;
	}
	if (move_stack()) {
		t->start = (char *)1;
		t->live = 1;
		calls_copied(from, to, 1);
		current = to;
		begin();
	}
	leaf(2);
}

static void run(void)
{
	for (int i = 0; i < 40; i++) {
		change(1 + (int)draw(TASKS - 1));
		leaf(8);
	}
}

int main(void)
{
	tasks[0] = (struct task){.start = (char *)1, .stop = (char *)-1, .live = 1};
	run();
	return 0;
}
