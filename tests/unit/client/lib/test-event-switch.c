// SPDX-License-Identifier: Apache-2.0
// The switch in a program that the library is linked to as to any: it lies alone on its pages
// wherever the linker
// has put it (a program may have a copy of its own), and is off in every forked child, with nothing
// else lost.
// Built twice: with and without position independent code.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tracerd.h>

/* What may come to lie beside it. */
static char before[100000], after[100000];
int neighbours[3];

static pid_t bare_clone(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

static int neighbours_are_there(void)
{
	for (size_t i = 0; i < sizeof(before); i++) {
		if (before[i] != 'b' || after[i] != 'a')
			return 0;
	}
	return neighbours[0] == 1 && neighbours[2] == 3;
}

int main(void)
{
	static pid_t (*const ways[])(void) = {fork, _Fork, bare_clone};
	tracerd_options options = {.size = sizeof(options),
				   .socket = "/nonexistent/control.sock",
				   .flags = TRACERD_NO_THREAD};
	long page = sysconf(_SC_PAGESIZE);
	int r = tracerd_start(&options);

	if (r < 0 || tracerd_enabled()) {
		printf("not ok: start gave %d\n", r);
		return 1;
	}
	if ((size_t)&tracerd_state % (size_t)page != 0 || sizeof(tracerd_state) < (size_t)page) {
		printf("not ok: the switch is not alone on its page\n");
		return 1;
	}
	memset(before, 'b', sizeof(before));
	memset(after, 'a', sizeof(after));
	neighbours[0] = 1;
	neighbours[2] = 3;
	/* as a daemon's answer would: there is no memory, so that nothing is written */
	tracerd_state.on = 1;
	for (int i = 0; i < 3; i++) {
		int status = -1;
		pid_t pid = ways[i]();

		if (pid == 0)
			_exit(tracerd_enabled() ? 1 : !neighbours_are_there() ? 2 : 0);
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
			printf("not ok: child %d ended with %#x\n", i, status);
			return 1;
		}
		if (!tracerd_enabled() || !neighbours_are_there()) {
			printf("not ok: child %d has changed its parent\n", i);
			return 1;
		}
	}
	tracerd_instant(tracerd_intern("nowhere"));
	tracerd_state.on = 0;
	printf("ok: the switch at %p\n", (void *)&tracerd_state);
	return 0;
}
