// SPDX-License-Identifier: Apache-2.0
/* Threads that call each their own functions, with a lock and thread-local data. */
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int own;
static int sum;

static int count(int n)
{
	return n == 0 ? 0 : 1 + count(n - 1);
}

static void add(int n)
{
	pthread_mutex_lock(&lock);
	sum += n;
	pthread_mutex_unlock(&lock);
}

static void *run(void *arg)
{
	for (int i = 0; i < 5; i++) {
		own += count((int)(long)arg + i);
		add(own);
	}
	return NULL;
}

int main(void)
{
	pthread_t t[3];

	for (long i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, run, (void *)i);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	printf("%d\n", sum);
	return 0;
}
