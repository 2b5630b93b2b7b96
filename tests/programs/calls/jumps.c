// SPDX-License-Identifier: Apache-2.0
/* setjmp and longjmp out of recursion, to the innermost and to an outer place, and twice to the same. */
#include <setjmp.h>
#include <stdio.h>

static jmp_buf outer, inner;
static volatile int rounds;

static void dig(int depth, int stop, jmp_buf *to)
{
	if (depth == stop)
		longjmp(*to, depth);
	if (depth > stop)
		return;
	dig(depth + 1, stop, to);
	rounds++;
}

static int middle(int n)
{
	switch (setjmp(inner)) {
	case 0:
		dig(0, 3 + n, n & 1 ? &outer : &inner);
		return 0;
	default:
		rounds++;
		return n;
	}
}

/* The place to jump to is in a frame of a function that calls itself below of it. */
static int nested(int n)
{
	jmp_buf here;
	volatile int x = n;

	if (setjmp(here))
		return x;
	if (n > 0)
		(void)nested(n - 1);
	if (n == 2)
		dig(0, 2, &here);
	return x + 1;
}

static void again(void)
{
	if (setjmp(outer) < 4) {
		rounds++;
		dig(0, rounds % 6, &outer);
	}
}

int main(void)
{
	for (volatile int i = 0; i < 4; i++)
		if (!setjmp(outer))
			(void)middle(i);
	(void)nested(4);
	rounds = 0;
	again();
	printf("%d\n", rounds);
	return 0;
}
