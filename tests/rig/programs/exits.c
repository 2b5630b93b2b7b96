// SPDX-License-Identifier: Apache-2.0
/* Threads that work for a moment, wait, and end, one after the other: the callers of what they do are known, and keep no frame pointers. */
#include <pthread.h>
#include <stddef.h>
#include <time.h>

#define FN __attribute__((noinline, noclone))

static volatile unsigned int sink;

FN static void innermost(void)
{
	const struct timespec t = {.tv_nsec = 2000000};

	for (unsigned int i = 0; i < 20000; i++)
		sink += i;
	(void)nanosleep(&t, NULL);
	sink++;
}

FN static void middle(void)
{
	innermost();
	sink++;
}

FN static void *outermost(void *arg)
{
	middle();
	sink++;
	return arg;
}

int main(void)
{
	for (;;) {
		pthread_t t;

		if (pthread_create(&t, NULL, outermost, NULL) == 0)
			(void)pthread_join(t, NULL);
	}
}
