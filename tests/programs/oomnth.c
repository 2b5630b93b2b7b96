// SPDX-License-Identifier: Apache-2.0
/*
 * For LD_PRELOAD: the n-th allocation of a program fails, and a few behind it. The word of command
 * is a file that the test maps too, named by TRACERD_OOM; whatever else the program starts loses
 * the variable, and is let alone.
 */
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define FRAMES 24

/* All numbers are 8 bytes; tests/system/oom-nth.py knows the order. */
struct command {
	_Atomic int64_t pid;   /* the program's, once it has mapped this */
	_Atomic int64_t nth;   /* counts down at each allocation; at 1 it fails; 0 and below: nothing does */
	_Atomic int64_t more;  /* so many behind it fail, too */
	_Atomic int64_t count; /* allocations while nth is positive */
	_Atomic int64_t failed;
	_Atomic int64_t tell;  /* callers of each failure on stderr */
};

static struct command *command;

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("TRACERD_OOM");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *frames[1], *p;

	if (fd < 0)
		return;
	p = mmap(NULL, sizeof(struct command), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	(void)close(fd);
	(void)unsetenv("TRACERD_OOM");
	(void)backtrace(frames, 1); /* it loads a library at its first call */
	if (p == MAP_FAILED)
		return;
	command = p;
	command->pid = getpid();
}

static bool malloc_fails(void)
{
	static _Thread_local int inside;
	void *frames[FRAMES];

	/* not in a child between vfork() or fork() and exec() */
	if (!command || command->nth <= 0 || inside || command->pid != getpid())
		return false;
	command->count++;
	if (atomic_fetch_sub(&command->nth, 1) != 1)
		return false;
	if (command->more > 0) {
		command->more--;
		command->nth = 1;
	}
	command->failed++;
	if (command->tell) {
		inside = 1;
		(void)!write(STDERR_FILENO, "oom:\n", 5);
		backtrace_symbols_fd(frames, backtrace(frames, FRAMES), STDERR_FILENO);
		inside = 0;
	}
	errno = ENOMEM;
	return true;
}

#include "tests/programs/failing_malloc.h"
