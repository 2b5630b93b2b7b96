// SPDX-License-Identifier: Apache-2.0
/* Recursion, direct and through another function, tail calls, calls through pointers, callbacks of the C library. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned long fib(unsigned n)
{
	return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

static int is_odd(unsigned n);
static int is_even(unsigned n)
{
	return n == 0 ? 1 : is_odd(n - 1);
}

static int is_odd(unsigned n)
{
	return n == 0 ? 0 : is_even(n - 1);
}

static int compare(const void *a, const void *b)
{
	const int x = *(const int *)a, y = *(const int *)b;

	return (x > y) - (x < y);
}

static int twice(int x)
{
	return 2 * x;
}

static int thrice(int x)
{
	return 3 * x;
}

static int (*const table[])(int) = {twice, thrice, abs};

int main(void)
{
	int numbers[40], sum = 0, key = 7;
	char text[80] = "";

	for (int i = 0; i < 40; i++)
		numbers[i] = (i * 7919) % 41;
	qsort(numbers, 40, sizeof(*numbers), compare);
	sum += bsearch(&key, numbers, 40, sizeof(*numbers), compare) ? 1 : 0;
	for (int i = 0; i < 9; i++)
		sum += table[i % 3](i);
	for (int i = 0; i < 3; i++)
		(void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%d %s,", i, i ? "more" : "first");
	printf("%lu %d %d %s\n", fib(9), is_even(20), sum, text);
	return 0;
}
