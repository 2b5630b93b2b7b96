// SPDX-License-Identifier: Apache-2.0
/*
 * The log of a program that is compiled with -finstrument-functions: each entry and exit of its functions, with the address
 * of the frame, which tells who is inside of whom even where exits are not called (longjmp). Kept in memory, written to
 * $CALLS_LOG when the program ends: "tid e|x function frame" a line.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define QUIET __attribute__((no_instrument_function))

struct line {
	uintptr_t function, frame;
	int tid;
	char what;
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

static __attribute__((destructor)) QUIET void dump(void)
{
	const char *path = getenv("CALLS_LOG");
	FILE *f = path ? fopen(path, "w") : NULL;
	const unsigned n = n_lines;

	if (!f)
		return;
	for (unsigned i = 0; i < n; i++)
		(void)fprintf(f, "%d %c %lx %lx\n", lines[i].tid, lines[i].what, lines[i].function, lines[i].frame);
	(void)fclose(f);
}
