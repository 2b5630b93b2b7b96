// SPDX-License-Identifier: Apache-2.0
#include "common/decoder/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/ioprio.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/libexec.h"

#define CHILD_NOFILE 4096

int decoder_find(const char *override, char *ret, size_t size)
{
	return libexec_find("tracerd-decode", override, ret, size);
}

static void limit(int what, uint64_t value)
{
	struct rlimit l, old;

	/* a hard limit can be lowered only: take the lower one */
	if (getrlimit(what, &old) < 0)
		return;
	l.rlim_cur = l.rlim_max = value < old.rlim_max ? value : old.rlim_max;
	(void)setrlimit(what, &l);
}

/* Where memory ends it ends, and nobody else: what it does can be done again. */
static void die_first(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd >= 0) {
		(void)!write(fd, "1000", 4);
		(void)close(fd);
	}
}

/*
 * No handler of ours may run in the child, which has our memory. By the kernel's call: the C
 * library keeps two signals, and their handlers, to itself.
 */
static void forget_handlers(void)
{
	/* struct sigaction as the kernel has it: SIG_DFL, no flags, no mask */
	static const uint64_t default_action[4];

	for (int s = 1; s < _NSIG; s++)
		(void)syscall(SYS_rt_sigaction, s, default_action, NULL, _NSIG / 8);
}

/*
 * In the child between vfork and exec: system calls only, no memory of the parent is changed but
 * this stack. Whatever fails but exec leaves the decoder with its own sandbox still to come.
 *
 * Somebody may stop it at any instruction, and end the daemon. From its first call on it dies with
 * the daemon, stopped or not, but before that it keeps all descriptors of the daemon open. So no
 * lock of ours may belong to a descriptor, and none does: see daemon/base/lock.h.
 */
_Noreturn static void child(const struct decoder_options *o, char *const argv[], char *const envp[],
			    int link_fd, int stderr_fd, int null_fd, pid_t parent)
{
	struct sched_param param = {.sched_priority = 0};
	sigset_t none;

	/*
	 * Dies with the thread that started it. posix_spawn() cannot do this, nor limits or
	 * capabilities, hence vfork: the daemon has large mappings, and a fork would copy their
	 * page tables.
	 */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(DECODER_EXEC_FAILED);
	/*
	 * The fds are all above 3 (see decoder_spawn()), so none is overwritten before it is used.
	 */
	if (dup2(null_fd, 0) < 0 || dup2(null_fd, 1) < 0 || dup2(stderr_fd, 2) < 0 ||
	    dup2(link_fd, DECODER_PROTOCOL_FD) < 0)
		_exit(DECODER_EXEC_FAILED);
	if (syscall(SYS_close_range, DECODER_PROTOCOL_FD + 1, ~0U, 0) < 0)
		_exit(DECODER_EXEC_FAILED); /* Linux 5.9 */
	if (o->drop_privilege) {
		struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
		struct __user_cap_data_struct caps[2] = {{0}};

		/* root's exec would get all capabilities back, but for these bits */
		(void)prctl(PR_SET_SECUREBITS,
			    SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
				    SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED,
			    0, 0, 0);
		(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
		for (int c = 0; c <= CAP_LAST_CAP; c++)
			(void)prctl(PR_CAPBSET_DROP, c, 0, 0, 0);
		(void)syscall(SYS_capset, &h, caps);
	}
	(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	limit(RLIMIT_CORE, 0);
	limit(RLIMIT_NOFILE, CHILD_NOFILE);
	if (o->cpu_seconds)
		limit(RLIMIT_CPU, o->cpu_seconds);
	if (o->output_bytes)
		limit(RLIMIT_FSIZE, o->output_bytes);
#ifndef SANITIZERS /* which reserve terabytes */
	if (o->memory_bytes)
		limit(RLIMIT_AS, o->memory_bytes);
#endif
	if (o->idle) {
		(void)sched_setscheduler(0, SCHED_IDLE, &param);
		(void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0,
			      IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0));
	}
	if (o->nice)
		(void)setpriority(PRIO_PROCESS, 0, (int)o->nice);
	die_first();
	(void)setsid(); /* a terminal's ^C is the parent's matter */
	forget_handlers();
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)execve(o->path, argv, envp);
	_exit(DECODER_EXEC_FAILED);
}

/* A function of its own: nothing of it is changed between vfork and the parent's return. */
static __attribute__((noinline)) pid_t vfork_child(const struct decoder_options *o, int link_fd,
						   int stderr_fd, int null_fd, pid_t self)
{
	char *const argv[] = {(char *)"tracerd-decode", NULL};
	char *const envp[] = {
		(char *)"LC_ALL=C",
		(char *)"DEBUGINFOD_URLS=",
		(char *)"MALLOC_ARENA_MAX=2",
/* its leak check needs ptrace, which the sandbox denies, and then waits for ever */
#ifdef SANITIZERS
		(char *)"ASAN_OPTIONS=detect_leaks=0",
#endif
		NULL,
	};
	pid_t pid = vfork();

	if (pid == 0)
		child(o, argv, envp, link_fd, stderr_fd, null_fd, self);
	return pid < 0 ? -errno : pid;
}

/* A duplicate above the numbers that the child uses. */
static int dup_high(int fd)
{
	int r = fcntl(fd, F_DUPFD_CLOEXEC, 16);

	return r < 0 ? -errno : r;
}

int decoder_spawn(const struct decoder_options *o, int link_fd, int stderr_fd, pid_t *ret_pid)
{
	_cleanup_close_ int link_high = -1, err_high = -1, null_high = -1, null_fd = -1;
	sigset_t all, old;
	pid_t pid;

	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null_fd < 0)
		return -errno;
	link_high = dup_high(link_fd);
	err_high = dup_high(stderr_fd);
	null_high = dup_high(null_fd);
	if (link_high < 0 || err_high < 0 || null_high < 0)
		return -EMFILE;
	/* Until the child has forgotten our handlers. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	pid = vfork_child(o, link_high, err_high, null_high, getpid());
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (pid < 0)
		return pid;
	*ret_pid = pid;
	return 0;
}
