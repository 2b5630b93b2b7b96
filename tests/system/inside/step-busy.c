// SPDX-License-Identifier: Apache-2.0
/* For step-life.py: forty threads that count and never wait, until it is killed. */
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#define THREADS 40

static atomic_ulong counted;

static void *work(void *arg)
{
	for (;;)
		atomic_fetch_add(&counted, 1);
	return arg;
}

int main(void)
{
	pthread_t threads[THREADS];

	for (size_t i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, work, NULL) != 0)
			return 1;
	(void)work(NULL);
	return 0;
}
