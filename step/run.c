// SPDX-License-Identifier: Apache-2.0
/*
 * The life of a recording: it attaches or starts the command, waits for stops in a loop, and
 * detaches.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>

#include "common/base/io.h"
#include "common/base/procfs.h"
#include "step/step_internal.h"

#define OPTIONS                                                                                    \
	(PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC |     \
	 PTRACE_O_TRACEEXIT | PTRACE_O_TRACESYSGOOD)
#define ATTACH_ROUNDS 100
#define STATUS_BYTES_MAX 16384
#define TICK_NS (50 * 1000 * 1000)
#define STEP_ASKS_MAX 100
/* step_run() waits so long for threads to stop, before it leaves them to step_run_tail(). */
#define DETACH_NS 2000000000ULL

/* There is one recording in a process: signal handlers have nothing but globals. */
static volatile sig_atomic_t asked, woken;
static timer_t wake;
static volatile sig_atomic_t wake_made;

const char *step_end_name(enum step_end why)
{
	static const char *const names[] = {
		[STEP_END_NONE] = "not ended",	     [STEP_END_EXITED] = "all threads exited",
		[STEP_END_ASKED] = "asked to end",   [STEP_END_INSNS] = "enough instructions",
		[STEP_END_SECONDS] = "time is over", [STEP_END_BYTES] = "enough bytes",
		[STEP_END_LIMIT] = "a limit",	     [STEP_END_ERROR] = "failure",
	};

	return names[why];
}

/* ---- waking waitpid() */

/*
 * waitpid() would miss a signal that comes just before it; so from `first_ns` on the timer fires
 * again and again. 0: it does not fire.
 */
static void arm(uint64_t first_ns)
{
	const struct timespec first = {.tv_sec = (time_t)(first_ns / 1000000000ULL),
				       .tv_nsec = (long)(first_ns % 1000000000ULL)};
	const struct itimerspec t = {.it_value = first, .it_interval = {.tv_nsec = TICK_NS}};

	if (wake_made)
		(void)timer_settime(wake, 0, &t, NULL);
}

/* The same, but the deadline comes first where that is sooner. */
static void arm_within(const struct step *s, uint64_t ns)
{
	const uint64_t now = s->deadline ? io_now_ns() : 0,
		       left = s->deadline > now ? s->deadline - now : 1;

	arm(s->deadline && (!ns || left < ns) ? left : ns);
}

void step_ask_end(void)
{
	if (asked < STEP_ASKS_MAX)
		asked++;
	arm(1);
}

int step_asks(void)
{
	return asked;
}

void step_wake(void)
{
	woken = 1;
	arm(1);
}

static void on_alarm(int signal)
{
	(void)signal;
	woken = 1;
}

void step_on_wake(struct step *s, void (*fn)(void *arg), void *arg)
{
	s->on_wake = fn;
	s->wake_arg = arg;
	woken = 1;
	if (!fn)
		arm(0);
}

void step_wake_in(struct step *s, uint64_t ns, bool without_stop)
{
	s->wake_in = ns;
	s->wake_set = without_stop;
	if (without_stop && !s->ending) /* while ending, the timer must stay as fast as it is */
		arm_within(s, ns);
}

/* A thread has stopped: from now on there may be news. */
static void set_wake(struct step *s)
{
	if (!s->on_wake || s->wake_set || !s->wake_in || s->ending)
		return;
	s->wake_set = true;
	arm_within(s, s->wake_in);
}

/* No wake-up is lost: what comes from here on sets `woken` again. */
static void wake_up(struct step *s)
{
	if (!woken || !s->on_wake)
		return;
	woken = 0;
	if (!s->ending) /* while ending, the timer goes on */
		arm_within(s, 0);
	s->wake_set = false;
	s->on_wake(s->wake_arg);
}

static int make_timer(struct step *s)
{
	const struct sigaction action = {.sa_handler = on_alarm}; /* no SA_RESTART */
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};

	if (sigaction(SIGALRM, &action, NULL) < 0 ||
	    timer_create(CLOCK_MONOTONIC, &event, &wake) < 0)
		return -errno;
	s->timer_made = true;
	wake_made = 1;
	return 0;
}

/* ---- */

int step_new(const struct step_options *options, struct step **ret)
{
	const struct pt_encoder_config pt = {.psb_bytes = options->psb_bytes,
					     .max_bytes = options->max_bytes ? options->max_bytes
									     : UINT64_MAX,
					     .overwrite = options->ring,
					     .plain_returns = options->plain_returns};
	_cleanup_(step_freep) struct step *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->options = *options;
	s->code.fd = -1;
	s->log.fd = options->log_fd;
	STAILQ_INIT(&s->streams);
	TAILQ_INIT(&s->turn);
	step_clock_init(&s->clock, !options->output);
	r = step_code_init(&s->code, options->output);
	if (r == 0)
		r = sideband_new(&s->sideband);
	if (r == 0)
		r = pt_encoder_store_new(&pt, &s->store);
	if (r == 0)
		r = make_timer(s);
	if (r < 0)
		return r;
	*ret = take_ptr(s);
	return 0;
}

struct step *step_free(struct step *s)
{
	struct step_stream *stream, *next;

	if (!s)
		return NULL;
	if (s->timer_made) {
		wake_made = 0;
		(void)timer_delete(wake);
	}
	for (size_t i = 0; i < STEP_HASH; i++)
		while (!LIST_EMPTY(&s->threads[i]))
			step_thread_remove(s, LIST_FIRST(&s->threads[i]));
	for (stream = STAILQ_FIRST(&s->streams); stream; stream = next) {
		next = STAILQ_NEXT(stream, in_step);
		free(stream); /* its packets go with the store */
	}
	(void)pt_encoder_store_free(s->store);
	(void)sideband_free(s->sideband);
	step_code_fini(&s->code);
	free(s);
	return NULL;
}

const struct step_stats *step_stats(struct step *s)
{
	s->stats.bytes = pt_encoder_store_bytes(s->store);
	s->stats.overwritten = pt_encoder_store_overwritten(s->store);
	return &s->stats;
}

uint64_t step_max_bytes(const struct step *s)
{
	return s->options.max_bytes;
}

size_t step_alive(const struct step *s)
{
	return s->n_threads;
}

uint64_t step_oldest_raw_ns(struct step *s)
{
	const uint64_t ticks = pt_encoder_store_since(s->store);

	if (!ticks || s->clock.perf_clock)
		return 0;
	step_clock_settle(&s->clock);
	return step_clock_ns(&s->clock, ticks);
}

void step_end(struct step *s, enum step_end why, int error)
{
	struct step_thread *t;

	if (s->ending)
		return;
	s->ending = true;
	s->stats.end = why;
	s->stats.error = error;
	for (size_t i = 0; i < STEP_HASH; i++)
		LIST_FOREACH(t, &s->threads[i], in_hash)
			(void)ptrace(PTRACE_INTERRUPT, t->tid, NULL, 0);
	arm(TICK_NS);
}

/* ---- attaching */

/* The thread has ended, or we trace it already, as a new thread of one that we trace. */
static bool need_not_seize(pid_t pid, pid_t tid)
{
	_cleanup_free_ char *text = NULL;
	const char *state, *tracer;
	char path[64];
	size_t len;

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, (int)tid);
	if (io_read_file_at(AT_FDCWD, path, STATUS_BYTES_MAX, &text, &len) < 0)
		return true;
	state = strstr(text, "\nState:\t");
	tracer = strstr(text, "\nTracerPid:\t");
	if (state && (state[8] == 'Z' || state[8] == 'X'))
		return true;
	return tracer && strtol(tracer + 12, NULL, 10) == getpid();
}

static int seize(struct step *s, struct step_process *p, pid_t tid)
{
	struct step_thread *t;
	int r;

	if (step_thread_find(s, tid))
		return 0;
	if (s->n_threads == STEP_MAX_THREADS)
		return -E2BIG;
	if (ptrace(PTRACE_SEIZE, tid, NULL, OPTIONS) < 0) {
		r = -errno;
		return r == -ESRCH || (r == -EPERM && need_not_seize(p->pid, tid)) ? 0 : r;
	}
	r = step_thread_add(s, p, tid, STEP_THREAD_NEW, &t);
	if (r < 0)
		return r;
	if (tid != p->pid)
		r = sideband_fork(s->sideband, step_clock_now(&s->clock), p->pid, p->pid, tid,
				  p->pid);
	if (r == 0)
		r = step_thread_record_comm(s, t, false);
	if (r == 0 && ptrace(PTRACE_INTERRUPT, tid, NULL, 0) < 0 && errno != ESRCH)
		r = -errno;
	return r;
}

/*
 * Lists the threads until there is no new one. The kernel attaches us to those that traced threads
 * create.
 */
static int seize_all(struct step *s, struct step_process *p, int dirfd)
{
	int r = seize(s, p, p->pid); /* the leader first: the others are its children */
	size_t before = 0;

	for (unsigned int i = 0; r == 0 && i < ATTACH_ROUNDS && before != s->n_threads; i++) {
		_cleanup_free_ pid_t *tids = NULL;
		size_t n;

		before = s->n_threads;
		r = proc_tasks_read(dirfd, &tids, &n);
		for (size_t j = 0; r == 0 && j < n; j++)
			r = seize(s, p, tids[j]);
	}
	return r == 0 && s->n_threads == 0 ? -ESRCH : r;
}

int step_attach(struct step *s, pid_t pid)
{
	_cleanup_close_ int dirfd = -1;
	struct proc_status status;
	struct step_process *p;
	struct proc_stat stat;
	char path[32];
	int r;

	(void)snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	dirfd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	r = proc_status_read(dirfd, &status);
	if (r == 0)
		r = proc_stat_read(dirfd, &stat);
	if (r < 0)
		return r;
	if (status.tgid != pid)
		return -ESRCH; /* a thread's number */
	r = step_process_add(s, pid, stat.ppid, NULL, &p);
	if (r < 0)
		return r;
	r = seize_all(s, p, dirfd);
	if (r == 0)
		r = address_space_reread(p->space, pid);
	if (s->n_threads == 0) {
		p->threads = 1; /* as if the last one were being removed */
		LIST_REMOVE(p, in_step);
		(void)address_space_free(p->space);
		free(p);
		return r;
	}
	if (r < 0)
		step_end(s, r == -E2BIG ? STEP_END_LIMIT : STEP_END_ERROR, r);
	return 0;
}

/*
 * The child: waits until we trace it, and executes the command. Calls async-signal-safe functions
 * only.
 */
static void become(char **argv, int go, int failed)
{
	static const int signals[] = {SIGPIPE, SIGALRM, SIGINT,  SIGTERM,
				      SIGHUP,  SIGQUIT, SIGXCPU, SIGXFSZ};
	int e;
	char c;

	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		(void)signal(signals[i], SIG_DFL);
	if (read(go, &c, 1) == 1) {
		(void)execvp(argv[0], argv);
		e = errno;
		(void)!write(failed, &e, sizeof(e));
	}
	_exit(127);
}

int step_start(struct step *s, char **argv)
{
	_cleanup_close_ int go_read = -1, go_write = -1, failed_read = -1, failed_write = -1;
	int pair[2], e = 0, r;
	struct step_process *p;
	struct step_thread *t;
	pid_t pid;

	if (pipe2(pair, O_CLOEXEC) < 0)
		return -errno;
	go_read = pair[0];
	go_write = pair[1];
	if (pipe2(pair, O_CLOEXEC) < 0)
		return -errno;
	failed_read = pair[0];
	failed_write = pair[1];
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		become(argv, go_read, failed_write);
	failed_write = close_fd(failed_write);
	/* The child waits for a byte; without one it ends. */
	if (ptrace(PTRACE_SEIZE, pid, NULL, OPTIONS) < 0)
		return -errno;
	r = step_process_add(s, pid, getpid(), NULL, &p);
	if (r == 0)
		r = step_thread_add(s, p, pid, STEP_THREAD_COMMAND, &t);
	if (r < 0)
		return r;
	r = io_write_all(go_write, "", 1);
	/* Packets begin with the command; the child may end before that. */
	while (r == 0 && !t->stream) {
		int status;

		if (waitpid(pid, &status, __WALL) < 0) {
			if (errno == EINTR && !asked)
				continue;
			return -errno;
		}
		if (!WIFSTOPPED(status)) {
			step_thread_remove(s, t);
			return io_read_full(failed_read, &e, sizeof(e)) == sizeof(e) ? -e : -ECHILD;
		}
		step_stop_handle(s, pid, status);
		if (s->ending)
			break;
	}
	return r;
}

/* ---- the loop */

/*
 * waitpid() reports the same stopped thread first each time. So take all stopped threads before one
 * of them continues: otherwise a few threads that stop quickly would be the only ones to run, and
 * those they wait for never would.
 */
static void take_stop(struct step *s, pid_t tid, int status)
{
	struct step_thread *t = step_thread_find(s, tid);

	/* The tid of a thread that has ended may soon be another's. */
	if (!t || !WIFSTOPPED(status)) {
		step_stop_handle(s, tid, status);
		return;
	}
	/* A thread that is killed while stopped stops once more, elsewhere. */
	t->status = status;
	if (t->waits)
		return;
	t->waits = true;
	TAILQ_INSERT_TAIL(&s->turn, t, in_turn);
}

static void take_turns(struct step *s, pid_t tid, int status)
{
	struct step_thread *t;

	if (s->n_threads == 1) {
		step_stop_handle(s, tid, status);
		return;
	}
	for (size_t n = s->n_threads; tid > 0;
	     tid = n-- ? waitpid(-1, &status, __WALL | WNOHANG) : 0)
		take_stop(s, tid, status);
	while ((t = TAILQ_FIRST(&s->turn))) {
		TAILQ_REMOVE(&s->turn, t, in_turn);
		t->waits = false;
		step_stop_handle(s, t->tid, t->status);
	}
}

static void wait_for_stops(struct step *s, uint64_t give_up_after_ns)
{
	uint64_t ended = s->ending ? io_now_ns() : 0;

	while (s->n_threads > 0) {
		int status;
		pid_t tid;

		wake_up(s);
		if (!s->ending && asked)
			step_end(s, STEP_END_ASKED, 0);
		tid = waitpid(-1, &status, __WALL);
		if (tid > 0) {
			take_turns(s, tid, status);
			set_wake(s);
		} else if (errno != EINTR) {
			break;
		}
		/* While threads are always ready, the alarm interrupts nothing. */
		if (!s->ending && s->deadline && woken && io_now_ns() >= s->deadline)
			step_end(s, STEP_END_SECONDS, 0);
		if (s->ending) {
			if (!ended)
				ended = io_now_ns();
			if (give_up_after_ns && io_now_ns() - ended > give_up_after_ns)
				break;
		}
	}
}

void step_run(struct step *s)
{
	int r;

	if (!s->ending && s->options.max_seconds) {
		s->deadline = io_now_ns() + s->options.max_seconds * 1000000000ULL;
		arm_within(s, 0);
	}
	wait_for_stops(s, DETACH_NS);
	if (!s->ending)
		step_end(s, STEP_END_EXITED, 0);
	if (s->n_threads == 0)
		arm(0);
	r = insn_log_flush(&s->log);
	if (r < 0 && s->stats.error == 0) {
		s->stats.end = STEP_END_ERROR;
		s->stats.error = r;
	}
}

bool step_has_tail(const struct step *s)
{
	return s->n_threads > 0;
}

void step_run_tail(struct step *s)
{
	wait_for_stops(s, 0);
	arm(0);
}
