// SPDX-License-Identifier: Apache-2.0
/* For step-life.py: threads, forks and vforks without end; says so and ends if one of them goes wrong. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 20

static void *work(void *arg)
{
	for (int i = 0; i < 1000; i++) {
		free(malloc(10));
		if (i % 100 == 0)
			(void)usleep(1);
	}
	return arg;
}

static int expect(pid_t pid, int code)
{
	int status;

	if (waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == code)
		return 0;
	(void)printf("a child ended with %#x\n", (unsigned int)status);
	return 1;
}

int main(void)
{
	for (;;) {
		pthread_t t[THREADS];
		pid_t pid;

		for (int i = 0; i < THREADS; i++)
			if (pthread_create(&t[i], NULL, work, NULL) != 0)
				return 1;
		for (int i = 0; i < 3; i++) {
			pid = vfork();
			if (pid == 0) {
				(void)execl("/bin/true", "true", NULL);
				_exit(1);
			}
			if (expect(pid, 0))
				return 1;
			pid = fork();
			if (pid == 0) {
				(void)usleep(100);
				_exit(3);
			}
			if (expect(pid, 3))
				return 1;
		}
		for (int i = 0; i < THREADS; i++)
			pthread_join(t[i], NULL);
	}
}
