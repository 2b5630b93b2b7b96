// SPDX-License-Identifier: Apache-2.0
/*
 * Starting a program stopped, and being its parent until it ends.
 *
 * Tracing is the one way to stop a process after its exec and before its first instruction that an
 * ordinary user has. It is undone (detached) as soon as the program is armed. A set-user-ID program
 * executed so does not get its privileges; whoever needs that arms it by its process id.
 *
 * What makes the program end with us until it is released is first a pipe that it waits at, then
 * the kernel (PTRACE_O_EXITKILL), then, where another process is to trace it, a guard.
 * PR_SET_PDEATHSIG could not be taken back from it.
 */
#include "client/core/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "common/base/io.h"

#define KILLED_MS 2000 /* for a program to end; one that does not is reaped by init */

static const int passed_on[] = {
	SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH};

int launch_prepare(struct launch *ret)
{
	if (sigprocmask(SIG_BLOCK, NULL, &ret->mask) < 0)
		return -errno;
	/* if it were ignored, the kernel would reap the child without a word */
	ret->ignores_children = signal(SIGCHLD, SIG_DFL) == SIG_IGN;
	return 0;
}

void launch_fini(struct launch *launch)
{
	struct pollfd ended = {.fd = launch->pidfd, .events = POLLIN};

	if (launch->pid > 0) {
		(void)kill(launch->pid, SIGKILL);
		/* another tracer learns of its end first, and may be slow */
		(void)poll(&ended, 1, KILLED_MS);
		(void)waitpid(launch->pid, NULL, WNOHANG | __WALL);
	}
	launch->pid = 0;
	close_fdp(&launch->pidfd);
	close_fdp(&launch->guard_fd);
	close_fdp(&launch->signal_fd);
}

/* In the child: only what is safe between fork and exec. Says why it failed, and does not return.
 */
static void __attribute__((noreturn))
child_exec(const struct launch *launch, char *const *argv, bool traceable, pid_t parent,
	   const int go[2], int error_fd)
{
	char c;
	int e;

	(void)close(go[1]);
	if (launch->ignores_children)
		(void)signal(SIGCHLD, SIG_IGN);
	/*
	 * Yama, where it restricts: by our parent and its descendants. Elsewhere it fails, and need
	 * not be.
	 */
	if (traceable)
		(void)prctl(PR_SET_PTRACER, parent, 0, 0, 0);
	/* Nothing comes from a parent that is dead or cannot trace us. */
	if (io_read_full(go[0], &c, 1) != 1)
		_exit(127);
	(void)execvp(argv[0], argv);
	e = errno;
	(void)!write(error_fd, &e, sizeof(e));
	_exit(127);
}

/* Waits for the exec's stop. */
static int wait_for_exec(pid_t pid)
{
	int status;

	for (;;) {
		int signal;

		if (waitpid(pid, &status, __WALL) < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		if (!WIFSTOPPED(status))
			return LAUNCH_E_DIED;
		if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXEC << 8))
			return 0;
		/* another signal was first: delivered, the exec's stop is still to come */
		signal = status >> 16 ? 0 : WSTOPSIG(status);
		if (ptrace(PTRACE_CONT, pid, NULL, (void *)(uintptr_t)signal) < 0 && errno != ESRCH)
			return -errno;
	}
}

int launch_stopped(struct launch *launch, char *const *argv, bool traceable, int *ret_errno)
{
	_cleanup_close_ int read_fd = -1, write_fd = -1, go_read = -1, go_write = -1;
	int pipe_fds[2], go[2], e = 0, r;
	pid_t self = getpid(), pid;

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return -errno;
	read_fd = pipe_fds[0];
	write_fd = pipe_fds[1];
	if (pipe2(go, O_CLOEXEC) < 0)
		return -errno;
	go_read = go[0];
	go_write = go[1];
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		child_exec(launch, argv, traceable, self, go, write_fd);
	launch->pid = pid;
	write_fd = close_fd(write_fd);
	launch->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (launch->pidfd < 0 ||
	    ptrace(PTRACE_SEIZE, pid, NULL,
		   (void *)(uintptr_t)(PTRACE_O_EXITKILL | PTRACE_O_TRACEEXEC)) < 0)
		return -errno;
	r = io_write_all(go_write, "", 1);
	if (r == 0)
		r = wait_for_exec(pid);
	if (r != LAUNCH_E_DIED)
		return r;
	launch->pid = 0;
	if (io_read_full(read_fd, &e, sizeof(e)) != (ssize_t)sizeof(e))
		return LAUNCH_E_DIED;
	*ret_errno = e;
	return LAUNCH_E_EXEC;
}

/*
 * A process that kills the program when the other end of its pipe is closed before a byte came. It
 * is of no terminal, holds nothing of ours open, and knows no signals.
 */
static void __attribute__((noreturn)) guard(int fd, int pidfd)
{
	const unsigned int low = (unsigned int)(fd < pidfd ? fd : pidfd),
			   high = (unsigned int)(fd < pidfd ? pidfd : fd);
	char c;

	(void)setsid();
	if (low > 0)
		(void)syscall(SYS_close_range, 0U, low - 1, 0);
	if (high > low + 1)
		(void)syscall(SYS_close_range, low + 1, high - 1, 0);
	(void)syscall(SYS_close_range, high + 1, ~0U, 0);
	if (io_read_full(fd, &c, 1) != 1)
		(void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
	_exit(0);
}

static int start_guard(struct launch *launch)
{
	_cleanup_close_ int read_fd = -1;
	sigset_t all, old;
	int pipe_fds[2];
	pid_t pid;

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return -errno;
	read_fd = pipe_fds[0];
	launch->guard_fd = pipe_fds[1];
	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, &old);
	pid = fork();
	if (pid == 0)
		guard(read_fd, launch->pidfd);
	(void)sigprocmask(SIG_SETMASK, &old, NULL);
	if (pid < 0)
		return -errno;
	launch->guard = pid;
	return 0;
}

int launch_hand_over(struct launch *launch)
{
	int status, r = start_guard(launch);

	if (r < 0)
		return r;
	/* It stops again before it executes anything: the signal is there first. */
	if (kill(launch->pid, SIGSTOP) < 0 || ptrace(PTRACE_DETACH, launch->pid, NULL, NULL) < 0)
		return -errno;
	while (waitpid(launch->pid, &status, WUNTRACED) < 0)
		if (errno != EINTR)
			return -errno;
	if (WIFSTOPPED(status))
		return 0;
	launch->pid = 0;
	return LAUNCH_E_DIED;
}

int launch_release(struct launch *launch, pid_t *ret_pid)
{
	sigset_t set;

	(void)sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(passed_on); i++)
		(void)sigaddset(&set, passed_on[i]);
	(void)sigaddset(&set, SIGCHLD);
	launch->signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
	if (launch->signal_fd < 0 || sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return -errno;
	if (launch->guard_fd < 0) {
		if (ptrace(PTRACE_DETACH, launch->pid, NULL, NULL) < 0)
			return -errno;
	} else if (kill(launch->pid, SIGCONT) < 0 || io_write_all(launch->guard_fd, "", 1) < 0) {
		return -errno;
	}
	*ret_pid = launch->pid;
	launch->pid = 0;
	return 0;
}

/* The exit code, or -1 while it runs. */
static int reap(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, WNOHANG) != pid)
		return -1;
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : -1;
}

/* Returns when there is a signal to read. */
static void tick_until_signal(const struct launch *launch, int (*tick)(void *arg), void *arg,
			      uint64_t *next)
{
	struct pollfd fd = {.fd = launch->signal_fd, .events = POLLIN};

	for (;;) {
		const uint64_t now = io_now_ns();

		if (now >= *next)
			*next = io_now_ns() + (uint64_t)tick(arg) * 1000000;
		else if (poll(&fd, 1, (int)((*next - now) / 1000000 + 1)) != 0)
			return;
	}
}

int launch_wait(const struct launch *launch, pid_t pid, int (*tick)(void *arg), void *arg)
{
	uint64_t next = 0;

	for (;;) {
		struct signalfd_siginfo info;
		int code = reap(pid);

		if (code >= 0)
			return code;
		if (launch->guard > 0)
			(void)waitpid(launch->guard, NULL, WNOHANG);
		/* the child's end is a signal like the others: this is the only place to wait */
		if (tick)
			tick_until_signal(launch, tick, arg, &next);
		if (io_read_full(launch->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
			return -EIO;
		if (info.ssi_signo == SIGCHLD)
			continue;
		/* what the terminal's keys send comes from the kernel, to both of us */
		if (info.ssi_code == SI_KERNEL)
			continue;
		(void)kill(pid, (int)info.ssi_signo);
	}
}
