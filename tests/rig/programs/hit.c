// SPDX-License-Identifier: Apache-2.0
/* A program that comes to a place: it waits for a byte on its standard input, calls three functions and then the place. */
#include <stdio.h>
#include <unistd.h>

static volatile unsigned int sink;

#define NOINLINE __attribute__((noinline))

NOINLINE static void first_step(void)
{
	sink += 1;
}

NOINLINE static void second_step(void)
{
	sink += 2;
}

NOINLINE static void third_step(void)
{
	sink += 3;
}

NOINLINE static void the_place(void)
{
	sink += 4;
}

NOINLINE static void goes_on(void)
{
	sink += 5;
}

NOINLINE static void work(void)
{
	first_step();
	second_step();
	third_step();
	the_place();
	goes_on();
}

int main(void)
{
	char c;

	puts("begun");
	fflush(stdout);
	if (read(STDIN_FILENO, &c, 1) == 1)
		work();
	for (;;)
		pause();
}
