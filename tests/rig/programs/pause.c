// SPDX-License-Identifier: Apache-2.0
/*
 * What a breakpoint does to Intel PT as a member of its group with aux_pause (kernel 6.13): opens such groups on a child process,
 * lets its threads come to a place, and keeps the module's log of each stage.
 *
 *	pause probe	prints the errno of each group that a kernel may refuse
 *	pause FOLDER	goes through the stages
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CPUS 2
#define THREADS 3 /* the first one, and those that it creates */
#define RETIRED "/sys/kernel/debug/softpt/retired"
/* Of the word after aux_sample_size, which older headers call reserved: see set_aux_action(). */
#define AUX_PAUSE 2u
#define AUX_RESUME 4u
#define PT_CONFIG (1u | 1u << 10 | 1u << 13) /* pt, tsc, branch */
#define NOINLINE __attribute__((noinline))

static volatile unsigned int sink;

NOINLINE static void first_step(void)
{
	sink += 1;
}

NOINLINE static void the_place(void)
{
	sink += 4;
}

NOINLINE static void goes_on(void)
{
	sink += 5;
}

NOINLINE static void work(void)
{
	first_step();
	the_place();
	goes_on();
}

/* ---- the child, whose threads do what they are told to */

static int commands[THREADS][2], replies[2];
static pid_t *tids; /* shared */

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void *obey(void *arg)
{
	const size_t self = (size_t)arg;
	const cpu_set_t one = {.__bits = {1}};
	pthread_t thread;
	char c;

	/* Paused is a thread on a CPU: on another one it is traced. */
	if (sched_setaffinity(0, sizeof(one), &one) < 0)
		fail("sched_setaffinity");
	tids[self] = (pid_t)syscall(SYS_gettid);
	if (self && write(replies[1], "c", 1) != 1)
		fail("write");
	while (read(commands[self][0], &c, 1) == 1) {
		if (c == 'w')
			work();
		else if (c == 's')
			for (int i = 0; i < 20000; i++)
				sink++;
		else if (pthread_create(&thread, NULL, obey, (void *)(size_t)(c - '0')) != 0)
			fail("pthread_create");
		else
			continue; /* it answers */
		if (write(replies[1], "d", 1) != 1)
			fail("write");
	}
	return NULL;
}

static void tell(size_t thread, char what)
{
	char c;

	if (write(commands[thread][1], &what, 1) != 1 || read(replies[0], &c, 1) != 1)
		fail("the child");
}

static pid_t begin_child(void)
{
	pid_t pid;

	tids = mmap(NULL, THREADS * sizeof(*tids), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (tids == MAP_FAILED || pipe(replies) < 0)
		fail("pipe");
	for (int i = 0; i < THREADS; i++)
		if (pipe(commands[i]) < 0)
			fail("pipe");
	pid = fork();
	if (pid < 0)
		fail("fork");
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		obey(0);
		_exit(0);
	}
	tids[0] = pid;
	return pid;
}

/* ---- the groups */

static int event_open(struct perf_event_attr *attr, pid_t pid, int cpu, int group)
{
	attr->size = sizeof(*attr);
	attr->exclude_kernel = attr->exclude_hv = 1;
	return (int)syscall(SYS_perf_event_open, attr, pid, cpu, group, PERF_FLAG_FD_CLOEXEC);
}

static void set_aux_action(struct perf_event_attr *attr, uint32_t action)
{
	memcpy((char *)attr + offsetof(struct perf_event_attr, aux_sample_size) + sizeof(attr->aux_sample_size), &action, sizeof(action));
}

static uint32_t pt_type(void)
{
	FILE *f = fopen("/sys/bus/event_source/devices/intel_pt/type", "r");
	unsigned int type;

	if (!f || fscanf(f, "%u", &type) != 1)
		fail("intel_pt");
	(void)fclose(f);
	return type;
}

static int open_trace(pid_t pid, int cpu)
{
	struct perf_event_attr attr = {.type = pt_type(), .config = PT_CONFIG, .disabled = 1, .inherit = 1, .inherit_thread = 1};
	struct perf_event_mmap_page *ring;
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int fd = event_open(&attr, pid, cpu, -1);

	if (fd < 0)
		fail("the trace");
	ring = mmap(NULL, page * 9, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (ring == MAP_FAILED)
		fail("the ring");
	ring->aux_offset = page * 9;
	ring->aux_size = page * 64;
	if (mmap(NULL, page * 64, PROT_READ, MAP_SHARED, fd, (off_t)(page * 9)) == MAP_FAILED)
		fail("the AUX area");
	return fd;
}

static int open_breakpoint(pid_t pid, int cpu, int group, int inherit)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_BREAKPOINT,
		.bp_type = HW_BREAKPOINT_X,
		.bp_addr = (uintptr_t)the_place,
		.bp_len = sizeof(long),
		.sample_period = 1,
		.inherit = !!inherit,
		.inherit_thread = !!inherit,
	};

	set_aux_action(&attr, AUX_PAUSE);
	return event_open(&attr, pid, cpu, group);
}

/* Disabled; while it is enabled a thread that runs for a moment is traced again. */
static int open_resume(pid_t pid, int cpu, int group)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_TASK_CLOCK,
		/* Without READ, threads that have inherited the same exchange their events, and with these who is paused. */
		.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_READ,
		.sample_period = 100000,
		.disabled = 1,
		.inherit = 1,
		.inherit_thread = 1,
	};

	set_aux_action(&attr, AUX_RESUME);
	return event_open(&attr, pid, cpu, group);
}

static void all(const int fds[CPUS], unsigned long request)
{
	for (int cpu = 0; cpu < CPUS; cpu++)
		if (ioctl(fds[cpu], request, 0) < 0)
			fail("ioctl");
}

/* ---- stages */

static void keep_log(const char *folder, const char *stage)
{
	static char buf[1 << 16];
	char path[256];
	ssize_t n;
	int in = open(RETIRED, O_RDWR), out;

	(void)snprintf(path, sizeof(path), "%s/%s", folder, stage);
	out = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0644);
	if (in < 0 || out < 0)
		fail("the log");
	while ((n = read(in, buf, sizeof(buf))) > 0)
		if (write(out, buf, (size_t)n) != n)
			fail(path);
	if (write(in, "\n", 1) != 1)
		fail(RETIRED);
	(void)close(in);
	(void)close(out);
}

/* Threads that have inherited the same events exchange them as they take turns: of two, the one that has those that were opened. */
static size_t holder(int trace)
{
	for (size_t i = 0; i < 2; i++) {
		const int fd = open_resume(tids[i], 0, trace);

		if (fd < 0)
			continue;
		(void)close(fd);
		return i;
	}
	fail("a member");
	return 0;
}

static void go_through(const char *folder)
{
	const pid_t pid = begin_child();
	int trace[CPUS], pause[CPUS], resume[CPUS];
	size_t first;

	for (int cpu = 0; cpu < CPUS; cpu++)
		trace[cpu] = open_trace(pid, cpu);
	all(trace, PERF_EVENT_IOC_ENABLE);
	tell(0, '1'); /* inherits the trace without its breakpoint */
	first = holder(trace[0]);
	for (int cpu = 0; cpu < CPUS; cpu++) {
		pause[cpu] = open_breakpoint(tids[first], cpu, trace[cpu], 1);
		resume[cpu] = open_resume(tids[first], cpu, trace[cpu]);
		if (pause[cpu] < 0 || resume[cpu] < 0)
			fail("a member");
	}
	tell(first, '2'); /* inherits both */
	keep_log(folder, "begin");
	for (size_t i = 0; i < THREADS; i++)
		tell(i, 'w');
	keep_log(folder, "hit");
	all(trace, PERF_EVENT_IOC_DISABLE);
	all(trace, PERF_EVENT_IOC_ENABLE);
	tell(first, 's');
	keep_log(folder, "enabled");
	all(resume, PERF_EVENT_IOC_ENABLE);
	for (int i = 0; i < 20; i++)
		tell(first, 's');
	all(resume, PERF_EVENT_IOC_DISABLE);
	keep_log(folder, "resumed");
	tell(first, 'w');
	keep_log(folder, "again");
	printf("{\"place\": %lu, \"on\": %lu, \"tids\": [%d, %d, %d]}\n", (unsigned long)(uintptr_t)the_place,
	       (unsigned long)(uintptr_t)goes_on, tids[first], tids[1 - first], tids[2]);
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
}

static int errno_of(int fd)
{
	const int r = fd < 0 ? errno : 0;

	if (fd >= 0)
		(void)close(fd);
	return r;
}

static void probe(void)
{
	const pid_t pid = begin_child();
	const int trace = open_trace(pid, 0);
	const int alone = errno_of(open_breakpoint(pid, 0, -1, 1)), other = errno_of(open_breakpoint(pid, 0, trace, 0));

	printf("{\"alone\": %d, \"not_inherited\": %d, \"in_group\": %d}\n", alone, other, errno_of(open_breakpoint(pid, 0, trace, 1)));
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	if (strcmp(argv[1], "probe") == 0)
		probe();
	else
		go_through(argv[1]);
	return 0;
}
