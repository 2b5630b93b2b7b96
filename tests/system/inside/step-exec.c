// SPDX-License-Identifier: Apache-2.0
/*
 * For step-perf.sh: a library that is loaded while another thread waits for it, vfork, and exec by a thread
 * that is not the first.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static double (*volatile function)(double);

static void *use(void *arg)
{
	double sum = 0;

	(void)arg;
	while (!function)
		;
	for (int i = 0; i < 5; i++)
		sum += function(i * 0.1);
	(void)printf("%.6f\n", sum);
	return NULL;
}

static void *spin(void *arg)
{
	(void)arg;
	/* a branch in the loop: without one no decoder can tell how often it ran */
	for (;;)
		__asm__ volatile("pause; test %%eax,%%eax; jz 1f; 1:" ::: "cc");
	return NULL;
}

static void *become(void *arg)
{
	(void)arg;
	(void)execl("/bin/echo", "echo", "by a thread", NULL);
	return NULL;
}

int main(void)
{
	char *argv[] = {"true", NULL};
	pthread_t t;
	void *library;
	int status;
	pid_t pid;

	if (pthread_create(&t, NULL, use, NULL) != 0)
		return 1;
	library = dlopen("libm.so.6", RTLD_NOW);
	if (!library)
		return 1;
	function = (double (*)(double))dlsym(library, "sin");
	pthread_join(t, NULL);
	if (posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ) != 0 || waitpid(pid, &status, 0) != pid ||
		status != 0)
		return 1;
	(void)fflush(stdout);
	if (pthread_create(&t, NULL, spin, NULL) != 0 || pthread_create(&t, NULL, become, NULL) != 0)
		return 1;
	(void)pause();
	return 1;
}
