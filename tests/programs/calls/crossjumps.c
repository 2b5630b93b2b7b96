// SPDX-License-Identifier: Apache-2.0
/*
 * A coroutine that main goes on with where it waits, or, by longjmp() from another stack, at places that it has remembered further out: in calls of one
 * function that are all on its stack.
 */
#include <setjmp.h>

#define LEVELS 5
#define STACK (64u << 10)
#define SEED 5

#include "handmade.h"

static void *own, *other;
static jmp_buf points[LEVELS];
static int set[LEVELS];

static void leave(void)
{
	leaf(1);
	swap_stacks(&other, own);
	leaf(2);
}

static void dig(int level)
{
	leaf(level);
	set[level] = 0;
	if (draw(2)) {
		set[level] = 1;
		if (_setjmp(points[level])) {
			for (int i = level; i < LEVELS; i++)
				set[i] = 0;
			leaf(3);
		}
	}
	leave();
	if (level + 1 < LEVELS && draw(6))
		dig(level + 1);
	leaf(4);
	set[level] = 0;
}

static void forever(void)
{
	for (;;)
		dig(0);
}

static void jump(void)
{
	unsigned level = draw(LEVELS);

	while (!set[level])
		level = (level + 1) % LEVELS;
	_longjmp(points[level], 1);
}

static void resume(void)
{
	leaf(5);
	swap_stacks(&own, other);
	leaf(6);
}

/* On a stack of its own, which is left for good. */
static void resume_further_out(char *stack)
{
	leaf(7);
	swap_stacks(&own, first_frame(stack, jump));
	leaf(8);
}

int main(void)
{
	char *stack = new_stack();

	other = first_frame(new_stack(), forever);
	for (int i = 0; i < 150; i++) {
		int any = 0;

		for (int level = 0; level < LEVELS; level++)
			any |= set[level];
		if (any && draw(3) == 0)
			resume_further_out(stack);
		else
			resume();
	}
	return 0;
}
