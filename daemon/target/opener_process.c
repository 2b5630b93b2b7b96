// SPDX-License-Identifier: Apache-2.0
#include "daemon/target/opener_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/libexec.h"
#include "common/decoder/opener_protocol.h"

/* The opener inherits its capabilities: from root in any case, from others by the ambient set. */
static void pass_capabilities(void)
{
	static const cap_value_t wanted[] = {CAP_SETUID, CAP_SETGID, CAP_DAC_READ_SEARCH};
	cap_t caps = cap_get_proc();

	for (size_t i = 0; caps && i < ARRAY_SIZE(wanted); i++) {
		cap_flag_value_t has = CAP_CLEAR;

		if (cap_get_flag(caps, wanted[i], CAP_PERMITTED, &has) == 0 && has == CAP_SET)
			(void)cap_set_flag(caps, CAP_INHERITABLE, 1, &wanted[i], CAP_SET);
	}
	if (caps && cap_set_proc(caps) == 0)
		for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
			(void)cap_set_ambient(wanted[i], CAP_SET);
	(void)cap_free(caps);
}

_Noreturn static void run(const char *path, int sock, pid_t parent)
{
	char *const argv[] = {(char *)"tracerd-open", NULL};
	char *const envp[] = {(char *)"LC_ALL=C", NULL};
	int null = open("/dev/null", O_RDWR);
	sigset_t none;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || null < 0)
		_exit(1);
	/*
	 * Its socket may have that number already: dup2() would leave it to be closed by the exec.
	 */
	if (sock == OPENER_PROTOCOL_FD ? fcntl(sock, F_SETFD, 0) < 0
				       : dup2(sock, OPENER_PROTOCOL_FD) < 0)
		_exit(1);
	/*
	 * A worker that hangs must not hold the daemon's output; a sanitizer's report must be seen.
	 */
#ifdef SANITIZERS
	for (int i = 0; i < 2; i++)
#else
	for (int i = 0; i < 3; i++)
#endif
		if (dup2(null, i) < 0)
			_exit(1);
	(void)setsid();
	for (int i = 1; i < NSIG; i++)
		(void)signal(i, SIG_DFL);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	/* What users name is opened no sooner than other programs would. */
	if (getpriority(PRIO_PROCESS, 0) < 0)
		(void)setpriority(PRIO_PROCESS, 0, 0);
	pass_capabilities();
	(void)execve(path, argv, envp);
	_exit(1);
}

int opener_process_start(const char *program, int *ret_sock)
{
	const pid_t self = getpid();
	char path[4096];
	int pair[2], r;
	pid_t pid;

	r = libexec_find("tracerd-open", program, path, sizeof(path));
	if (r < 0)
		return r;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	pid = fork(); /* once, while the daemon is small */
	if (pid == 0)
		run(path, pair[1], self);
	r = pid < 0 ? -errno : 0;
	(void)close(pair[1]);
	if (r < 0) {
		(void)close(pair[0]);
		return r;
	}
	*ret_sock = pair[0];
	return 0;
}
