// SPDX-License-Identifier: Apache-2.0
/*
 * A process that is large: `large threads N` or `large maps N`. Says "ready", or why it cannot be so large, and ends with its
 * input; a line on it makes one more thread or mapping ("done"), "exec" executes another program.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define STACK_BYTES 16384

static void *sleeper(void *arg)
{
	for (;;)
		(void)pause();
	return NULL;
}

static int add_thread(void)
{
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setstacksize(&attr, STACK_BYTES);
	r = pthread_create(&thread, &attr, sleeper, NULL);
	(void)pthread_attr_destroy(&attr);
	return r;
}

/* Executable ones are what is recorded; one that is not lies between, so that the kernel does not join them. */
static int add_map(void)
{
	long page = sysconf(_SC_PAGESIZE);
	char *at = mmap(NULL, 2 * (size_t)page, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return errno;
	return mprotect(at, (size_t)page, PROT_NONE) < 0 ? errno : 0;
}

int main(int argc, char **argv)
{
	int (*add)(void) = argc == 3 && strcmp(argv[1], "threads") == 0 ? add_thread : add_map;
	long n = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
	char line[16];

	for (long i = 0; i < n; i += add == add_map ? 2 : 1) {
		int r = add();

		if (r != 0) {
			(void)printf("%ld %s: %s\n", i, argv[1], strerror(r));
			return 1;
		}
	}
	(void)puts("ready");
	(void)fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (strcmp(line, "exec\n") == 0)
			(void)execl("/bin/sleep", "sleep", "60", (char *)NULL);
		(void)puts(add() == 0 ? "done" : "failed");
		(void)fflush(stdout);
	}
	return 0;
}
