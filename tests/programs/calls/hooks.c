// SPDX-License-Identifier: Apache-2.0
/*
 * The log of a program that is compiled with -finstrument-functions: each entry and exit of its functions, with the address
 * of the frame, which tells who is inside of whom even where exits are not called (longjmp). Kept in memory, written to
 * $CALLS_LOG when the program ends, in one piece.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define QUIET __attribute__((no_instrument_function))

struct line {
	uint64_t function, frame;
	int32_t tid;
	int32_t what; /* 'e', 'x'; 'a': from `function` to `frame` is a stack of its own; 'f': the thread `frame` was running here;
			* 'c': what is on the stack is that of `frame` now, and was that of `function`; 'b': it will be, and goes on */
};

static struct line lines[1 << 17];
static unsigned n_lines;
static __thread int own_tid;

void __cyg_profile_func_enter(void *function, void *site) QUIET;
void __cyg_profile_func_exit(void *function, void *site) QUIET;

/* Of the function that is instrumented: what __builtin_frame_address(1) is in the hooks. */
static QUIET void put(void *function, void *frame, char what)
{
	const unsigned at = __atomic_fetch_add(&n_lines, 1, __ATOMIC_RELAXED);

	if (!own_tid)
		own_tid = (int)syscall(SYS_gettid);
	if (at < sizeof(lines) / sizeof(*lines))
		lines[at] = (struct line){(uintptr_t)function, (uintptr_t)frame, own_tid, what};
}

QUIET void __cyg_profile_func_enter(void *function, void *site)
{
	(void)site;
	put(function, __builtin_frame_address(1), 'e');
}

QUIET void __cyg_profile_func_exit(void *function, void *site)
{
	(void)site;
	put(function, __builtin_frame_address(1), 'x');
}

void calls_stack(void *low, size_t size) QUIET;
QUIET void calls_stack(void *low, size_t size)
{
	put(low, (char *)low + size, 'a');
}

/* In a child of vfork, and in its parent again: they share all this, and are two threads. */
void calls_other_thread(void) QUIET;
QUIET void calls_other_thread(void)
{
	const int before = own_tid;

	own_tid = 0;
	put(NULL, (void *)(uintptr_t)before, 'f');
}

/* Stacks that are copied out and in at the same addresses: from now on it is the other one's, or a new one's that begins on top of it. */
void calls_copied(int from, int to, int begins) QUIET;
QUIET void calls_copied(int from, int to, int begins)
{
	put((void *)(uintptr_t)from, (void *)(uintptr_t)to, begins ? 'b' : 'c');
}

static __attribute__((destructor)) QUIET void dump(void)
{
	const char *path = getenv("CALLS_LOG");
	const int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;

	if (fd < 0)
		return;
	if (write(fd, lines, n_lines * sizeof(*lines)) < 0)
		abort();
	(void)close(fd);
}
