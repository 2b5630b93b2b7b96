// SPDX-License-Identifier: Apache-2.0
/*
 * A small program for tests that break ELF files: some functions with and without names of their
 * own, calls through the PLT, an unwind table. Built without the sanitizers, to stay small.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int tiny_outer(int n);

static __attribute__((noinline)) int tiny_inner(int n)
{
	char buf[64];

	(void)snprintf(buf, sizeof(buf), "%d", n);
	return (int)strlen(buf) + atoi(buf);
}

__attribute__((noinline)) int tiny_outer(int n)
{
	int sum = 0;

	for (int i = 0; i < n; i++)
		sum += tiny_inner(i) * 3;
	return sum;
}

int main(int argc, char **argv)
{
	(void)argv;
	return printf("%d\n", tiny_outer(argc + 3)) < 0;
}
