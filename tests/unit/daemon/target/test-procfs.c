// SPDX-License-Identifier: Apache-2.0
/* /proc's text: names that try to be fields, lines that are cut, and this very process. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/procfs.h"
#include "daemon/perf/eventset.h"
#include "daemon/target/cgroup.h"

#define TAIL " S 42 7 7 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 987654321 0 0 0 0 0 140722000 0"

static void test_stat(void **state)
{
	static const char *const names[] = {"1 (bash)", "1 (a) S 1 2 3 (b)", "1 (\n) R 1 1)",
					    "1 ())",
					    "1 ((((x y z"
					    ") 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 99)"};
	static const char *const bad[] = {"",          "1",       "1 (x",
					  "1 (x)",     "1 (x) S", "1 (x) S 1 2 3",
					  "1 (x)S 1 2"};
	struct proc_stat st;
	char text[512];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		(void)snprintf(text, sizeof(text), "%s" TAIL, names[i]);
		assert_int_equal(proc_stat_parse(text, strlen(text), &st), 0);
		assert_int_equal(st.ppid, 42);
		assert_int_equal(st.state, 'S');
		assert_int_equal(st.start_time, 987654321);
		assert_int_equal(st.stack, 140722000);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(proc_stat_parse(bad[i], strlen(bad[i]), &st), -EBADMSG);
	/* Cut anywhere, it is refused or whole; nothing is read past the end. */
	(void)snprintf(text, sizeof(text), "%s" TAIL, names[1]);
	for (size_t n = 0; n < strlen(text); n++) {
		char *cut = malloc(n + 1);

		memcpy(cut, text, n);
		cut[n] = '\0';
		(void)!proc_stat_parse(cut, n, &st);
		free(cut);
	}
}

static void test_status(void **state)
{
	static const char good[] =
		"Name:\tUid:\\n0\nUmask:\t0022\nTgid:\t77\nPid:\t77\nUid:\t1000\t1001\t1002\t1003\n"
		"Gid:\t5\t6\t7\t8\nNStgid:\t77\t12\t3\n";
	struct proc_status st;

	assert_int_equal(proc_status_parse(good, sizeof(good) - 1, &st), 0);
	assert_int_equal(st.uid, 1000);
	assert_int_equal(st.euid, 1001);
	assert_int_equal(st.suid, 1002);
	assert_int_equal(st.fsuid, 1003);
	assert_int_equal(st.gid, 5);
	assert_int_equal(st.tgid, 77);
	assert_int_equal(st.nspid, 3);
	assert_int_equal(proc_status_parse("Uid:\t1\n", 7, &st), -EBADMSG);
	assert_int_equal(proc_status_parse("Uid:\t1\t1\t1\t1\nGid:\tx\ty\nTgid:\t1\n", 33, &st),
			 -EBADMSG);
	assert_int_equal(proc_status_parse("Uid\0:", 5, &st), -EBADMSG);
}

static void test_cgroup(void **state)
{
	static const char v1[] = "9:name=systemd:/x\n1:cpu:/\n0::/user.slice/a b\n";
	char buf[64];

	assert_int_equal(proc_cgroup_parse(v1, sizeof(v1) - 1, buf, sizeof(buf)), 0);
	assert_string_equal(buf, "/user.slice/a b");
	assert_int_equal(proc_cgroup_parse("1:cpu:/\n", 8, buf, sizeof(buf)), -ENOENT);
	assert_int_equal(proc_cgroup_parse(v1, sizeof(v1) - 1, buf, 4), -ENAMETOOLONG);
}

static void test_mount(void **state)
{
	static const char info[] =
		"30 23 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n"
		"31 30 0:27 / /mnt/a\\040b\\134c rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
	char buf[64];

	assert_int_equal(cgroup_mount_parse(info, sizeof(info) - 1, buf, sizeof(buf)), 0);
	assert_string_equal(buf, "/mnt/a b\\c");
	assert_int_equal(cgroup_mount_parse("x - cgroup2 \n", 13, buf, sizeof(buf)), CGROUP_E_NONE);
	assert_int_equal(cgroup_mount_parse("", 0, buf, sizeof(buf)), CGROUP_E_NONE);
}

static void test_maps(void **state)
{
	static const char text[] =
		"00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/a b (deleted)\n"
		"garbage\n"
		"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n"
		"7fff-7ffe r--p 0 0:0 1\n"
		"7f00-7f01 rw-s 00000000 fe:00 18446744073709551616 /overflow\n"
		"7f0000000000-7f0000001000 rwxp 00000000 00:00 0\n"
		"7f00-7f";
	struct proc_map map;
	size_t pos = 0, len = sizeof(text) - 1;

	assert_int_equal(proc_map_next(text, len, &pos, &map), 1);
	assert_int_equal(map.start, 0x400000);
	assert_int_equal(map.end, 0x452000);
	assert_int_equal(map.pgoff, 0x1000);
	assert_int_equal(map.maj, 8);
	assert_int_equal(map.min, 2);
	assert_int_equal(map.ino, 173521);
	assert_int_equal(map.prot, PROT_READ | PROT_EXEC);
	assert_int_equal(map.path_len, strlen("/usr/bin/a b (deleted)"));
	assert_int_equal(proc_map_next(text, len, &pos, &map), -EBADMSG);
	assert_int_equal(proc_map_next(text, len, &pos, &map), 1);
	assert_int_equal(map.prot, PROT_EXEC);
	/* ends before it begins */
	assert_int_equal(proc_map_next(text, len, &pos, &map), -EBADMSG);
	assert_int_equal(proc_map_next(text, len, &pos, &map), -EBADMSG);
	assert_int_equal(proc_map_next(text, len, &pos, &map), 1);
	assert_int_equal(map.path_len, 0);
	assert_int_equal(proc_map_next(text, len, &pos, &map), -EBADMSG);
	assert_int_equal(proc_map_next(text, len, &pos, &map), 0);

	assert_int_equal(proc_map_find_code(text, len, 8, 2, 173521, 0x1000, &map), 0);
	assert_int_equal(map.start, 0x400000);
	assert_int_equal(proc_map_find_code(text, len, 8, 2, 173521, 0x52fff, &map), 0);
	assert_int_equal(proc_map_find_code(text, len, 8, 2, 173521, 0xfff, &map), -ENOENT);
	assert_int_equal(proc_map_find_code(text, len, 8, 2, 173521, 0x53000, &map), -ENOENT);
	assert_int_equal(proc_map_find_code(text, len, 8, 3, 173521, 0x1000, &map), -ENOENT);
	assert_int_equal(proc_map_find_code(text, len, 8, 2, 173520, 0x1000, &map), -ENOENT);
}

static void test_cpus(void **state)
{
	static const char *const bad[] = {"", "\n", "x", "3-1", "0-", "-1", "0-99999999", "1;2"};
	_cleanup_free_ int *cpus = NULL;
	size_t n;

	assert_int_equal(cpus_parse("0-2,5,7-8\n", &cpus, &n), 0);
	assert_int_equal(n, 6);
	assert_int_equal(cpus[3], 5);
	assert_int_equal(cpus[5], 8);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		int *none;

		assert_int_equal(cpus_parse(bad[i], &none, &n), -EBADMSG);
	}
}

static void test_self(void **state)
{
	struct proc proc = PROC_INIT;
	_cleanup_free_ pid_t *tids = NULL;
	_cleanup_close_ int maps = -1, other = -1;
	char comm[PROC_COMM_MAX];
	pid_t pid;
	uid_t uid;
	size_t n;

	(void)prctl(PR_SET_NAME, ") S 1 (\n");
	assert_int_equal(proc_open(getpid(), -1, &proc), 0);
	assert_true(proc_alive(&proc));
	assert_int_equal(proc.pid, getpid());
	assert_int_equal(proc_comm_read(proc.dirfd, comm, sizeof(comm)), 0);
	assert_string_equal(comm, ") S 1 (\n");
	assert_int_equal(proc_tasks_read(proc.dirfd, &tids, &n), 0);
	assert_true(n >= 1);
	assert_int_equal(proc_thread_group(tids[n - 1], &pid), 0);
	assert_int_equal(pid, getpid());
	assert_int_equal(proc_thread_group(0x7ffffff0, &pid), PROC_E_GONE);
	assert_int_equal(proc_strict_uid(proc.dirfd, &uid), 0);
	assert_int_equal(uid, getuid());
	maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	assert_int_equal(proc_maps_fd_check(&proc, maps), 0);
	other = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
	assert_int_equal(proc_maps_fd_check(&proc, other), PROC_E_MISMATCH);
	/* Not dumpable: its user may not look into it any more. */
	(void)prctl(PR_SET_DUMPABLE, 0);
	assert_int_equal(proc_strict_uid(proc.dirfd, &uid), 0);
	assert_int_equal(uid, 0);
	(void)prctl(PR_SET_DUMPABLE, 1);
	proc_close(&proc);
}

static void test_ended(void **state)
{
	struct proc proc = PROC_INIT, again = PROC_INIT;
	pid_t pid = fork();
	int pidfd;

	if (pid == 0)
		for (;;)
			(void)pause();
	assert_int_equal(proc_open(pid, -1, &proc), 0);
	pidfd = fcntl(proc.pidfd, F_DUPFD_CLOEXEC, 3);
	assert_int_equal(proc_open(getpid(), pidfd, &again), PROC_E_MISMATCH);
	(void)kill(pid, SIGKILL);
	(void)waitid(P_PID, (id_t)pid, NULL, WEXITED | WNOWAIT);
	/* A zombie has its number, but is no process to record. */
	assert_false(proc_alive(&proc));
	assert_int_equal(proc_open(pid, -1, &again), PROC_E_GONE);
	(void)waitpid(pid, NULL, 0);
	assert_int_equal(proc_open(0, pidfd, &again), PROC_E_GONE);
	assert_int_equal(proc_open(pid, -1, &again), PROC_E_GONE);
	assert_int_equal(proc_open(0, STDERR_FILENO, &again), PROC_E_MISMATCH);
	(void)close(pidfd);
	proc_close(&proc);
}

static void test_path_len(void **state)
{
	(void)state;
	assert_int_equal(proc_path_len("/a", 2), 2);
	assert_int_equal(proc_path_len("/a (deleted)", 12), 2);
	assert_int_equal(proc_path_len("/a (deleted) (deleted)", 22), 12);
	assert_int_equal(proc_path_len("/a (deleted) ", 13), 13);
	assert_int_equal(proc_path_len(" (deleted)", 10), 10); /* a name is left */
	assert_int_equal(proc_path_len("/a (deleted)", 11), 11);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stat),     cmocka_unit_test(test_status),
		cmocka_unit_test(test_cgroup),   cmocka_unit_test(test_mount),
		cmocka_unit_test(test_maps),     cmocka_unit_test(test_cpus),
		cmocka_unit_test(test_self),     cmocka_unit_test(test_ended),
		cmocka_unit_test(test_path_len),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
