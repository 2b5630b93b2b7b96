// SPDX-License-Identifier: Apache-2.0
#include "client/core/stepper.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/io.h"
#include "common/base/libexec.h"
#include "common/control/stepabi.h"

#define HELLO_TIMEOUT_MS 10000
#define STATUS_BYTES_MAX 65536
#define MAX_GROUPS 1024
/* The channel's descriptor in the stepper. */
#define CHANNEL_FD 3
#define CHANNEL_FD_TEXT "3"

/* The user of the process. `change`: it is somebody else, and we may become that user. */
struct identity {
	bool change;
	uid_t uid;
	gid_t gid, groups[MAX_GROUPS];
	size_t n_groups;
};

/* The numbers after `key` in a status file; returns how many there are. */
static size_t numbers(const char *text, const char *key, unsigned long *ret, size_t max)
{
	const char *p = strstr(text, key);
	size_t n = 0;

	if (!p)
		return 0;
	p += strlen(key);
	while (n < max) {
		p += strspn(p, " \t");
		if (*p < '0' || *p > '9')
			break;
		ret[n++] = strtoul(p, (char **)(uintptr_t)&p, 10);
	}
	return n;
}

/*
 * Root becomes the user of the process. Other users stay who they are, and the kernel decides
 * whether they may trace.
 */
static int find_identity(pid_t pid, struct identity *ret)
{
	_cleanup_free_ unsigned long *groups = calloc(MAX_GROUPS, sizeof(*groups));
	_cleanup_free_ char *text = NULL;
	unsigned long uids[2], gids[2];
	char path[64];
	size_t len;
	int r;

	*ret = (struct identity){0};
	if (geteuid() != 0)
		return 0;
	if (!groups)
		return -ENOMEM;
	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	r = io_read_file_at(AT_FDCWD, path, STATUS_BYTES_MAX, &text, &len);
	if (r < 0)
		return r == -ENOENT ? -ESRCH : r;
	if (numbers(text, "\nUid:", uids, 2) != 2 || numbers(text, "\nGid:", gids, 2) != 2)
		return -EINVAL;
	/* the second is the effective one, which decides what the process may do */
	ret->uid = (uid_t)uids[1];
	ret->gid = (gid_t)gids[1];
	ret->change = ret->uid != 0;
	ret->n_groups = numbers(text, "\nGroups:", groups, MAX_GROUPS);
	for (size_t i = 0; i < ret->n_groups; i++)
		ret->groups[i] = (gid_t)groups[i];
	return 0;
}

/* ---- the child, between fork and exec */

/*
 * Only root may attach to a process that is not its child where kernel.yama.ptrace_scope says so.
 * tracerd-step inherits that capability, and drops it as soon as it has attached.
 */
static void keep_ptrace(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct caps[2] = {{0}};

	caps[0].effective = caps[0].permitted = caps[0].inheritable = 1u << CAP_SYS_PTRACE;
	if (syscall(SYS_capset, &header, caps) == 0)
		(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_PTRACE, 0, 0);
}

static int become(const struct identity *id)
{
	if (!id->change)
		return 0;
	(void)prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
	if (setgroups(id->n_groups, id->groups) < 0 || setresgid(id->gid, id->gid, id->gid) < 0 ||
		setresuid(id->uid, id->uid, id->uid) < 0)
		return -errno;
	keep_ptrace();
	return 0;
}

/* Gives up our terminal, working directory and signal settings. */
static int detach(int null_fd)
{
	const struct rlimit none = {0, 0};
	sigset_t open;

	(void)setsid();
	(void)setrlimit(RLIMIT_CORE, &none);
	for (int s = 1; s < NSIG; s++)
		(void)signal(s, SIG_DFL);
	(void)sigemptyset(&open);
	(void)sigprocmask(SIG_SETMASK, &open, NULL);
	if (chdir("/") < 0)
		return -errno;
	for (int i = 0; i < 3; i++)
		if (dup2(null_fd, i) < 0)
			return -errno;
	return 0;
}

/* All descriptors are above CHANNEL_FD. */
static _Noreturn void child(pid_t pid, const struct identity *id, int program, int channel,
	int null_fd, char **environment)
{
	struct stepabi_hello hello = {
		.type = STEPABI_HELLO, .version = STEPABI_VERSION, .pid = (int32_t)pid};
	char number[16], name[] = "tracerd-step", control[] = "--control", fd[] = CHANNEL_FD_TEXT,
			 p[] = "-p", lang[] = "LC_ALL=C";
	char *argv[] = {name, control, fd, p, number, NULL};
	char *nothing[] = {lang, NULL};
	int r;

	(void)snprintf(number, sizeof(number), "%d", (int)pid);
	r = detach(null_fd);
	if (r == 0)
		r = become(id);
	if (r == 0) {
		/*
		 * By its descriptor, since another user may not reach its path. Root's environment
		 * is not for that user.
		 */
		if (dup2(channel, CHANNEL_FD) >= 0)
			(void)syscall(SYS_execveat, program, "", argv,
				id->change ? nothing : environment, AT_EMPTY_PATH);
		r = -errno;
	}
	hello.error = r;
	(void)snprintf(
		hello.why, sizeof(hello.why), "tracerd-step cannot be started: %s", strerror(-r));
	(void)send(channel, &hello, sizeof(hello), MSG_DONTWAIT | MSG_NOSIGNAL);
	_exit(127);
}

/* ---- the parent */

static int start_failed(int error, const char *what, char why[STEPPER_WHY_SIZE])
{
	(void)snprintf(why, STEPPER_WHY_SIZE, "%s: %s", what, strerror(-error));
	return error;
}

/* A descriptor above those that the child uses. */
static int high(int fd)
{
	int r = fcntl(fd, F_DUPFD_CLOEXEC, CHANNEL_FD + 1);

	(void)close_fd(fd);
	return r < 0 ? -errno : r;
}

static int open_high(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC);

	return fd < 0 ? -errno : high(fd);
}

static int wait_for_hello(int channel, pid_t pid, int *ret_error, char why[STEPPER_WHY_SIZE])
{
	struct pollfd answer = {.fd = channel, .events = POLLIN};
	const uint64_t deadline = io_now_ns() + HELLO_TIMEOUT_MS * 1000000ULL;
	struct stepabi_hello hello = {0};
	ssize_t n;

	for (;;) {
		const uint64_t now = io_now_ns();
		const int r = now < deadline
				      ? poll(&answer, 1, (int)((deadline - now) / 1000000 + 1))
				      : 0;

		if (r > 0)
			break;
		if (r == 0)
			return start_failed(-ETIMEDOUT, "tracerd-step does not answer", why);
		if (errno != EINTR)
			return start_failed(-errno, "tracerd-step", why);
	}
	n = recv(channel, &hello, sizeof(hello), MSG_DONTWAIT);
	if (n <= 0)
		return start_failed(-EPIPE, "tracerd-step ended before it said anything", why);
	if (n != (ssize_t)sizeof(hello) || hello.type != STEPABI_HELLO ||
		hello.version != STEPABI_VERSION || hello.pid != pid)
		return start_failed(-EPROTO, "tracerd-step has another version", why);
	if (hello.error == 0)
		return 0;
	hello.why[sizeof(hello.why) - 1] = '\0';
	(void)snprintf(why, STEPPER_WHY_SIZE, "%s", hello.why);
	*ret_error = hello.error;
	return STEPPER_E_REFUSED;
}

int stepper_start(pid_t pid, int *ret_channel, int *ret_error, char why[STEPPER_WHY_SIZE])
{
	_cleanup_close_ int ours = -1, theirs = -1, program = -1, null_fd = -1;
	_cleanup_free_ struct identity *id = malloc(sizeof(*id));
	char path[PATH_MAX];
	int pair[2], r;
	pid_t front;

	if (!id)
		return start_failed(-ENOMEM, "tracerd-step", why);
	r = libexec_find("tracerd-step", secure_getenv("TRACERD_STEP"), path, sizeof(path));
	if (r < 0)
		return start_failed(r, "tracerd-step is not installed", why);
	r = find_identity(pid, id);
	if (r < 0)
		return start_failed(r, "cannot find the owner of the process", why);
	program = open_high(path, O_RDONLY);
	null_fd = open_high("/dev/null", O_RDWR);
	if (program < 0 || null_fd < 0)
		return start_failed(program < 0 ? program : null_fd,
			program < 0 ? "tracerd-step cannot be opened" : "/dev/null", why);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return start_failed(-errno, "socketpair", why);
	ours = high(pair[0]);
	theirs = high(pair[1]);
	if (ours < 0 || theirs < 0)
		return start_failed(-EMFILE, "socketpair", why);
	front = fork();
	if (front < 0)
		return start_failed(-errno, "fork", why);
	if (front == 0)
		child(pid, id, program, theirs, null_fd, environ);
	theirs = close_fd(theirs);
	r = wait_for_hello(ours, pid, ret_error, why);
	if (r == 0)
		*ret_channel = take_fd(&ours);
	return r;
}
