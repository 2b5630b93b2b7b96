// SPDX-License-Identifier: Apache-2.0
/*
 * For step-control.py: what a recording that goes on for long must be able to forget, in a short time. Says how
 * many rounds there were when they are over, and goes on doing little.
 *
 *	step-long pages ROUNDS		code that changes in each round
 *	step-long threads ROUNDS	threads that end
 *	step-long maps ROUNDS FILE	mappings that come and go
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096

typedef int (*function)(void);

/* mov $round,%eax; ret */
static int pages(uint32_t rounds)
{
	uint8_t *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const function f = (function)(uintptr_t)p;

	p[0] = 0xb8;
	p[5] = 0xc3;
	for (uint32_t i = 0; i < rounds; i++) {
		*(volatile uint32_t *)(p + 1) = i;
		if (f() != (int)i)
			return 1;
	}
	return 0;
}

static void *nothing(void *arg)
{
	return arg;
}

static int threads(uint32_t rounds)
{
	for (uint32_t i = 0; i < rounds; i++) {
		pthread_t t;

		if (pthread_create(&t, NULL, nothing, NULL) != 0 || pthread_join(t, NULL) != 0)
			return 1;
	}
	return 0;
}

static int maps(uint32_t rounds, const char *path)
{
	const int fd = open(path, O_RDONLY);
	void *before = NULL;

	if (fd < 0)
		return 1;
	for (uint32_t i = 0; i < rounds; i++) {
		void *p = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, (off_t)(i % 3) * PAGE);

		if (p == MAP_FAILED)
			return 1;
		if (before)
			(void)munmap(before, PAGE);
		before = p;
	}
	return 0;
}

int main(int argc, char **argv)
{
	const uint32_t rounds = argc > 2 ? (uint32_t)atoi(argv[2]) : 0;
	char c;

	/* not before it is stepped */
	if (read(0, &c, 1) != 1)
		return 2;
	if (strcmp(argv[1], "pages") == 0	? pages(rounds)
	    : strcmp(argv[1], "threads") == 0 ? threads(rounds)
						: maps(rounds, argv[3]))
		return 1;
	(void)printf("%u\n", rounds);
	(void)fflush(stdout);
	for (;;)
		(void)usleep(1000);
}
