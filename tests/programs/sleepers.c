// SPDX-License-Identifier: Apache-2.0
/*
 * Threads that sleep, each in a function of its own, for tests/system/capture-blocked.py: "reader" in read() of a pipe, "poller" in
 * poll(), "getter" at a futex, "napper" in nanosleep(), "turner" in short sleeps. Says "ready"; at each line "wake" the reader comes
 * back, and reads again elsewhere. "hang": the stack of one more, "hangs", is memory that nobody gets to read; says "hangs", or why not.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define OWN __attribute__((noinline, noclone))
#define HANG_PAGES 64u

static int wake_fds[2], never_fds[2];
static sem_t never;
static volatile int sink;

static OWN void first_read(void)
{
	char c;

	sink = (int)read(wake_fds[0], &c, 1);
	sink++;
}

/* Not the same code, or the compiler makes one function of both. */
static OWN void later_read(void)
{
	char c[2];

	sink = (int)read(wake_fds[0], c, sizeof(c));
	sink--;
}

static void *reader(void *arg)
{
	first_read();
	for (;;)
		later_read();
	return arg;
}

static OWN void wait_poll(void)
{
	struct pollfd fd = {.fd = never_fds[0], .events = POLLIN};

	sink = poll(&fd, 1, -1);
	sink++;
}

static void *poller(void *arg)
{
	wait_poll();
	return arg;
}

static OWN void wait_get(void)
{
	sink = sem_wait(&never);
	sink++;
}

static void *getter(void *arg)
{
	wait_get();
	return arg;
}

static OWN void wait_nap(time_t seconds, long ns)
{
	const struct timespec ts = {.tv_sec = seconds, .tv_nsec = ns};

	sink = nanosleep(&ts, NULL);
	sink++;
}

static void *napper(void *arg)
{
	wait_nap(100000, 0);
	return arg;
}

static void *turner(void *arg)
{
	for (;;)
		wait_nap(0, 5000000);
	return arg;
}

static void start(const char *name, void *(*fn)(void *arg), const pthread_attr_t *attr)
{
	pthread_t thread;

	if (pthread_create(&thread, attr, fn, NULL) != 0 || pthread_setname_np(thread, name) != 0)
		_exit(1);
}

/* Deep enough that its frames are on pages of their own. */
static OWN void deep(int n)
{
	volatile char room[2048];

	memset((void *)room, n, sizeof(room));
	if (n > 0)
		deep(n - 1);
	else
		wait_nap(100000, 0);
	sink = room[n];
}

static void *hangs(void *arg)
{
	deep(20);
	return arg;
}

/* Takes the pages of its frames away: who reads them waits for somebody who would fill them. */
static const char *hang(void)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = HANG_PAGES * page;
	const int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register range = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	const struct timespec a_while = {.tv_nsec = 200000000};
	pthread_attr_t attr;
	uint8_t *stack;

	if (fd < 0)
		return strerror(errno);
	stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack == MAP_FAILED || pthread_attr_init(&attr) != 0 || pthread_attr_setstack(&attr, stack, size) != 0)
		return "no stack";
	start("hangs", hangs, &attr);
	(void)nanosleep(&a_while, NULL);
	/* 20 frames of 2 KiB are 10 pages, and it never returns; what the library has at the end stays */
	range.range.start = (uintptr_t)stack + size - 20 * page;
	range.range.len = 16 * page;
	if (ioctl(fd, UFFDIO_API, &api) < 0 || ioctl(fd, UFFDIO_REGISTER, &range) < 0 ||
	    madvise((void *)(uintptr_t)range.range.start, range.range.len, MADV_DONTNEED) < 0)
		return strerror(errno);
	return "hangs";
}

int main(void)
{
	char line[32];

	if (pipe(wake_fds) < 0 || pipe(never_fds) < 0 || sem_init(&never, 0, 0) < 0)
		return 1;
	start("reader", reader, NULL);
	start("poller", poller, NULL);
	start("getter", getter, NULL);
	start("napper", napper, NULL);
	start("turner", turner, NULL);
	printf("ready\n");
	(void)fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (strcmp(line, "wake\n") == 0)
			printf("%s\n", write(wake_fds[1], "x", 1) == 1 ? "woken" : "failed");
		else if (strcmp(line, "hang\n") == 0)
			printf("%s\n", hang());
		(void)fflush(stdout);
	}
	return 0;
}
