// SPDX-License-Identifier: Apache-2.0
#include "open/rights.h"

#include <errno.h>
#include <grp.h>
#include <linux/securebits.h>
#include <seccomp.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/decoder/opener_protocol.h"

static void capsp(cap_t *caps)
{
	if (*caps)
		(void)cap_free(*caps);
}

/* Exactly those of `wanted` that are permitted now. */
static int keep(const cap_value_t *wanted, size_t n)
{
	_cleanup_(capsp) cap_t now = cap_get_proc();
	_cleanup_(capsp) cap_t next = cap_init();

	if (!now || !next)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		cap_flag_value_t has = CAP_CLEAR;

		if (cap_get_flag(now, wanted[i], CAP_PERMITTED, &has) < 0)
			return -errno;
		if (has == CAP_SET &&
		    (cap_set_flag(next, CAP_PERMITTED, 1, &wanted[i], CAP_SET) < 0 ||
		     cap_set_flag(next, CAP_EFFECTIVE, 1, &wanted[i], CAP_SET) < 0))
			return -errno;
	}
	return cap_set_proc(next) < 0 ? -errno : 0;
}

static int no_more(void)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	/*
	 * root's uids bring no capabilities back; needs CAP_SETPCAP, and without it there is no
	 * root to do so
	 */
	(void)prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED, 0, 0, 0);
	return 0;
}

int rights_front(void)
{
	static const cap_value_t wanted[] = {CAP_SETUID, CAP_SETGID, CAP_DAC_READ_SEARCH};
	int r = no_more();

	return r < 0 ? r : keep(wanted, ARRAY_SIZE(wanted));
}

/* Whether the groups are those already: then no capability is needed to have them. */
static bool has_groups(const gid_t *groups, size_t n)
{
	gid_t own[OPENER_MAX_GROUPS];
	int n_own = getgroups(ARRAY_SIZE(own), own);

	return n_own >= 0 && (size_t)n_own == n && !memcmp(own, groups, n * sizeof(*own));
}

int rights_become(uid_t uid, gid_t gid, const gid_t *groups, size_t n_groups)
{
	static const cap_value_t read_search = CAP_DAC_READ_SEARCH;

	/*
	 * What may not be taken on must be ours already: then nothing changes, and nothing is
	 * gained.
	 */
	if (setgroups(n_groups, groups) < 0 && !(uid == getuid() && has_groups(groups, n_groups)))
		return -EPERM;
	/*
	 * These calls do not say whether they have failed; with -1 they change nothing and tell
	 * what is.
	 */
	(void)setfsgid(gid);
	(void)setfsuid(uid);
	if ((gid_t)setfsgid((gid_t)-1) != gid || (uid_t)setfsuid((uid_t)-1) != uid)
		return -EPERM;
	return keep(&read_search, uid == 0 ? 1 : 0);
}

int rights_filter(void)
{
#ifdef SANITIZERS /* which call what they like */
	return 0;
#else
	static const int allowed[] = {
		SCMP_SYS(recvmsg),       SCMP_SYS(sendmsg),
		SCMP_SYS(openat),        SCMP_SYS(openat2),
		SCMP_SYS(close),         SCMP_SYS(fcntl),
		SCMP_SYS(fstat),         SCMP_SYS(newfstatat),
		SCMP_SYS(statx),         SCMP_SYS(fstatfs),
		SCMP_SYS(lseek),         SCMP_SYS(read),
		SCMP_SYS(pread64),       SCMP_SYS(write),
		SCMP_SYS(writev),        SCMP_SYS(sendfile),
		SCMP_SYS(memfd_create),  SCMP_SYS(munmap),
		SCMP_SYS(mremap),        SCMP_SYS(brk),
		SCMP_SYS(madvise),       SCMP_SYS(futex),
		SCMP_SYS(clock_gettime), SCMP_SYS(getrandom),
		SCMP_SYS(rt_sigreturn),  SCMP_SYS(restart_syscall),
		SCMP_SYS(getpid),        SCMP_SYS(gettid),
		SCMP_SYS(tgkill),        SCMP_SYS(rt_sigprocmask),
		SCMP_SYS(exit),          SCMP_SYS(exit_group),
	};
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r = 0;

	if (!ctx)
		return -ENOMEM;
	for (size_t i = 0; i < ARRAY_SIZE(allowed) && r == 0; i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed[i], 0);
	if (r == 0) /* memory, but never code */
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
				     SCMP_A2(SCMP_CMP_MASKED_EQ, 4, 0));
	if (r == 0)
		r = seccomp_load(ctx);
	seccomp_release(ctx);
	return r;
#endif
}
