// SPDX-License-Identifier: Apache-2.0
/*
 * tracerd-step: options, and two processes. The one that the user starts only waits; its child
 * steps. A tracer that is killed takes the stepped program along (see step.h), so when the first
 * process is killed, the second detaches in order and writes the recording.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "common/control/stepabi.h"
#include "step/attach_error.h"
#include "step/control.h"
#include "step/step.h"

#define DEFAULT_BYTES (256u << 20)
#define DEFAULT_CONTROL_BYTES (64u << 20)
#define TRACER_NAME "step-tracer"
#define DEFAULT_PSB_BYTES 4096u
#define DEFAULT_TIME_INSNS 64u
/* The first line about how far it is; the others come each after twice the time. */
#define PROGRESS_NS 2000000000ULL

enum option_id {
	OPT_OUTPUT = 'o',
	OPT_PID = 'p',
	OPT_HELP = 'h',
	OPT_VERSION = 'V',
	OPT_CONTROL = 256,
	OPT_LOG,
	OPT_MAX_INSNS,
	OPT_MAX_SECONDS,
	OPT_MAX_BYTES,
	OPT_RING,
	OPT_PLAIN_RETURNS,
	OPT_TIME_INSNS,
	OPT_PSB_BYTES,
};

static const struct option_doc {
	struct option option;
	const char *arg, *doc;
} options[] = {
	{{"output", required_argument, NULL, OPT_OUTPUT},
	 "FILE",
	 "the perf.data to write (also -o)"},
	{{"pid", required_argument, NULL, OPT_PID}, "PID", "record this process (also -p)"},
	{{"control", required_argument, NULL, OPT_CONTROL},
	 "FD",
	 "keep the recording in memory, and send copies over this socket (with --pid; for tracectl)"},
	{{"log", required_argument, NULL, OPT_LOG}, "FILE", "write \"tid ip\" of each instruction"},
	{{"max-insns", required_argument, NULL, OPT_MAX_INSNS}, "N", "end after N instructions"},
	{{"max-seconds", required_argument, NULL, OPT_MAX_SECONDS}, "N", "end after N seconds"},
	{{"max-bytes", required_argument, NULL, OPT_MAX_BYTES},
	 "N",
	 "end after N bytes of packets (256 MiB); with --control, keep the last N (64 MiB)"},
	{{"ring", no_argument, NULL, OPT_RING},
	 "",
	 "keep the last --max-bytes instead of ending there"},
	{{"plain-returns", no_argument, NULL, OPT_PLAIN_RETURNS}, "", "do not compress returns"},
	{{"time-insns", required_argument, NULL, OPT_TIME_INSNS},
	 "N",
	 "write a time stamp at least every N instructions (64)"},
	{{"psb-bytes", required_argument, NULL, OPT_PSB_BYTES},
	 "N",
	 "write a PSB every N bytes (4096)"},
	{{"version", no_argument, NULL, OPT_VERSION}, "", "print the version and exit"},
	{{"help", no_argument, NULL, OPT_HELP}, "", "print this and exit"},
};

/* Signs of life of a recording that takes long: few, since the terminal is the program's, too. */
struct progress {
	struct step *step;
	uint64_t began, next; /* io_now_ns() */
};

struct arguments {
	struct step_options step;
	char *name; /* argv[0] */
	const char *log;
	pid_t pid;
	int control; /* -1: none */
	char **command; /* NULL with pid */
	bool help, version;
	struct progress progress;
};

static void print_help(void)
{
	(void)printf(
		"Usage: tracerd-step --output FILE [OPTION...] -p PID\n"
		"       tracerd-step --output FILE [OPTION...] -- COMMAND [ARG...]\n"
		"       tracerd-step --control FD [OPTION...] -p PID\n"
		"Steps a program and all that it starts through every instruction, and writes an Intel PT\n"
		"recording: for tests, and for machines without Intel PT. It is exact, and slow.\n\n");
	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		const struct option_doc *o = &options[i];
		char name[40];

		(void)snprintf(name, sizeof(name), "--%s%s%s", o->option.name, o->arg[0] ? " " : "",
			       o->arg);
		(void)printf("  %-22s %s\n", name, o->doc);
	}
	(void)printf("\nCode that is in no file goes to FILE.code, the vDSO to FILE.vdso.\n"
		     "SIGINT and SIGTERM end the recording; the program runs on.\n");
}

/* A decimal number from `min` to `max`; on failure prints why and returns false. */
static bool number(const char *name, const char *text, uint64_t min, uint64_t max, uint64_t *ret)
{
	unsigned long long v;
	char *end;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || end == text || *end || text[0] < '0' || text[0] > '9' || v < min || v > max) {
		(void)fprintf(stderr, "tracerd-step: --%s: not a number from %llu to %llu: %s\n",
			      name, (unsigned long long)min, (unsigned long long)max, text);
		return false;
	}
	*ret = v;
	return true;
}

static bool take_option(struct arguments *a, int c)
{
	uint64_t v = 0;

	switch (c) {
	case OPT_OUTPUT:
		a->step.output = optarg;
		return true;
	case OPT_PID:
		if (!number("pid", optarg, 1, INT32_MAX, &v))
			return false;
		a->pid = (pid_t)v;
		return true;
	case OPT_CONTROL:
		if (!number("control", optarg, 3, INT32_MAX, &v))
			return false;
		a->control = (int)v;
		return true;
	case OPT_LOG:
		a->log = optarg;
		return true;
	case OPT_MAX_INSNS:
		return number("max-insns", optarg, 1, UINT64_MAX / 2, &a->step.max_insns);
	case OPT_MAX_SECONDS:
		return number("max-seconds", optarg, 1, 365 * 86400, &a->step.max_seconds);
	case OPT_MAX_BYTES:
		return number("max-bytes", optarg, 4096, UINT64_C(1) << 40, &a->step.max_bytes);
	case OPT_RING:
		a->step.ring = true;
		return true;
	case OPT_PLAIN_RETURNS:
		a->step.plain_returns = true;
		return true;
	case OPT_TIME_INSNS:
		if (!number("time-insns", optarg, 1, UINT32_MAX, &v))
			return false;
		a->step.time_insns = (uint32_t)v;
		return true;
	case OPT_PSB_BYTES:
		if (!number("psb-bytes", optarg, 128, 1u << 24, &v))
			return false;
		a->step.psb_bytes = (uint32_t)v;
		return true;
	case OPT_HELP:
		a->help = true;
		return true;
	case OPT_VERSION:
		a->version = true;
		return true;
	default:
		return false; /* getopt has said what is wrong */
	}
}

/* With --control the recording is a ring in memory. */
static bool check_control(struct arguments *a)
{
	if (a->step.output || a->command || !a->pid || a->step.max_insns || a->step.max_seconds) {
		(void)fprintf(
			stderr,
			"tracerd-step: --control needs -p PID, and takes no output, command or "
			"limits (see --help)\n");
		return false;
	}
	a->step.ring = true;
	if (!a->step.max_bytes)
		a->step.max_bytes = DEFAULT_CONTROL_BYTES;
	return true;
}

static bool parse_arguments(int argc, char **argv, struct arguments *a)
{
	struct option table[ARRAY_SIZE(options) + 1] = {0};
	int c;

	for (size_t i = 0; i < ARRAY_SIZE(options); i++)
		table[i] = options[i].option;
	while ((c = getopt_long(argc, argv, "+o:p:", table, NULL)) != -1)
		if (!take_option(a, c))
			return false;
	if (a->help || a->version)
		return true;
	a->command = optind < argc ? argv + optind : NULL;
	if (a->control >= 0)
		return check_control(a);
	if (!a->step.max_bytes)
		a->step.max_bytes = DEFAULT_BYTES;
	if (!a->step.output) {
		(void)fprintf(stderr, "tracerd-step: no --output (see --help)\n");
		return false;
	}
	if (!a->command == !a->pid) {
		(void)fprintf(stderr, "tracerd-step: %s -p %s a command (see --help)\n",
			      a->pid ? "either" : "neither", a->pid ? "or" : "nor");
		return false;
	}
	if (a->pid == getpid() || a->pid == getppid()) {
		(void)fprintf(stderr,
			      "tracerd-step: process %d is waiting for tracerd-step itself\n",
			      (int)a->pid);
		return false;
	}
	return true;
}

static void on_end(int signal)
{
	(void)signal;
	step_ask_end();
}

/*
 * Signals that end the recording call `handler`; without SA_RESTART, so that they interrupt waits.
 */
static void catch_ends(void (*handler)(int))
{
	/* SIGXCPU: before the limit of CPU time kills. */
	static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU};
	const struct sigaction action = {.sa_handler = handler};

	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		(void)sigaction(ends[i], &action, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGXFSZ, SIG_IGN); /* write() fails instead */
}

/* ---- the stepping process */

#define U(n) ((unsigned long long)(n))

static void report(const struct step_stats *s, const char *output)
{
	log_notice(
		"%s: %llu instructions, %llu system calls, %llu signals, %llu threads, %llu processes, %llu bytes (%s)",
		output, U(s->insns), U(s->syscalls), U(s->signals), U(s->threads), U(s->processes),
		U(s->bytes), step_end_name(s->end));
	if (s->overwritten)
		log_notice("%llu bytes of packets were overwritten by later ones",
			   U(s->overwritten));
	if (s->unexpected_jumps)
		log_warning("%llu instructions jumped to unexpected addresses",
			    U(s->unexpected_jumps));
	if (s->threads_not_recorded)
		log_warning("%llu threads were not recorded: there were too many",
			    U(s->threads_not_recorded));
	if (s->error)
		log_error("the recording ended early: %s", strerror(-s->error));
}

static void on_progress(void *arg)
{
	struct progress *p = arg;
	uint64_t now = io_now_ns();

	if (now >= p->next) {
		log_notice("still stepping: %llu instructions in %llu s",
			   U(step_stats(p->step)->insns), U((now - p->began) / 1000000000ULL));
		p->next = p->began + 2 * (now - p->began);
	}
	step_wake_in(p->step, p->next - now, true);
}

static void report_progress(struct progress *p, struct step *s)
{
	const uint64_t now = io_now_ns();

	*p = (struct progress){.step = s, .began = now, .next = now + PROGRESS_NS};
	step_on_wake(s, on_progress, p);
}

static int create_file(const char *path, int *ret)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0) {
		log_error("%s: %m", path);
		return -errno;
	}
	*ret = fd;
	return 0;
}

/* The exit status: 0, 1 if the recording failed, 127 if the command cannot be started. */
static int record(struct arguments *a, struct step **ret)
{
	_cleanup_close_ int fd = -1;
	struct step *s;
	int r;

	if (create_file(a->step.output, &fd) < 0 ||
	    (a->log && create_file(a->log, &a->step.log_fd) < 0))
		return 1;
	r = step_new(&a->step, &s);
	if (r < 0) {
		log_error("cannot record: %s", strerror(-r));
		return 1;
	}
	*ret = s;
	r = a->pid ? step_attach(s, a->pid) : step_start(s, a->command);
	if (r < 0) {
		(void)unlink(a->step.output);
		if (a->pid)
			log_error("process %d cannot be traced: %s", (int)a->pid, strerror(-r));
		else
			log_error("%s: %s", a->command[0], strerror(-r));
		return a->pid ? 1 : 127;
	}
	report_progress(&a->progress, s);
	step_run(s);
	r = step_write(s, fd, 0, false);
	if (r < 0) {
		log_error("%s: %s", a->step.output, strerror(-r));
		return 1;
	}
	report(step_stats(s), a->step.output);
	return step_stats(s)->error ? 1 : 0;
}

/*
 * Root gives a user's stepper capabilities to attach, and for nothing else. A stepper of root keeps
 * its own.
 */
static void drop_capabilities(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {{0}};

	if (geteuid() == 0)
		return;
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	(void)syscall(SYS_capset, &header, none);
}

/* Records for whoever holds the other end of the channel. The exit status. */
static int serve(struct arguments *a, struct step **ret)
{
	_cleanup_(step_control_freep) struct step_control *c = NULL;
	char why[STEPABI_TEXT] = "";
	struct step *s = NULL;
	int r;

	if (a->log && create_file(a->log, &a->step.log_fd) < 0)
		return 1;
	r = step_control_new(&a->control, &c);
	if (r < 0) {
		log_error("--control: %s", strerror(-r));
		return 1;
	}
	if (a->pid == getpid() || a->pid == getppid()) {
		r = -EINVAL;
		(void)snprintf(why, sizeof(why), "process %d is the stepper itself", (int)a->pid);
	}
	if (r == 0)
		r = step_new(&a->step, &s);
	*ret = s;
	if (r == 0)
		r = step_attach(s, a->pid);
	if (r == 0)
		r = step_stats(s)->error; /* it must detach from some threads again */
	drop_capabilities();
	if (r < 0) {
		if (!why[0])
			attach_error_describe(a->pid, r, why, sizeof(why));
		log_error("%s", why);
	}
	if (step_control_hello(c, a->pid, r, why) < 0)
		step_ask_end();
	if (r == 0)
		step_control_run(c, s);
	else if (s && step_alive(s) > 0)
		step_run(s);
	return r < 0 || step_stats(s)->error ? 1 : 0;
}

/* Overwrites argv[0] for ps; the rest of a longer old name must not stay. */
static void rename_to(char *name, const char *to)
{
	const size_t room = strlen(name) + 1;

	memset(name, 0, room);
	(void)snprintf(name, room, "%s", to);
}

static int stepping_process(struct arguments *a, int result, pid_t parent)
{
	_cleanup_(step_freep) struct step *s = NULL;
	uint8_t status;

	catch_ends(on_end);
	/* Who wants to kill tracerd-step must not find the tracer, by either of its names. */
	(void)prctl(PR_SET_NAME, TRACER_NAME);
	rename_to(a->name, TRACER_NAME);
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		return 1;
	status = (uint8_t)(a->control >= 0 ? serve(a, &s) : record(a, &s));
	if (io_write_all(result, &status, 1) < 0)
		log_debug("nobody waits for the exit status");
	if (s && step_has_tail(s))
		step_run_tail(s);
	return status;
}

/* ---- the process that waits */

static volatile sig_atomic_t to_forward;

static void on_forward(int signal)
{
	to_forward = signal;
}

static int waiting_process(pid_t child, int result)
{
	struct pollfd fd = {.fd = result, .events = POLLIN};
	uint8_t status;
	sigset_t open, blocked;
	int wait_status;
	ssize_t n;

	(void)sigfillset(&blocked);
	(void)sigprocmask(SIG_BLOCK, &blocked, &open);
	catch_ends(on_forward);
	/* Ends with the child's result or its death; passes signals on. */
	while (ppoll(&fd, 1, NULL, &open) < 0 && errno == EINTR) {
		if (to_forward)
			(void)kill(child, to_forward);
		to_forward = 0;
	}
	n = read(result, &status, 1);
	if (n == 1)
		return status;
	if (waitpid(child, &wait_status, 0) == child && WIFSIGNALED(wait_status))
		log_error("the stepping process was killed by signal %d", WTERMSIG(wait_status));
	return 1;
}

/*
 * Drops all that we have inherited but the channel and stderr, and keeps other processes from
 * reading our memory.
 */
static int begin_control(int fd)
{
	sigset_t none;

	(void)prctl(PR_SET_NAME, "tracerd-step");
	(void)prctl(PR_SET_DUMPABLE, 0);
	(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	for (int i = 0; i < 3; i++)
		if (fcntl(i, F_GETFD) < 0 && open("/dev/null", O_RDWR) != i)
			return -EBADF;
	if ((fd > 3 && close_range(3, (unsigned int)fd - 1, 0) < 0) ||
	    close_range((unsigned int)fd + 1, ~0U, 0) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
		log_error("--control: %m");
		return -errno;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct arguments a = {.name = argv[0],
			      .control = -1,
			      .step = {.log_fd = -1,
				       .psb_bytes = DEFAULT_PSB_BYTES,
				       .time_insns = DEFAULT_TIME_INSNS}};
	_cleanup_close_ int result_read = -1, result_write = -1;
	pid_t self = getpid(), child;
	int pair[2];

	if (!parse_arguments(argc, argv, &a))
		return 2;
	if (a.help) {
		print_help();
		return 0;
	}
	if (a.version) {
		(void)printf("tracerd-step %s\n", PACKAGE_VERSION);
		return 0;
	}
	log_init("tracerd-step", LOG_L_INFO);
	if (a.control >= 0 && begin_control(a.control) < 0)
		return 1;
	if (pipe2(pair, O_CLOEXEC) < 0) {
		log_error("%m");
		return 1;
	}
	result_read = pair[0];
	result_write = pair[1];
	child = fork();
	if (child < 0) {
		log_error("%m");
		return 1;
	}
	if (child == 0) {
		result_read = close_fd(result_read);
		return stepping_process(&a, result_write, self);
	}
	result_write = close_fd(result_write);
	/* The stepping process alone holds the channel: when it ends, the channel is closed. */
	a.control = close_fd(a.control);
	return waiting_process(child, result_read);
}
