// SPDX-License-Identifier: Apache-2.0
/* For step-perf.sh: threads that take turns by a condition variable, start and end, and share an atomic. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static atomic_int total;
static int whose;

static int fib(int n)
{
	return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

static void *work(void *arg)
{
	const int me = (int)(long)arg;

	for (int i = 0; i < 10; i++) {
		char *p;

		pthread_mutex_lock(&lock);
		while (whose != me)
			pthread_cond_wait(&turn, &lock);
		whose = (whose + 1) % THREADS;
		pthread_cond_broadcast(&turn);
		pthread_mutex_unlock(&lock);
		atomic_fetch_add(&total, fib(8));
		p = malloc(100);
		if (!p)
			return NULL;
		memset(p, me, 100);
		free(p);
	}
	return NULL;
}

int main(void)
{
	pthread_t t[THREADS];

	for (long i = 0; i < THREADS; i++)
		if (pthread_create(&t[i], NULL, work, (void *)i) != 0)
			return 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	(void)printf("%d\n", total);
	return 0;
}
