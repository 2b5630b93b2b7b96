// SPDX-License-Identifier: Apache-2.0
/* A program whose main thread ends while another one works on. Says "ready" when it has ended, and ends with its input. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile unsigned long x;

static __attribute__((noinline)) void burn_on(void)
{
	for (unsigned long i = 0; i < 3000000; i++)
		x += i;
}

static int main_has_ended(void)
{
	char text[512], *end;
	int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	(void)close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	end = strrchr(text, ')');
	return end && end[2] == 'Z';
}

static void *worker(void *arg)
{
	(void)arg;
	while (!main_has_ended())
		(void)usleep(1000);
	(void)!write(STDOUT_FILENO, "ready\n", 6);
	for (;;) {
		burn_on();
		(void)usleep(2000);
	}
	return NULL;
}

static void *end(void *arg)
{
	char c;

	(void)arg;
	while (read(STDIN_FILENO, &c, 1) > 0)
		continue;
	_exit(0);
}

int main(void)
{
	pthread_t t;

	if (pthread_create(&t, NULL, worker, NULL) != 0 || pthread_create(&t, NULL, end, NULL) != 0)
		return 1;
	pthread_exit(NULL);
}
