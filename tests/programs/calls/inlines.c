// SPDX-License-Identifier: Apache-2.0
/*
 * Calls that are inlined: in each other, in loops, twice in a row, in a recursion, in a callback, on the way that is hardly ever
 * taken, and around calls that are not. With -DINLINED= a word that forbids it, the same calls are made.
 */
#include <stdio.h>
#include <stdlib.h>

#ifndef INLINED
#define INLINED static inline __attribute__((always_inline))
#endif
#ifdef __clang__
#define REAL static __attribute__((noinline))
#else
#define REAL static __attribute__((noipa))
#endif
static volatile int sink, five = 5; /* loops must not be unrolled */

REAL void mark(int n)
{
	sink = n;
}

INLINED int innermost(int x)
{
	mark(x);
	return x + sink;
}

INLINED int middle(int x)
{
	int r = innermost(x);

	mark(r);
	r += innermost(x + 1);
	mark(r);
	return r;
}

INLINED int outermost(int x)
{
	mark(x);
	x = middle(x);
	mark(x);
	return x;
}

INLINED int looping(int n)
{
	int r = 0;

	mark(n);
	for (int i = 0; i < n; i++)
		r += innermost(i);
	mark(r);
	return r;
}

INLINED int early(int x)
{
	mark(x);
	if (x & 1)
		return middle(x);
	mark(x + 1);
	sink = x; /* or both ways would share the end */
	return x;
}

REAL __attribute__((cold)) int rare(int x)
{
	mark(x);
	return x - 1;
}

INLINED int careful(int x)
{
	mark(x);
	if (__builtin_expect(x == 3, 0)) {
		x = rare(innermost(x));
		mark(x);
	}
	mark(x);
	return x;
}

REAL int recursion(int n)
{
	int r = early(n);

	if (n > 0)
		r += recursion(n - 1);
	return r + innermost(n);
}

INLINED int order(int a, int b)
{
	mark(a);
	mark(b);
	return (a > b) - (a < b);
}

REAL int compare(const void *a, const void *b)
{
	return order(*(const int *)a, *(const int *)b);
}

REAL int twice(int x)
{
	int r = outermost(x);

	r += outermost(x + 5);
	return r;
}

int main(void)
{
	int v[] = {5, 2, 9, 1}, r = 0;

	r += twice(2);
	r += looping(sink % 3 + 4);
	for (int i = 0; i < five; i++)
		r += careful(i);
	r += recursion(4);
	qsort(v, 4, sizeof(v[0]), compare);
	r += outermost(v[0]);
	printf("%d\n", r);
	return 0;
}
