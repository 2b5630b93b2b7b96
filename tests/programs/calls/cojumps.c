// SPDX-License-Identifier: Apache-2.0
/*
 * Coroutines that go on in a random order, each of which remembers places in its own calls by setjmp, in several calls of one function, and
 * comes back to one of them by longjmp, after others have done the same.
 */
#include <setjmp.h>

#define TASKS 4
#define LEVELS 6
#define STACK (64u << 10)
#define SEED 3

#include "handmade.h"

static struct task {
	void *sp;
	jmp_buf points[LEVELS];
	int set[LEVELS];
} tasks[TASKS]; /* the first is main */
static int current;

/* Each waits at a place of its own, so that it is known who goes on. */
#define TRANSFER(n)                                         \
	static void transfer##n(int to)                     \
	{                                                   \
		leaf(1);                                    \
		current = to;                               \
		swap_stacks(&tasks[n].sp, tasks[to].sp);    \
		leaf(2);                                    \
	}
TRANSFER(0)
TRANSFER(1)
TRANSFER(2)
TRANSFER(3)
static void (*const transfers[TASKS])(int) = {transfer0, transfer1, transfer2, transfer3};

static void give(void)
{
	const int to = (int)draw(TASKS);

	if (to != current)
		transfers[current](to);
}

static QUIET void go_back(int level)
{
	struct task *t = &tasks[current];
	const int to = (int)draw((unsigned)level + 1);

	if (t->set[to])
		_longjmp(t->points[to], 1);
}

static void dig(int level)
{
	struct task *t = &tasks[current];

	leaf(level);
	t->set[level] = 0;
	if (draw(2)) {
		t->set[level] = 1;
		if (_setjmp(t->points[level])) {
			t = &tasks[current];
			t->set[level] = 0;
			leaf(3);
		}
	}
	give();
	if (level + 1 < LEVELS && draw(5))
		dig(level + 1);
	if (draw(2))
		go_back(level);
	leaf(4);
	tasks[current].set[level] = 0;
}

static void forever(void)
{
	for (;;)
		dig(0);
}

static void other(int n)
{
	leaf(n);
	dig(0);
}

static QUIET void make(struct task *t)
{
	t->sp = first_frame(new_stack(), forever);
}

int main(void)
{
	for (int i = 1; i < TASKS; i++)
		make(&tasks[i]);
	for (int i = 0; i < 9; i++) {
		dig(0);
		other(i);
	}
	return 0;
}
