// SPDX-License-Identifier: Apache-2.0
/*
 * tracerd-open: opens files on behalf of targets, with what the target's user could do and no more.
 *
 * What a process maps, names or links is its user's word: in a mount namespace of his own any path
 * shows any file. The daemon must read files of all users, so it would read anything for anybody.
 * Here the kernel is asked as the user: a worker takes on the file system uid, gid and groups of
 * the target's process, and then permissions, ACLs and whatever else the kernel knows hold by
 * themselves. To check each component of a path by hand would be to write the kernel's rules again,
 * of every file system, and to lose every race.
 *
 * This process, the front, alone can take on others' rights (CAP_SETUID, CAP_SETGID). It opens
 * nothing and reads nothing but its socket: it makes workers, one for each set of rights, ends
 * those that did not answer in time, and reaps none that hangs. It goes when the daemon goes.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/io.h"
#include "open/rights.h"
#include "open/worker.h"

#define WORKERS_MAX 256 /* more than the daemon asks for */

static struct {
	uint32_t number;
	pid_t pid; /* 0: free */
} workers[WORKERS_MAX];

static void reap(void)
{
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
		for (size_t i = 0; i < WORKERS_MAX; i++)
			if (workers[i].pid == pid)
				workers[i].pid = 0;
}

/* What cannot be started is known to the daemon by the end of its socket. */
static void start(const struct opener_command *c, int sock)
{
	size_t i = 0;
	pid_t pid;

	while (i < WORKERS_MAX && workers[i].pid)
		i++;
	if (i == WORKERS_MAX)
		return;
	pid = fork();
	if (pid == 0) {
		(void)close(OPENER_PROTOCOL_FD);
		worker_run(c, sock);
	}
	if (pid < 0)
		return;
	workers[i].number = c->worker;
	workers[i].pid = pid;
}

static void end(uint32_t number)
{
	for (size_t i = 0; i < WORKERS_MAX; i++)
		if (workers[i].pid && workers[i].number == number)
			(void)kill(workers[i].pid, SIGKILL);
}

static void on_child(int sig)
{
}

/*
 * A worker's end is seen while we wait and at no other time, so that the pid of one that is to be
 * ended is still its own.
 */
static int watch_children(void)
{
	const struct sigaction sa = {.sa_handler = on_child, .sa_flags = SA_NOCLDSTOP};
	sigset_t child;

	(void)sigemptyset(&child);
	(void)sigaddset(&child, SIGCHLD);
	return sigaction(SIGCHLD, &sa, NULL) < 0 || sigprocmask(SIG_BLOCK, &child, NULL) < 0
		       ? -errno
		       : 0;
}

int main(void)
{
	static struct opener_command c;
	struct pollfd commands = {.fd = OPENER_PROTOCOL_FD, .events = POLLIN};
	sigset_t none;

	(void)sigemptyset(&none);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (syscall(SYS_close_range, OPENER_PROTOCOL_FD + 1, ~0U, 0) < 0 || rights_front() < 0 ||
	    watch_children() < 0)
		return 1;
	for (;;) {
		int fd = -1;
		size_t n_fds = 0;
		ssize_t n;

		if (ppoll(&commands, 1, NULL, &none) < 0) {
			reap();
			continue;
		}
		n = io_recv_fds(OPENER_PROTOCOL_FD, &c, sizeof(c), &fd, 1, &n_fds, 0);
		if (n < (ssize_t)opener_command_size(0) || c.n_groups > OPENER_MAX_GROUPS ||
			n != (ssize_t)opener_command_size(c.n_groups))
			return n != 0;
		reap();
		if (c.type == OPENER_START && n_fds == 1)
			start(&c, fd);
		else if (c.type == OPENER_KILL)
			end(c.worker);
		(void)close_fd(fd);
	}
}
