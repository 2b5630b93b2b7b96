// SPDX-License-Identifier: Apache-2.0
/*
 * For step-perf.sh: code that is in no file and changes: written behind what has run, over what has run, across
 * pages, through another mapping, behind mprotect, by one thread for another.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096

typedef int (*function)(void);

static uint8_t *shared;
static volatile int stage;

static uint8_t *map(size_t size, int prot)
{
	return mmap(NULL, size, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static int call(const uint8_t *code)
{
	return ((function)(uintptr_t)code)();
}

/* mov $value,%eax; ret */
static void write_value(uint8_t *p, uint32_t value)
{
	p[0] = 0xb8;
	memcpy(p + 1, &value, 4);
	p[5] = 0xc3;
}

/* nop...; mov $rounds,%ecx; 1: dec %ecx; jne 1b; mov %ecx,%eax; ret */
static void write_loop(uint8_t *p, size_t nops, uint8_t rounds)
{
	const uint8_t code[] = {0xb9, rounds, 0, 0, 0, 0xff, 0xc9, 0x75, 0xfc, 0x89, 0xc8, 0xc3};

	memset(p, 0x90, nops);
	memcpy(p + nops, code, sizeof(code));
}

static int in_one_mapping(void)
{
	uint8_t *code = map(2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
	int sum = 0;

	for (uint32_t i = 0; i < 20; i++) {
		write_value(code + 16 * i, i);
		sum += call(code + 16 * i);
	}
	for (uint8_t i = 0; i < 5; i++) {
		write_loop(code, i, (uint8_t)(i + 1));
		sum += call(code);
	}
	write_value(code + PAGE - 3, 1000);
	sum += call(code + PAGE - 3);
	write_value(code + PAGE - 3, 0x01010101);
	return sum + (call(code + PAGE - 3) & 0xff);
}

static int in_two_ways(void)
{
	uint8_t *flip = map(PAGE, PROT_READ | PROT_WRITE), *from, *to;
	const int fd = memfd_create("jit", 0);
	int sum = 0;

	for (uint8_t i = 0; i < 5; i++) {
		mprotect(flip, PAGE, PROT_READ | PROT_WRITE);
		write_loop(flip, 7u - i, 3);
		mprotect(flip, PAGE, PROT_READ | PROT_EXEC);
		sum += call(flip);
	}
	if (fd < 0 || ftruncate(fd, PAGE) < 0)
		return -1;
	from = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	to = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
	for (uint8_t i = 0; i < 5; i++) {
		write_loop(from, i, (uint8_t)(2 * i + 1));
		sum += call(to);
	}
	/* another mapping in the same place */
	to = mmap(to, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	write_loop(to, 30, 2);
	return sum + call(to);
}

static void *run(void *arg)
{
	(void)arg;
	while (stage == 0)
		;
	call(shared);
	stage = 2;
	while (stage == 2)
		;
	call(shared);
	return NULL;
}

int main(void)
{
	pthread_t t;
	int sum = in_one_mapping() + in_two_ways();

	shared = map(PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
	if (pthread_create(&t, NULL, run, NULL) != 0)
		return 1;
	write_loop(shared, 3, 4);
	stage = 1;
	while (stage == 1)
		;
	write_loop(shared, 9, 2);
	sum += call(shared);
	stage = 3;
	pthread_join(t, NULL);
	(void)printf("%d\n", sum);
	return 0;
}
