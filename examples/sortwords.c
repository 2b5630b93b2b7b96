// SPDX-License-Identifier: Apache-2.0
/*
 * A small program for `tracectl run --backend=step`: it sorts a few words and prints them. Each call of compare() and
 * swap() is in the trace. Linked statically it executes some 40,000 instructions, and stepping takes seconds.
 *
 *	cc -O1 -g -fno-inline -o sortwords sortwords.c        # and -static, if you can
 *	tracectl run --backend=step -- ./sortwords
 */
#include <stdio.h>
#include <string.h>

static int compare(const char *a, const char *b)
{
	return strcmp(a, b);
}

static void swap(const char **a, const char **b)
{
	const char *c = *a;

	*a = *b;
	*b = c;
}

static void sort(const char **words, int n)
{
	for (int i = 1; i < n; i++)
		for (int j = i; j > 0 && compare(words[j - 1], words[j]) > 0; j--)
			swap(&words[j - 1], &words[j]);
}

int main(void)
{
	const char *words[] = {"through", "every", "instruction", "I", "was", "stepped"};
	const int n = sizeof(words) / sizeof(words[0]);

	sort(words, n);
	for (int i = 0; i < n; i++)
		(void)printf("%s%s", words[i], i + 1 < n ? " " : "\n");
	return 0;
}
