// SPDX-License-Identifier: Apache-2.0
/* Children of vfork, which run on their parent's stack within the call that has made them, and end in it or deeper, by _exit or exec. */
#define _GNU_SOURCE
#include <sys/wait.h>
#include <unistd.h>

void calls_other_thread(void);

static volatile int sink;

static __attribute__((noinline)) void leaf(int v)
{
	sink += v;
}

static void deep(int n)
{
	leaf(n);
	if (n == 0)
		_exit(0);
	deep(n - 1);
}

static void child(int n)
{
	leaf(20);
	if (n & 1) {
		leaf(21);
		execl("/proc/self/exe", "vforks", "again", (char *)0);
	}
	deep(n);
}

static void spawn(int n)
{
	pid_t pid;

	leaf(1);
	pid = vfork();
	if (pid == 0) {
		calls_other_thread();
		leaf(2);
		child(n);
		_exit(1);
	}
	calls_other_thread();
	leaf(3);
	waitpid(pid, NULL, 0);
	leaf(4);
}

static void walk(int n, int shape)
{
	if (n > 0)
		walk(n - 1, shape);
	else
		spawn(shape);
	leaf(5);
}

__attribute__((no_instrument_function)) int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1)
		_exit(0);
	for (int i = 0; i < 6; i++)
		walk(i % 3, i);
	return 0;
}
