// SPDX-License-Identifier: Apache-2.0
/*
 * Starting a program stopped, and being its parent until it ends.
 *
 * PTRACE_TRACEME is the one way to stop a process after its exec and before its first instruction
 * that an ordinary user has. It is undone (detached) as soon as the program is armed. A set-user-ID
 * program executed so does not get its privileges; whoever needs that arms it by its process id.
 */
#include "client/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include "common/io.h"

#define KERNEL_MASK_SIZE (_NSIG / 8)
/* What the kernel stops a traced process with when it has executed another program. */
#define EXEC_SIGNAL SIGTRAP

static const int passed_on[] = {
	SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH};

int launch_prepare(struct launch *ret)
{
	_cleanup_close_ int fd = -1;
	sigset_t set;

	(void)sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(passed_on); i++)
		(void)sigaddset(&set, passed_on[i]);
	(void)sigaddset(&set, SIGCHLD);
	fd = signalfd(-1, &set, SFD_CLOEXEC);
	if (fd < 0 || sigprocmask(SIG_BLOCK, &set, &ret->mask) < 0)
		return -errno;
	/* ignored, the kernel would reap the child and tell nobody */
	ret->ignores_children = signal(SIGCHLD, SIG_DFL) == SIG_IGN;
	ret->signal_fd = take_fd(&fd);
	return 0;
}

void launch_fini(struct launch *launch)
{
	launch->signal_fd = close_fd(launch->signal_fd);
}

/* In the child: only what is safe between fork and exec. Says why it failed, and does not return.
 */
static void __attribute__((noreturn))
child_exec(const struct launch *launch, char *const *argv, bool traceable, pid_t parent,
	int error_fd)
{
	sigset_t mask = launch->mask;
	int e;

	if (launch->ignores_children)
		(void)signal(SIGCHLD, SIG_IGN);
	(void)sigdelset(&mask, EXEC_SIGNAL); /* until it stands at it */
	(void)sigprocmask(SIG_SETMASK, &mask, NULL);
	/*
	 * Yama, where it restricts: by our parent and its descendants. Elsewhere it fails, and need
	 * not be.
	 */
	if (traceable)
		(void)prctl(PR_SET_PTRACER, parent, 0, 0, 0);
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0)
		(void)execvp(argv[0], argv);
	else
		errno = EPERM;
	e = errno;
	(void)!write(error_fd, &e, sizeof(e));
	_exit(127);
}

int launch_stopped(const struct launch *launch, char *const *argv, bool traceable, pid_t *ret_pid,
	int *ret_errno)
{
	_cleanup_close_ int read_fd = -1, write_fd = -1;
	int pipe_fds[2], status, e = 0;
	pid_t self = getpid(), pid;

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return -errno;
	read_fd = pipe_fds[0];
	write_fd = pipe_fds[1];
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		child_exec(launch, argv, traceable, self, write_fd);
	write_fd = close_fd(write_fd);
	/* the pipe closes by the exec, or brings the reason why there was none */
	if (io_read_full(read_fd, &e, sizeof(e)) == (ssize_t)sizeof(e)) {
		(void)waitpid(pid, NULL, 0);
		*ret_errno = e;
		return LAUNCH_E_EXEC;
	}
	for (;;) {
		if (waitpid(pid, &status, __WALL) < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		if (!WIFSTOPPED(status))
			return LAUNCH_E_DIED;
		if (WSTOPSIG(status) == EXEC_SIGNAL)
			break;
		/* another signal was first: delivered, the exec's stop is still to come */
		if (ptrace(PTRACE_CONT, pid, NULL, (void *)(uintptr_t)WSTOPSIG(status)) < 0)
			return -errno;
	}
	if (sigismember(&launch->mask, EXEC_SIGNAL) &&
		ptrace(PTRACE_SETSIGMASK, pid, (void *)KERNEL_MASK_SIZE, &launch->mask) < 0)
		return -errno;
	*ret_pid = pid;
	return 0;
}

int launch_release(pid_t pid)
{
	return ptrace(PTRACE_DETACH, pid, NULL, NULL) < 0 ? -errno : 0;
}

int launch_hand_over(pid_t pid)
{
	int status;

	/*
	 * The signal that it stands at is replaced: it stops again, as it would by itself, before it
	 * executes anything.
	 */
	if (ptrace(PTRACE_DETACH, pid, NULL, (void *)(uintptr_t)SIGSTOP) < 0)
		return -errno;
	while (waitpid(pid, &status, WUNTRACED) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFSTOPPED(status) ? 0 : LAUNCH_E_DIED;
}

int launch_continue(pid_t pid)
{
	return kill(pid, SIGCONT) < 0 ? -errno : 0;
}

void launch_kill(pid_t pid)
{
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, __WALL);
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

int launch_wait(const struct launch *launch, pid_t pid)
{
	for (;;) {
		struct signalfd_siginfo info;
		int code = reap(pid);

		if (code >= 0)
			return code;
		/* the child's end is a signal like the others: this is the only place to wait */
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
