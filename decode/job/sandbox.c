// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/job/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/control/json.h"

#define OWN_MEMORY (512u << 20) /* code, stacks of the threads, the tables of libraries */

static atomic_ulong denied;
static atomic_int last_denied;

/* The calls that are answered by the kernel; every other one is EPERM. */
static const int allowed[] = {
	SCMP_SYS(read),
	SCMP_SYS(pread64),
	SCMP_SYS(write),
	SCMP_SYS(writev),
	SCMP_SYS(pwrite64),
	SCMP_SYS(recvmsg),
	SCMP_SYS(sendmsg),
	SCMP_SYS(poll),
	SCMP_SYS(ppoll),
	SCMP_SYS(close),
	SCMP_SYS(fstat),
	SCMP_SYS(lseek),
	SCMP_SYS(munmap),
	SCMP_SYS(mremap),
	SCMP_SYS(brk),
	SCMP_SYS(madvise),
	SCMP_SYS(futex),
	SCMP_SYS(clock_gettime),
	SCMP_SYS(clock_nanosleep),
	SCMP_SYS(gettimeofday),
	SCMP_SYS(getrandom),
	SCMP_SYS(sysinfo), /* qsort() asks how much memory there is */
	SCMP_SYS(getpid),
	SCMP_SYS(gettid),
	/* a thread that was just made may not have got through its own start */
	SCMP_SYS(set_robust_list),
	SCMP_SYS(rseq),
	SCMP_SYS(sched_getaffinity),
	SCMP_SYS(rt_sigreturn),
	SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(restart_syscall),
	SCMP_SYS(sched_yield),
	SCMP_SYS(exit),
	SCMP_SYS(exit_group),
#ifdef SANITIZERS
	SCMP_SYS(mmap),
	SCMP_SYS(mprotect),
	SCMP_SYS(openat),
	SCMP_SYS(readlink),
	SCMP_SYS(readlinkat),
	SCMP_SYS(rt_sigaction),
	SCMP_SYS(sigaltstack),
	SCMP_SYS(getrlimit),
	SCMP_SYS(prlimit64),
	SCMP_SYS(clone),
	SCMP_SYS(prctl),
	SCMP_SYS(ptrace),
	SCMP_SYS(wait4),
	SCMP_SYS(getppid),
	SCMP_SYS(newfstatat),
	SCMP_SYS(getdents64),
	SCMP_SYS(tgkill),
	SCMP_SYS(kill),
	SCMP_SYS(dup),
	SCMP_SYS(dup2),
	SCMP_SYS(fcntl),
	SCMP_SYS(ioctl),
#endif
};

#ifndef SANITIZERS
static const int starters[] = {
	SCMP_SYS(clone),
	SCMP_SYS(clone3),
	SCMP_SYS(fork),
	SCMP_SYS(vfork),
};
#endif

/*
 * A denied call arrives here, is counted and answered with EPERM as a plain filter would. The
 * handler touches the saved registers only.
 */
static void on_denied(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	atomic_fetch_add_explicit(&denied, 1, memory_order_relaxed);
	atomic_store_explicit(&last_denied, info->si_syscall, memory_order_relaxed);
#ifdef __x86_64__
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = -EPERM;
#else
	(void)context;
#endif
}

static void limit(int what, uint64_t value)
{
	struct rlimit l;

	if (getrlimit(what, &l) < 0)
		return;
	if (value < l.rlim_max)
		l.rlim_cur = l.rlim_max = value;
	(void)setrlimit(what, &l);
}

static int filter_load(void)
{
	scmp_filter_ctx ctx;
	uint32_t deny = SCMP_ACT_ERRNO(EPERM);
	int r = 0;

#ifdef __x86_64__
	struct sigaction sa = {.sa_sigaction = on_denied, .sa_flags = SA_SIGINFO | SA_NODEFER};

	if (sigaction(SIGSYS, &sa, NULL) == 0)
		deny = SCMP_ACT_TRAP;
#endif
	ctx = seccomp_init(deny);
	if (!ctx)
		return -ENOMEM;
	for (size_t i = 0; i < ARRAY_SIZE(allowed) && r == 0; i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed[i], 0);
#ifndef SANITIZERS
	/* memory, but never code; of descriptors, only their flags and duplicates */
	if (r == 0)
		r = seccomp_rule_add(
			ctx, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, 4, 0));
	if (r == 0)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1,
			SCMP_A2(SCMP_CMP_MASKED_EQ, 4, 0));
	for (size_t i = 0; i < 3 && r == 0; i++) {
		static const uint64_t commands[] = {F_GETFL, F_GETFD, F_DUPFD_CLOEXEC};

		r = seccomp_rule_add(
			ctx, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 1, SCMP_A1(SCMP_CMP_EQ, commands[i]));
	}
	/* what glibc makes of fstat(); with a path it would say of a file that it exists, and no
	 * more */
	if (r == 0)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(newfstatat), 1,
			SCMP_A3(SCMP_CMP_EQ, AT_EMPTY_PATH));
	/* abort() after a broken invariant must end us, and not go on */
	if (r == 0)
		r = seccomp_rule_add(
			ctx, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1, SCMP_A2(SCMP_CMP_EQ, SIGABRT));
#endif
#ifndef SANITIZERS
	/*
	 * glibc starts threads and programs with all signals blocked, where a trap would kill.
	 * These are refused without being counted.
	 */
	for (size_t i = 0; i < ARRAY_SIZE(starters) && r == 0 && deny != SCMP_ACT_ERRNO(EPERM); i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), starters[i], 0);
#endif
	if (r == 0)
		r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_TSYNC, 1);
	if (r == 0)
		r = seccomp_load(ctx);
	seccomp_release(ctx);
	return r;
}

/* No path can be opened any more, whatever the filter says. */
static bool landlock_deny_all(void)
{
#if defined(SYS_landlock_create_ruleset) && !defined(SANITIZERS)
	struct landlock_ruleset_attr attr = {
		.handled_access_fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1};
	int fd = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
	bool ok;

	if (fd < 0)
		return false;
	ok = syscall(SYS_landlock_restrict_self, fd, 0) == 0;
	(void)close(fd);
	return ok;
#else
	return false;
#endif
}

void sandbox_enter(uint64_t max_memory, bool idle, struct sandbox_layers *ret)
{
	const struct sched_param param = {0};

	*ret = (struct sandbox_layers){0};
	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	limit(RLIMIT_CORE, 0);
#ifndef SANITIZERS
	if (max_memory && max_memory < UINT64_MAX / 2)
		limit(RLIMIT_AS, max_memory + OWN_MEMORY);
#else
	(void)max_memory;
#endif
	if (idle)
		ret->idle = sched_setscheduler(0, SCHED_IDLE, &param) == 0;
	ret->no_new_privs = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
	ret->landlock = landlock_deny_all();
	ret->error = filter_load();
	ret->seccomp = ret->error == 0;
}

void sandbox_report(const struct sandbox_layers *l, struct json_object *stats)
{
	struct json_object *o = json_add_new_object(stats, "sandbox");

	if (!o)
		return;
	json_add_bool(o, "seccomp", l->seccomp);
	json_add_bool(o, "landlock", l->landlock);
	json_add_bool(o, "no_new_privs", l->no_new_privs);
	json_add_bool(o, "idle", l->idle);
	json_add_uint(o, "denied_calls", atomic_load(&denied));
	if (atomic_load(&denied))
		json_add_int(o, "last_denied", atomic_load(&last_denied));
}
