// SPDX-License-Identifier: Apache-2.0
/*
 * A program whose calls can be counted, for the tests of stepped targets. A line on stdin has it do one thing and
 * answer: "work N" calls scene_leaf() N times in scene_work(), within a region "work" if it has registered (first
 * argument "events"); "thread N" does so on a thread of its own, "fork N" in a child; "jit N" calls a function that it
 * makes, named scene_jit in /tmp/perf-PID.map; "exit" ends it. It prints "ready" first and "done N" after each.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tracerd.h>

unsigned int scene_leaf(unsigned int x);
unsigned int scene_work(unsigned int n);

__attribute__((noinline)) unsigned int scene_leaf(unsigned int x)
{
	__asm__ volatile("" : "+r"(x));
	return x + 1;
}

__attribute__((noinline)) unsigned int scene_work(unsigned int n)
{
	unsigned int x = 0;

	for (unsigned int i = 0; i < n; i++)
		x = scene_leaf(x);
	return x;
}

static void *thread_main(void *arg)
{
	*(unsigned int *)arg = scene_work(*(unsigned int *)arg);
	return NULL;
}

static unsigned int on_thread(unsigned int n)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, thread_main, &n) != 0 || pthread_join(thread, NULL) != 0)
		exit(3);
	return n;
}

static unsigned int in_child(unsigned int n)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(scene_work(n) == n ? 0 : 1);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
		exit(4);
	return n;
}

static unsigned int generated(unsigned int n)
{
	static const unsigned char add_one[] = {0x8d, 0x47, 0x01, 0xc3}; /* lea 1(%rdi), %eax; ret */
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned int (*function)(unsigned int) = (unsigned int (*)(unsigned int))p;
	unsigned int x = 0;
	char path[64];
	FILE *map;

	if (p == MAP_FAILED)
		exit(6);
	memcpy(p, add_one, sizeof(add_one));
	(void)snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
	map = fopen(path, "we");
	if (!map || mprotect(p, 4096, PROT_READ | PROT_EXEC) < 0)
		exit(7);
	(void)fprintf(map, "%lx %zx scene_jit\n", (unsigned long)p, sizeof(add_one));
	if (fclose(map) != 0)
		exit(8);
	for (unsigned int i = 0; i < n; i++)
		x = function(x);
	return x;
}

static unsigned int in_region(unsigned int n)
{
	tracerd_region region = tracerd_region_begin(TRACERD_NAME("work"));

	n = scene_work(n);
	tracerd_region_end(region);
	return n;
}

/* One character at a time: nothing is to be read ahead of a child. */
static int read_line(char *line, size_t size)
{
	size_t n = 0;

	while (n + 1 < size && read(STDIN_FILENO, line + n, 1) == 1) {
		if (line[n] == '\n') {
			line[n] = '\0';
			return 1;
		}
		n++;
	}
	return 0;
}

static void say(const char *word, unsigned int n)
{
	char text[32];
	int len = snprintf(text, sizeof(text), "%s %u\n", word, n);

	if (write(STDOUT_FILENO, text, (size_t)len) != len)
		exit(5);
}

int main(int argc, char **argv)
{
	char line[64];

	if (argc > 1 && strcmp(argv[1], "events") == 0 && tracerd_start(NULL) < 0)
		return 2;
	say("ready", 0);
	while (read_line(line, sizeof(line))) {
		const unsigned int n = (unsigned int)atoi(strchr(line, ' ') ? strchr(line, ' ') : "0");

		if (strcmp(line, "exit") == 0)
			break;
		say("done", strncmp(line, "thread", 6) == 0  ? on_thread(n)
			    : strncmp(line, "fork", 4) == 0 ? in_child(n)
			    : strncmp(line, "jit", 3) == 0  ? generated(n)
							    : in_region(n));
	}
	return 0;
}
