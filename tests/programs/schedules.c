// SPDX-License-Identifier: Apache-2.0
/*
 * Programs whose running and waiting is known: `schedules SCENE`, for tests/system/snapshot-truth.py. Says "ready", plays
 * the scene at a line, prints what its threads did by their own clock (ns of MONOTONIC), "done", and ends with its
 * input. `schedules` alone prints the names of the scenes.
 *
 *	R TID BEGIN END FUNCTION	looked at the clock all the time, without a jump: it was running
 *	W TID BEGIN END FUNCTION	a call that may wait, from before it to after it
 *	B TID BEGIN END FUNCTION	a call that has waited, by the kernel's own count
 *	C TID BEGIN END CPU-NS		the thread's own CPU time in between
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define JUMP_NS 20000u /* between two looks at the clock: it may not have been running */
#define MS 1000000ull
#define MAX_CPUS 8

struct entry {
	char kind;
	uint64_t begin, end;
	const char *where;
};

/* Of a thread, by itself. */
struct log {
	struct log *next;
	pid_t tid;
	uint64_t born, died, cpu;
	size_t n, max;
	struct entry *v;
};

static _Thread_local struct log *my_log;
static struct log *logs;
static pthread_mutex_t logs_lock = PTHREAD_MUTEX_INITIALIZER;
static int cpus[MAX_CPUS];
static int n_cpus;
static volatile uint64_t sink;

static uint64_t now(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t cpu_time(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void must(bool ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static struct log *log_mine(void)
{
	if (my_log)
		return my_log;
	my_log = calloc(1, sizeof(*my_log));
	must(my_log != NULL, "calloc");
	my_log->tid = gettid();
	my_log->born = now();
	my_log->cpu = cpu_time();
	(void)pthread_mutex_lock(&logs_lock);
	my_log->next = logs;
	logs = my_log;
	(void)pthread_mutex_unlock(&logs_lock);
	return my_log;
}

static void log_end(void)
{
	my_log->cpu = cpu_time() - my_log->cpu;
	my_log->died = now();
}

/* A signal's handler must not note anything now, so it does nothing. */
static __thread volatile sig_atomic_t noting;

static void note(char kind, uint64_t begin, uint64_t end, const char *where)
{
	struct log *l;

	noting = 1;
	l = log_mine();
	if (l->n == l->max) {
		l->max = l->max ? l->max * 2 : 64;
		l->v = realloc(l->v, l->max * sizeof(*l->v));
		must(l->v != NULL, "realloc");
	}
	l->v[l->n++] = (struct entry){kind, begin, end, where};
	noting = 0;
}

/* Runs until then, and notes when it was running for certain. */
static __attribute__((noinline)) void burn_until(const char *where, uint64_t end)
{
	uint64_t begin = now(), last = begin, t;

	while (last < end) {
		t = now();
		if (t - last > JUMP_NS) {
			note('R', begin, last, where);
			begin = now();
			t = begin;
		}
		last = t;
	}
	note('R', begin, last, where);
}

/* How often the thread has left the CPU by itself. */
static long left_itself(void)
{
	struct rusage usage = {0};

	(void)getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

#define RUN_US(us) burn_until(__func__, now() + (us)*1000ull)
#define RUN(ms) RUN_US((ms)*1000ull)
#define CALL_AS(kind, call) \
	do { \
		uint64_t call_begin = now(); \
		call; \
		note(kind, call_begin, now(), __func__); \
	} while (0)
#define MAY_WAIT(call) CALL_AS('W', call)
/* On a virtual machine that stood still a short timer is over before its thread has gone to sleep: then it has not. */
#define WAITS(call) \
	do { \
		long times_left = left_itself(); \
		uint64_t call_begin = now(); \
		call; \
		uint64_t call_end = now(); \
		note(left_itself() > times_left ? 'B' : 'W', call_begin, call_end, __func__); \
	} while (0)
#define SLEEP_US(us) WAITS(sleep_us(us))

static void sleep_us(uint64_t us)
{
	const struct timespec ts = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};

	(void)clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL);
}

static void pin(int n)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpus[n % n_cpus], &set);
	(void)sched_setaffinity(0, sizeof(set), &set);
}

/* ---- threads of a scene */

struct role {
	void (*play)(int n);
	int n;
};

static void *thread_main(void *arg)
{
	struct role role = *(struct role *)arg;

	free(arg);
	(void)log_mine();
	role.play(role.n);
	log_end();
	return NULL;
}

static pthread_t start(void (*play)(int n), int n)
{
	struct role *role = malloc(sizeof(*role));
	pthread_attr_t attr;
	pthread_t t;

	must(role != NULL, "malloc");
	*role = (struct role){play, n};
	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setstacksize(&attr, 256 << 10);
	errno = pthread_create(&t, &attr, thread_main, role);
	must(errno == 0, "pthread_create");
	(void)pthread_attr_destroy(&attr);
	return t;
}

static void play_with(void (*play)(int n), int count)
{
	pthread_t t[1024];

	for (int i = 0; i < count; i++)
		t[i] = start(play, i);
	for (int i = 0; i < count; i++)
		MAY_WAIT((void)pthread_join(t[i], NULL));
}

/* ---- one thread */

static void burn(void)
{
	RUN(1000);
}

static void burn_pinned(void)
{
	pin(0);
	RUN(300);
}

static void burn_migrates(void)
{
	for (int i = 0; i < 40; i++) {
		pin(i);
		RUN(10);
	}
}

static void sleep_short(void)
{
	for (int i = 0; i < 1000; i++)
		SLEEP_US(20);
}

static void sleep_long(void)
{
	for (int i = 0; i < 4; i++)
		SLEEP_US(100000);
}

static void sleep_mixed(void)
{
	for (int i = 0; i < 100; i++) {
		SLEEP_US(i % 10 ? 50 : 10000);
		RUN_US(i % 7 ? 100 : 3000);
	}
}

static void bursts(void)
{
	for (int i = 0; i < 150; i++) {
		RUN(1);
		SLEEP_US(1000);
	}
}

static void bursts_uneven(void)
{
	for (int i = 0; i < 60; i++) {
		pin(i % 10 == 9);
		RUN_US(i % 10 == 9 ? 200 : 4000);
		SLEEP_US(i % 10 == 9 ? 20000 : 300);
	}
}

static __attribute__((noinline)) void deep(int depth)
{
	if (depth > 0) {
		deep(depth - 1);
		sink++;
		return;
	}
	RUN(20);
	SLEEP_US(20000);
}

static void deep_stack(void)
{
	for (int i = 0; i < 5; i++)
		deep(40);
}

static void on_alarm(int sig)
{
	int saved = errno;

	(void)sig;
	RUN_US(300);
	errno = saved;
}

static void signal_handler(void)
{
	const struct itimerval every = {{0, 5000}, {0, 5000}}, never = {{0, 0}, {0, 0}};
	sigset_t alarm, none;

	(void)sigemptyset(&none);
	(void)sigemptyset(&alarm);
	(void)sigaddset(&alarm, SIGALRM);
	(void)sigprocmask(SIG_BLOCK, &alarm, NULL);
	(void)signal(SIGALRM, on_alarm);
	(void)setitimer(ITIMER_REAL, &every, NULL);
	for (int i = 0; i < 40; i++)
		MAY_WAIT((void)sigsuspend(&none));
	(void)setitimer(ITIMER_REAL, &never, NULL);
}

static void on_nothing(int sig)
{
	(void)sig;
}

/* Calls with the numbers of 32-bit programs: 29 is pause there. */
static void old_calls(void)
{
#ifdef __x86_64__
	const struct itimerval every = {{0, 5000}, {0, 5000}}, never = {{0, 0}, {0, 0}};
	long r = 0;

	(void)signal(SIGALRM, on_nothing);
	(void)setitimer(ITIMER_REAL, &every, NULL);
	for (int i = 0; i < 10; i++)
		MAY_WAIT(__asm__ volatile("int $0x80" : "=a"(r) : "0"(29L) : "memory", "r8", "r9", "r10", "r11"));
	(void)setitimer(ITIMER_REAL, &never, NULL);
	sink += (uint64_t)r;
#endif
	SLEEP_US(1000);
}

static void page_faults(void)
{
	const size_t size = 64 << 20;

	for (int i = 0; i < 3; i++) {
		volatile char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		must(p != MAP_FAILED, "mmap");
		for (size_t at = 0; at < size; at += 4096)
			p[at] = 1;
		(void)munmap((void *)p, size);
		SLEEP_US(3000);
	}
}

static void file_sync(void)
{
	char name[] = "/tmp/schedules-XXXXXX";
	int fd = mkstemp(name);

	must(fd >= 0, name);
	(void)unlink(name);
	for (int i = 0; i < 5; i++) {
		MAY_WAIT(must(write(fd, name, sizeof(name)) > 0, "write"));
		MAY_WAIT((void)fsync(fd));
		RUN(2);
	}
	(void)close(fd);
}

static void poll_timeout(void)
{
	int p[2];
	struct pollfd pfd;

	must(pipe(p) == 0, "pipe");
	pfd = (struct pollfd){.fd = p[0], .events = POLLIN};
	for (int i = 0; i < 30; i++) {
		WAITS((void)poll(&pfd, 1, 5));
		RUN(1);
	}
	(void)close(p[0]);
	(void)close(p[1]);
}

static void timer_fd(void)
{
	const struct itimerspec every = {{0, 4000000}, {0, 4000000}};
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	uint64_t n;

	must(fd >= 0 && timerfd_settime(fd, 0, &every, NULL) == 0, "timerfd");
	for (int i = 0; i < 40; i++) {
		MAY_WAIT(must(read(fd, &n, sizeof(n)) == sizeof(n), "read"));
		RUN(1);
	}
	(void)close(fd);
}

static void spawn_child(void)
{
	char *const argv[] = {"sleep", "0.02", NULL}, *const env[] = {NULL};
	pid_t pid;

	for (int i = 0; i < 5; i++) {
		MAY_WAIT(must(posix_spawnp(&pid, "sleep", NULL, NULL, argv, env) == 0, "sleep"));
		MAY_WAIT((void)waitpid(pid, NULL, 0));
		RUN(2);
	}
}

static void fork_storm(void)
{
	pid_t pid[50];

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 50; i++) {
			MAY_WAIT(pid[i] = fork());
			if (pid[i] == 0)
				_exit(0);
			must(pid[i] > 0, "fork");
		}
		for (int i = 0; i < 50; i++)
			MAY_WAIT((void)waitpid(pid[i], NULL, 0));
		RUN(5);
	}
}

/* The child lets it go on. */
static void stopped(void)
{
	pid_t self = getpid(), pid;

	for (int i = 0; i < 4; i++) {
		RUN(5);
		pid = fork();
		if (pid == 0) {
			sleep_us(60000);
			(void)kill(self, SIGCONT);
			_exit(0);
		}
		WAITS((void)raise(SIGSTOP));
		MAY_WAIT((void)waitpid(pid, NULL, 0));
	}
}

static void yields(void)
{
	for (int i = 0; i < 3000; i++)
		MAY_WAIT((void)sched_yield());
}

/* ---- several */

static void burn_here(int n)
{
	pin(0);
	RUN(200);
	(void)n;
}

static void preempted(void)
{
	play_with(burn_here, 3);
}

static void burn_nice(int n)
{
	pin(0);
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), n * 15);
	RUN(200);
}

static void preempted_nice(void)
{
	play_with(burn_nice, 2);
}

static void real_time(int n)
{
	const struct sched_param fifo = {.sched_priority = 1};

	pin(0);
	if (n == 0) {
		RUN(200);
		return;
	}
	(void)sched_setscheduler(0, SCHED_FIFO, &fifo);
	for (int i = 0; i < 40; i++) {
		SLEEP_US(4000);
		RUN(1);
	}
}

static void preempted_fifo(void)
{
	play_with(real_time, 2);
}

static void burn_anywhere(int n)
{
	RUN(100 + (unsigned int)n);
}

static void burn_many(void)
{
	play_with(burn_anywhere, 12);
}

static int pipes[2][2];

static void ping(int n)
{
	char c = 0;

	for (int i = 0; i < 500; i++) {
		if (n == 0) {
			MAY_WAIT(must(write(pipes[0][1], &c, 1) == 1, "write"));
			MAY_WAIT(must(read(pipes[1][0], &c, 1) == 1, "read"));
		} else {
			MAY_WAIT(must(read(pipes[0][0], &c, 1) == 1, "read"));
			RUN_US(100);
			MAY_WAIT(must(write(pipes[1][1], &c, 1) == 1, "write"));
		}
	}
}

static void pipe_ping(void)
{
	must(pipe(pipes[0]) == 0 && pipe(pipes[1]) == 0, "pipe");
	play_with(ping, 2);
}

static void pipe_ping_pinned(void)
{
	pin(0);
	pipe_ping();
}

static void socket_ping(void)
{
	int s[2];

	must(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0, "socketpair");
	pipes[0][1] = pipes[1][0] = s[0];
	pipes[0][0] = pipes[1][1] = s[1];
	play_with(ping, 2);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int turn;

static void convoy_of(int n)
{
	for (int i = 0; i < 10; i++) {
		MAY_WAIT((void)pthread_mutex_lock(&mutex));
		RUN_US(2000);
		(void)pthread_mutex_unlock(&mutex);
		RUN_US(100u * (unsigned int)n);
	}
}

static void mutex_convoy(void)
{
	play_with(convoy_of, 6);
}

static void holds(int n)
{
	for (int i = 0; i < 8; i++) {
		if (n == 0) {
			MAY_WAIT((void)pthread_mutex_lock(&mutex));
			SLEEP_US(20000);
			(void)pthread_mutex_unlock(&mutex);
			SLEEP_US(2000);
		} else {
			SLEEP_US(1000);
			MAY_WAIT((void)pthread_mutex_lock(&mutex));
			(void)pthread_mutex_unlock(&mutex);
		}
	}
}

static void lock_held_asleep(void)
{
	play_with(holds, 3);
}

static void takes_turn(int n)
{
	for (int i = 0; i < 60; i++) {
		MAY_WAIT((void)pthread_mutex_lock(&mutex));
		while (turn % 3 != n)
			MAY_WAIT((void)pthread_cond_wait(&cond, &mutex));
		turn++;
		RUN_US(500);
		(void)pthread_cond_broadcast(&cond);
		(void)pthread_mutex_unlock(&mutex);
	}
}

static void cond_turns(void)
{
	turn = 0;
	play_with(takes_turn, 3);
}

static bool go;

static void waits_for_go(int n)
{
	MAY_WAIT((void)pthread_mutex_lock(&mutex));
	while (!go)
		MAY_WAIT((void)pthread_cond_wait(&cond, &mutex));
	(void)pthread_mutex_unlock(&mutex);
	RUN_US(100);
	(void)n;
}

static void cond_broadcast(void)
{
	pthread_t t[50];

	for (int i = 0; i < 50; i++)
		t[i] = start(waits_for_go, i);
	SLEEP_US(100000);
	(void)pthread_mutex_lock(&mutex);
	go = true;
	(void)pthread_cond_broadcast(&cond);
	(void)pthread_mutex_unlock(&mutex);
	for (int i = 0; i < 50; i++)
		MAY_WAIT((void)pthread_join(t[i], NULL));
}

static pthread_barrier_t barrier;

static void meets(int n)
{
	for (int i = 0; i < 20; i++) {
		RUN_US(500u * (unsigned int)n);
		MAY_WAIT((void)pthread_barrier_wait(&barrier));
	}
}

static void barrier_uneven(void)
{
	(void)pthread_barrier_init(&barrier, NULL, 4);
	play_with(meets, 4);
}

static sem_t sem;

static void takes_sem(int n)
{
	for (int i = 0; i < 30; i++) {
		MAY_WAIT((void)sem_wait(&sem));
		RUN_US(300);
	}
	(void)n;
}

static void semaphore(void)
{
	pthread_t t[2];

	(void)sem_init(&sem, 0, 0);
	for (int i = 0; i < 2; i++)
		t[i] = start(takes_sem, i);
	for (int i = 0; i < 60; i++) {
		SLEEP_US(2000);
		(void)sem_post(&sem);
	}
	for (int i = 0; i < 2; i++)
		MAY_WAIT((void)pthread_join(t[i], NULL));
}

static int epoll, event;

static void serves_events(int n)
{
	struct epoll_event ev;
	uint64_t v;

	for (int i = 0; i < 60; i++) {
		MAY_WAIT(must(epoll_wait(epoll, &ev, 1, -1) == 1, "epoll_wait"));
		MAY_WAIT(must(read(event, &v, sizeof(v)) == sizeof(v), "read"));
		RUN_US(700);
	}
	(void)n;
}

static void epoll_events(void)
{
	struct epoll_event ev = {.events = EPOLLIN};
	uint64_t one = 1;
	pthread_t t;

	event = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	epoll = epoll_create1(EPOLL_CLOEXEC);
	must(event >= 0 && epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, event, &ev) == 0, "epoll");
	t = start(serves_events, 0);
	for (int i = 0; i < 60; i++) {
		SLEEP_US(1500);
		MAY_WAIT(must(write(event, &one, sizeof(one)) == sizeof(one), "write"));
	}
	MAY_WAIT((void)pthread_join(t, NULL));
}

static char lock_name[] = "/tmp/schedules-lock-XXXXXX";

static void locks_file(int n)
{
	int fd = open(lock_name, O_RDWR | O_CLOEXEC);

	for (int i = 0; i < 20; i++) {
		MAY_WAIT((void)flock(fd, LOCK_EX));
		SLEEP_US(1000u + 500u * (unsigned int)n);
		(void)flock(fd, LOCK_UN);
		RUN_US(200);
	}
	(void)close(fd);
}

static void file_lock(void)
{
	int fd = mkstemp(lock_name);

	must(fd >= 0, lock_name);
	play_with(locks_file, 3);
	(void)unlink(lock_name);
	(void)close(fd);
}

static void lives_short(int n)
{
	RUN_US(200);
	if (n % 2)
		SLEEP_US(1000);
}

static void thread_storm(void)
{
	for (int i = 0; i < 10; i++)
		play_with(lives_short, 30);
}

static void wakes_once(int n)
{
	SLEEP_US(100000u + 100u * (unsigned int)n);
	RUN_US(50);
}

static void six_hundred(void)
{
	play_with(wakes_once, 600);
}

static void exits_at_once(int n)
{
	(void)n;
}

static void exits(void)
{
	for (int i = 0; i < 50; i++)
		play_with(exits_at_once, 4);
	RUN(10);
}

static void blocked_throughout(int n)
{
	if (n == 0) {
		char c;

		MAY_WAIT(must(read(pipes[0][0], &c, 1) == 1, "read"));
		return;
	}
	RUN(100);
	SLEEP_US(100000);
	must(write(pipes[0][1], "", 1) == 1, "write");
}

static void one_blocked(void)
{
	must(pipe(pipes[0]) == 0, "pipe");
	play_with(blocked_throughout, 2);
}

static void moves_other(void)
{
	pthread_t t = start(burn_anywhere, 100);

	for (int i = 0; i < 40; i++) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET((size_t)cpus[i % n_cpus], &set);
		(void)pthread_setaffinity_np(t, sizeof(set), &set);
		SLEEP_US(4000);
	}
	MAY_WAIT((void)pthread_join(t, NULL));
}

static void burn_and_sleep(int n)
{
	for (int i = 0; i < 30; i++) {
		pin(i + n);
		RUN_US(1000);
		SLEEP_US(n ? 700 : 3000);
	}
}

static void migrate_and_sleep(void)
{
	play_with(burn_and_sleep, 4);
}

static void futex_wait(int n)
{
	static int word;

	for (int i = 0; i < 40; i++) {
		if (n == 0) {
			SLEEP_US(3000);
			__atomic_add_fetch(&word, 1, __ATOMIC_SEQ_CST);
			(void)syscall(SYS_futex, &word, 1 /* FUTEX_WAKE */, INT_MAX, NULL, NULL, 0);
		} else {
			int seen = __atomic_load_n(&word, __ATOMIC_SEQ_CST);

			MAY_WAIT((void)syscall(SYS_futex, &word, 0 /* FUTEX_WAIT */, seen, &(struct timespec){0, 50000000}, NULL, 0));
			RUN_US(200);
		}
	}
}

static void raw_futex(void)
{
	play_with(futex_wait, 3);
}

/* ---- what is done to threads from outside, and stacks that are not one's own */

static pthread_t victims[4];
static int n_ready;

static __attribute__((noinline)) void sleeps_in_handler(void)
{
	SLEEP_US(1200);
}

static void on_interruption(int sig)
{
	const int saved = errno;

	(void)sig;
	if (!noting)
		sleeps_in_handler();
	errno = saved;
}

static void waits_interrupted(void)
{
	MAY_WAIT((void)pthread_mutex_lock(&mutex));
	(void)pthread_mutex_unlock(&mutex);
}

static void polls_interrupted(void)
{
	struct pollfd pfd = {.fd = pipes[0][0], .events = POLLIN};

	for (int i = 0; i < 40; i++)
		MAY_WAIT((void)poll(&pfd, 1, 7));
}

static void sleeps_interrupted(void)
{
	for (int i = 0; i < 40; i++)
		SLEEP_US(6000);
}

static void burns_interrupted(void)
{
	for (int i = 0; i < 20; i++)
		RUN(4);
}

static void is_interrupted(int n)
{
	void (*const all[])(void) = {waits_interrupted, polls_interrupted, sleeps_interrupted, burns_interrupted};

	all[n]();
	(void)__atomic_add_fetch(&n_ready, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&n_ready, __ATOMIC_SEQ_CST) < 4)
		SLEEP_US(1000);
}

/* Signals while it waits for a lock, in poll(), asleep and on the CPU; their handler sleeps. */
static void interrupted(void)
{
	const struct sigaction act = {.sa_handler = on_interruption, .sa_flags = SA_RESTART};

	must(pipe(pipes[0]) == 0 && sigaction(SIGUSR1, &act, NULL) == 0, "interrupted");
	(void)pthread_mutex_lock(&mutex);
	for (int i = 0; i < 4; i++)
		victims[i] = start(is_interrupted, i);
	for (int i = 0; i < 60; i++) {
		SLEEP_US(3000);
		for (int k = 0; k < 4; k++)
			(void)pthread_kill(victims[k], SIGUSR1);
	}
	(void)pthread_mutex_unlock(&mutex);
	for (int i = 0; i < 4; i++)
		MAY_WAIT((void)pthread_join(victims[i], NULL));
}

static ucontext_t fibers[3], thread_context;

static void fiber_a(void)
{
	for (int i = 0; i < 30; i++) {
		SLEEP_US(1500);
		RUN_US(300);
		(void)swapcontext(&fibers[0], &fibers[1]);
	}
}

static void fiber_b(void)
{
	for (int i = 0; i < 30; i++) {
		SLEEP_US(2500);
		RUN_US(300);
		(void)swapcontext(&fibers[1], &fibers[2]);
	}
}

static void fiber_c(void)
{
	for (int i = 0; i < 30; i++) {
		SLEEP_US(700);
		RUN(6);
		(void)swapcontext(&fibers[2], i == 29 ? &thread_context : &fibers[0]);
	}
}

static __attribute__((noinline)) void fiber_make(ucontext_t *fiber, void (*play)(void))
{
	(void)getcontext(fiber);
	fiber->uc_stack.ss_size = 256 << 10;
	fiber->uc_stack.ss_sp = malloc(fiber->uc_stack.ss_size);
	must(fiber->uc_stack.ss_sp != NULL, "malloc");
	makecontext(fiber, play, 0);
}

static void fibers_in_turn(void)
{
	fiber_make(&fibers[0], fiber_a);
	fiber_make(&fibers[1], fiber_b);
	fiber_make(&fibers[2], fiber_c);
	(void)swapcontext(&thread_context, &fibers[0]);
}

static sigjmp_buf jump_to;
static int n_jumps; /* no variable of the function that is jumped to */

static void jumps_out(int sig)
{
	static const struct itimerval soon = {{0, 0}, {0, 500}};

	(void)sig;
	if (noting) {
		/* it would leave realloc() in the middle */
		(void)setitimer(ITIMER_REAL, &soon, NULL);
		return;
	}
	SLEEP_US(800);
	RUN(2);
	siglongjmp(jump_to, 1);
}

static __attribute__((noinline)) void until_it_jumps(void)
{
	RUN(200);
}

static __attribute__((noinline)) void after_it_jumped(void)
{
	RUN(3);
	SLEEP_US(900);
}

/* From a handler on a stack of its own. */
static void long_jump(void)
{
	const struct sigaction act = {.sa_handler = jumps_out, .sa_flags = SA_ONSTACK};
	const struct itimerval once = {{0, 0}, {0, 4000}};
	stack_t own = {.ss_size = 256 << 10};

	own.ss_sp = malloc(own.ss_size);
	must(own.ss_sp && sigaltstack(&own, NULL) == 0 && sigaction(SIGALRM, &act, NULL) == 0, "long_jump");
	for (n_jumps = 0; n_jumps < 30; n_jumps++) {
		if (!sigsetjmp(jump_to, 1)) {
			(void)setitimer(ITIMER_REAL, &once, NULL);
			until_it_jumps();
		}
		after_it_jumped();
	}
}

static void works_on(int n)
{
	for (int i = 0; i < 40; i++) {
		if (n == 0) {
			RUN(5);
		} else if (n == 1) {
			SLEEP_US(3000);
		} else {
			MAY_WAIT((void)pthread_mutex_lock(&mutex));
			SLEEP_US(500);
			RUN_US(500);
			(void)pthread_mutex_unlock(&mutex);
		}
	}
}

static void stopped_outside(void)
{
	const pid_t self = getpid(), pid = fork();

	must(pid >= 0, "fork");
	if (pid == 0) {
		for (int i = 0; i < 10; i++) {
			sleep_us(20000);
			(void)kill(self, SIGSTOP);
			sleep_us(15000);
			(void)kill(self, SIGCONT);
		}
		_exit(0);
	}
	play_with(works_on, 4);
	MAY_WAIT((void)waitpid(pid, NULL, 0));
}

static __attribute__((noinline)) void is_traced(void)
{
	for (int i = 0; i < 40; i++) {
		SLEEP_US(2000);
		RUN(2);
	}
}

/* A child stops it now and then, as a debugger does. */
static void traced(void)
{
	const pid_t self = gettid();
	pid_t pid;
	int status;

	(void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	pid = fork();
	must(pid >= 0, "fork");
	if (pid == 0) {
		if (ptrace(PTRACE_SEIZE, self, 0, 0) < 0)
			_exit(1);
		for (int i = 0; i < 30; i++) {
			sleep_us(3000);
			if (ptrace(PTRACE_INTERRUPT, self, 0, 0) < 0 || waitpid(self, &status, __WALL) < 0)
				break;
			sleep_us(4000);
			(void)ptrace(PTRACE_CONT, self, 0, 0);
		}
		_exit(0);
	}
	is_traced();
	MAY_WAIT((void)waitpid(pid, NULL, 0));
}

static int turns[1000];

static void waits_for_turn(int n)
{
	for (int round = 0; round < 3; round++) {
		const int next = (n + 1) % 1000;

		while (__atomic_load_n(&turns[n], __ATOMIC_SEQ_CST) <= round)
			MAY_WAIT((void)syscall(SYS_futex, &turns[n], 128 /* FUTEX_WAIT_PRIVATE */, round, NULL, NULL, 0));
		(void)__atomic_add_fetch(&turns[next], 1, __ATOMIC_SEQ_CST);
		(void)syscall(SYS_futex, &turns[next], 129 /* FUTEX_WAKE_PRIVATE */, 1, NULL, NULL, 0);
	}
}

static void thousand_in_turn(void)
{
	turns[0] = 1;
	play_with(waits_for_turn, 1000);
}

/* As long as what has a stack and what has none. */
static void around_brief(int n)
{
	(void)prctl(PR_SET_TIMERSLACK, 1);
	for (int i = 0; i < 400; i++) {
		SLEEP_US(40u + (unsigned int)(i * 7 + n * 13) % 100);
		if (i % 3 == 0)
			RUN_US(30);
	}
}

static void brief_or_not(void)
{
	play_with(around_brief, 3);
}

/* Not one that is looked at: switches on the last processor for as long as it lives. */
static void noise_of(int n)
{
	char c = 0;

	pin(n_cpus - 1);
	for (;;) {
		must(n != 0 || write(pipes[0][1], &c, 1) == 1, "write");
		must(read(pipes[n == 0][0], &c, 1) == 1, "read");
		must(n == 0 || write(pipes[1][1], &c, 1) == 1, "write");
	}
}

static void noise(void)
{
	must(pipe(pipes[0]) == 0 && pipe(pipes[1]) == 0, "pipe");
	play_with(noise_of, 2);
}

static const struct scene {
	const char *name;
	void (*play)(void);
} scenes[] = {
	{"burn", burn},
	{"burn-pinned", burn_pinned},
	{"burn-migrates", burn_migrates},
	{"burn-many", burn_many},
	{"sleep-short", sleep_short},
	{"sleep-long", sleep_long},
	{"sleep-mixed", sleep_mixed},
	{"bursts", bursts},
	{"bursts-uneven", bursts_uneven},
	{"deep-stack", deep_stack},
	{"signal-handler", signal_handler},
	{"old-calls", old_calls},
	{"page-faults", page_faults},
	{"file-sync", file_sync},
	{"file-lock", file_lock},
	{"poll-timeout", poll_timeout},
	{"timer-fd", timer_fd},
	{"spawn-child", spawn_child},
	{"fork-storm", fork_storm},
	{"stopped", stopped},
	{"yields", yields},
	{"preempted", preempted},
	{"preempted-nice", preempted_nice},
	{"preempted-fifo", preempted_fifo},
	{"pipe-ping", pipe_ping},
	{"pipe-ping-pinned", pipe_ping_pinned},
	{"socket-ping", socket_ping},
	{"mutex-convoy", mutex_convoy},
	{"lock-held-asleep", lock_held_asleep},
	{"cond-turns", cond_turns},
	{"cond-broadcast", cond_broadcast},
	{"barrier-uneven", barrier_uneven},
	{"semaphore", semaphore},
	{"epoll-events", epoll_events},
	{"thread-storm", thread_storm},
	{"six-hundred", six_hundred},
	{"exits", exits},
	{"one-blocked", one_blocked},
	{"moves-other", moves_other},
	{"migrate-and-sleep", migrate_and_sleep},
	{"raw-futex", raw_futex},
	{"interrupted", interrupted},
	{"fibers", fibers_in_turn},
	{"long-jump", long_jump},
	{"stopped-outside", stopped_outside},
	{"traced", traced},
	{"thousand-in-turn", thousand_in_turn},
	{"brief-or-not", brief_or_not},
	{"noise", noise}, /* the last */
};
#define N_SCENES (sizeof(scenes) / sizeof(scenes[0]))

static void tell(void)
{
	for (const struct log *l = logs; l; l = l->next) {
		for (size_t i = 0; i < l->n; i++)
			(void)printf("%c %d %" PRIu64 " %" PRIu64 " %s\n", l->v[i].kind, (int)l->tid, l->v[i].begin, l->v[i].end,
				     l->v[i].where);
		(void)printf("C %d %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", (int)l->tid, l->born, l->died, l->cpu);
	}
	(void)printf("done\n");
	(void)fflush(stdout);
}

int main(int argc, char **argv)
{
	const struct scene *scene = NULL;
	cpu_set_t set;
	char line[16];

	for (size_t i = 0; i < N_SCENES; i++) {
		if (argc == 2 && !strcmp(argv[1], scenes[i].name))
			scene = &scenes[i];
		else if (argc == 1)
			(void)puts(scenes[i].name);
	}
	if (argc == 1)
		return 0;
	if (!scene || sched_getaffinity(0, sizeof(set), &set) < 0)
		return 2;
	for (int i = 0; i < CPU_SETSIZE && n_cpus < MAX_CPUS; i++)
		if (CPU_ISSET((size_t)i, &set))
			cpus[n_cpus++] = i;
	(void)puts("ready");
	(void)fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 0;
	(void)log_mine();
	scene->play();
	log_end();
	tell();
	while (fgets(line, sizeof(line), stdin))
		continue;
	return 0;
}
