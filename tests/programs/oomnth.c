// SPDX-License-Identifier: Apache-2.0
/*
 * For LD_PRELOAD: the n-th allocation of a program fails, and a few behind it. The word of command
 * is a file that the test maps too, named by TRACERD_OOM; whatever else the program starts loses
 * the variable, and is let alone.
 */
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
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

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t align, size_t size);

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

static int fails(void)
{
	static _Thread_local int inside;
	void *frames[FRAMES];

	/* not in a child between vfork() or fork() and exec() */
	if (!command || command->nth <= 0 || inside || command->pid != getpid())
		return 0;
	command->count++;
	if (atomic_fetch_sub(&command->nth, 1) != 1)
		return 0;
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
	return 1;
}

void *malloc(size_t size)
{
	return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
	return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
	return fails() ? NULL : __libc_realloc(p, size);
}

void *reallocarray(void *p, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	return realloc(p, bytes);
}

void *memalign(size_t align, size_t size)
{
	return fails() ? NULL : __libc_memalign(align, size);
}

void *aligned_alloc(size_t align, size_t size)
{
	return memalign(align, size);
}

int posix_memalign(void **ret, size_t align, size_t size)
{
	void *p = memalign(align, size);

	if (!p)
		return ENOMEM;
	*ret = p;
	return 0;
}
