// SPDX-License-Identifier: Apache-2.0
/*
 * What makes it hard to say who executed what, and which code there was. Each prints a line when it has begun, waits for a byte on its
 * standard input, and does it; "made" when it is done and only sleeps.
 *
 *	hostile execs			executes itself again and again, for ever
 *	hostile thread-exec		a thread that is not the first one executes the program
 *	hostile churn N			N threads that make threads that end, for ever
 *	hostile migrate N		goes N times to the other CPU
 *	hostile pair			a thread on CPU 0 that writes much trace, one on CPU 1 that writes little
 *	hostile libs A B		loads and unloads two libraries, which get the same address, and maps one over the other
 *	hostile spawn			vfork() and posix_spawn()
 *	hostile jit			code that exists in no file, of which the same address has another one each time
 *	hostile coroutines		stacks that are switched
 *	hostile builds N		100 threads that stay; at a second byte N processes that execute programs one after the other, for ever
 *	hostile as UID PROGRAM [ARG]...
 *	hostile without-rawio PROGRAM [ARG]...	without the right to read /proc/kcore
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

extern char **environ;
static volatile unsigned int sink;

NOINLINE static void leaf(unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		sink += i;
}

NOINLINE static void outer(unsigned int n)
{
	leaf(n);
	leaf(n + 1);
	leaf(n + 2);
}

static void nap(long ms)
{
	const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

	(void)nanosleep(&t, NULL);
}

static void go_to(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	(void)sched_setaffinity(0, sizeof(set), &set);
}

static void rest(void)
{
	(void)puts("made");
	for (;;)
		nap(1000000);
}

static pthread_t make(void *(*run)(void *), void *arg)
{
	pthread_attr_t attr;
	pthread_t thread;

	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setstacksize(&attr, 65536);
	while (pthread_create(&thread, &attr, run, arg) != 0)
		nap(1);
	return thread;
}

/* ---- execs */

static void execs(void)
{
	outer(10);
	nap(5);
	outer(11);
	(void)execl("/proc/self/exe", "hostile", "execs-again", NULL);
}

NOINLINE static void before_exec(void)
{
	outer(20);
}

NOINLINE static void after_exec(void)
{
	outer(21);
}

static void *exec_here(void *arg)
{
	before_exec();
	(void)execl("/proc/self/exe", "hostile", "after-exec", NULL);
	return arg;
}

/* ---- threads */

NOINLINE static void *short_life(void *arg)
{
	outer(5);
	return arg;
}

static void *churn(void *arg)
{
	for (;;) {
		(void)pthread_join(make(short_life, arg), NULL);
		outer(3);
	}
	return arg;
}

static void migrate(int n)
{
	for (int i = 0; i < n; i++) {
		go_to(i % 2);
		outer((unsigned int)i % 7);
	}
}

static void *much(void *arg)
{
	go_to(0);
	for (;;) {
		outer(40);
		nap(2);
	}
	return arg;
}

static void *little(void *arg)
{
	go_to(1);
	for (;;) {
		outer(2);
		nap(100);
	}
	return arg;
}

/* ---- code that comes and goes */

typedef unsigned int (*function)(unsigned int);

static void load(const char *path)
{
	void *lib = dlopen(path, RTLD_NOW);
	function f = lib ? (function)(uintptr_t)dlsym(lib, "work") : NULL;

	if (!f)
		_exit(3);
	sink += f(5);
	(void)dlclose(lib);
}

/* The same place has the code of one file, then of the other. */
static void map_over(char *const paths[2])
{
	char *at = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t offsets[2];

	for (int i = 0; i < 2; i++) {
		void *lib = dlopen(paths[i], RTLD_NOW);
		void *f = lib ? dlsym(lib, "work") : NULL;
		Dl_info info;

		if (!f || dladdr(f, &info) == 0)
			_exit(4);
		offsets[i] = (uint64_t)f - (uint64_t)info.dli_fbase;
		(void)dlclose(lib);
	}
	for (int i = 0; i < 20; i++) {
		const int fd = open(paths[i % 2], O_RDONLY | O_CLOEXEC);
		/* offsets of code are those of the file: see how they are linked */
		char *p = mmap(at, 16384, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd, 0);

		if (p == MAP_FAILED)
			_exit(5);
		(void)close(fd);
		sink += ((function)(uintptr_t)(p + offsets[i % 2]))(3);
	}
}

/* mov eax, edi; N times inc eax, with a jump over the last; ret */
static void write_code(uint8_t *at, unsigned int n)
{
	*at++ = 0x89;
	*at++ = 0xf8;
	for (unsigned int i = 0; i < n; i++) {
		*at++ = 0xff;
		*at++ = 0xc0;
		*at++ = 0x85; /* test eax, eax */
		*at++ = 0xc0;
		*at++ = 0x75; /* jnz over a nop */
		*at++ = 1;
		*at++ = 0x90;
	}
	*at = 0xc3;
}

static void jit(void)
{
	uint8_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		_exit(5);
	for (unsigned int i = 0; i < 30; i++) {
		write_code(page, i % 5);
		sink += ((function)(uintptr_t)page)(i);
		outer(i % 4);
	}
}

/* ---- children */

static void spawn(void)
{
	char *argv[] = {"hostile", "child", NULL};
	pid_t pid = vfork();

	if (pid == 0) {
		leaf(7);
		(void)execv("/proc/self/exe", argv);
		_exit(1);
	}
	outer(4);
	(void)waitpid(pid, NULL, 0);
	if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ) == 0)
		(void)waitpid(pid, NULL, 0);
	outer(5);
}

static void *stay(void *arg)
{
	for (;;)
		nap(1000000);
	return arg;
}

static void builds(int n)
{
	char *argv[] = {"hostile", "child", NULL};
	pid_t pid;
	char byte;

	for (int i = 0; i < 100; i++)
		(void)make(stay, NULL);
	(void)puts("made");
	while (read(0, &byte, 1) < 0)
		;
	for (int i = 0; i < n; i++)
		if (fork() == 0)
			for (;;)
				if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ) == 0)
					(void)waitpid(pid, NULL, 0);
	for (;;)
		nap(1000000);
}

/* ---- stacks */

static ucontext_t loop_context, task_contexts[2];

static void task(void)
{
	for (unsigned int i = 0;; i++) {
		outer(i % 3);
		(void)swapcontext(&task_contexts[0], &loop_context);
	}
}

static void task_deep(unsigned int depth)
{
	if (depth) {
		task_deep(depth - 1);
		sink++;
	}
	for (unsigned int i = 0; !depth || i < 1; i++) {
		leaf(i % 4);
		(void)swapcontext(&task_contexts[1], &loop_context);
		if (i == 5)
			return;
	}
}

static void second_task(void)
{
	task_deep(9);
}

static void coroutines(void)
{
	for (int i = 0; i < 2; i++) {
		(void)getcontext(&task_contexts[i]);
		task_contexts[i].uc_stack.ss_sp = malloc(65536);
		task_contexts[i].uc_stack.ss_size = 65536;
		task_contexts[i].uc_link = &loop_context;
		makecontext(&task_contexts[i], i ? second_task : task, 0);
	}
	for (unsigned int i = 0; i < 28; i++)
		(void)swapcontext(&loop_context, &task_contexts[i % 2]);
}

static int as(int argc, char **argv)
{
	const unsigned int uid = argc > 3 ? (unsigned int)atoi(argv[2]) : 0;

	if (!uid || setgroups(0, NULL) < 0 || setgid(uid) < 0 || setuid(uid) < 0)
		return 2;
	(void)execvp(argv[3], argv + 3);
	return 127;
}

static int without_rawio(char **argv)
{
	if (!argv[2] || prctl(PR_CAPBSET_DROP, CAP_SYS_RAWIO, 0, 0, 0) < 0)
		return 2;
	(void)execvp(argv[2], argv + 2);
	return 127;
}

static void many(const char *what, int n)
{
	if (strcmp(what, "churn") == 0)
		for (int i = 0; i < n; i++)
			(void)make(churn, NULL);
	if (strcmp(what, "pair") == 0) {
		(void)make(much, NULL);
		(void)make(little, NULL);
	}
	if (strcmp(what, "thread-exec") == 0)
		(void)make(exec_here, NULL);
	else
		rest();
	for (;;)
		nap(1000000);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	const int n = argc > 2 ? atoi(argv[2]) : 0;
	char byte;

	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	if (strcmp(what, "as") == 0)
		return as(argc, argv);
	if (strcmp(what, "without-rawio") == 0)
		return without_rawio(argv);
	if (strcmp(what, "execs-again") == 0)
		execs();
	if (strcmp(what, "child") == 0) {
		outer(8);
		return 0;
	}
	if (strcmp(what, "after-exec") == 0) {
		after_exec();
		rest();
	}
	(void)puts("begun");
	while (read(0, &byte, 1) < 0)
		;
	if (strcmp(what, "execs") == 0)
		execs();
	if (strcmp(what, "migrate") == 0)
		migrate(n);
	if (strcmp(what, "libs") == 0 && argc > 3) {
		for (int i = 0; i < 20; i++)
			load(argv[2 + i % 2]);
		map_over(argv + 2);
	}
	if (strcmp(what, "spawn") == 0)
		spawn();
	if (strcmp(what, "builds") == 0)
		builds(n);
	if (strcmp(what, "jit") == 0)
		jit();
	if (strcmp(what, "coroutines") == 0)
		coroutines();
	many(what, n);
	return 0;
}
