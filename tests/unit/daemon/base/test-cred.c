// SPDX-License-Identifier: Apache-2.0
/*
 * What /proc/PID/status says of a process's rights, also where its name tries to say more, or where
 * the text is broken.
 */
#include "daemon/base/cred.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/decoder/opener_protocol.h"

#define TEXT(name, uid, gid, groups)                                                                                        \
	"Name:\t" name "\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t1\nUid:\t" uid "\nGid:\t" gid "\nFDSize:\t64\nGroups:\t"  \
	groups "\nNStgid:\t1\n"

static int parse(const char *text)
{
	_cleanup_(cred_unrefp) struct cred *cred = NULL;

	return cred_parse(text, &cred);
}

static void test_fields(void **state)
{
	struct cred *a, *b, *c;

	(void)state;
	assert_int_equal(cred_parse(TEXT("x", "1\t2\t3\t4", "5\t6\t7\t8", "9 10 4294967295 "), &a),
			 0);
	assert_int_equal(a->uid, 4);
	assert_int_equal(a->gid, 8);
	assert_int_equal(a->n_groups, 3);
	assert_int_equal(a->groups[2], UINT32_MAX);
	assert_false(a->plain);
	assert_int_equal(cred_parse(TEXT("x", "4\t4\t4\t4", "8\t8\t8\t8", " "), &b), 0);
	assert_int_equal(b->n_groups, 0);
	assert_true(b->plain);
	assert_false(cred_equal(a, b));
	assert_int_equal(cred_parse(TEXT("y", "4\t4\t4\t4", "8\t8\t8\t8", ""), &c), 0);
	assert_true(cred_equal(c, b));
	(void)cred_unref(a);
	(void)cred_unref(b);
	(void)cred_unref(c);
	/* one of the group ids is another's: saved, so that it can be taken up again */
	assert_int_equal(cred_parse(TEXT("x", "4\t4\t4\t4", "8\t8\t9\t8", ""), &a), 0);
	assert_false(a->plain);
	(void)cred_unref(a);
}

/* The kernel writes a newline in a name as two characters. */
static void test_hostile_name(void **state)
{
	struct cred *cred;

	(void)state;
	assert_int_equal(cred_parse(TEXT("Uid:\\nUid:\t0\t0", "4\t4\t4\t4", "8\t8\t8\t8", "9 "),
				    &cred),
			 0);
	assert_int_equal(cred->uid, 4);
	assert_int_equal(cred->n_groups, 1);
	(void)cred_unref(cred);
}

static void test_broken(void **state)
{
	static const char whole[] = TEXT("x", "4\t4\t4\t4", "8\t8\t8\t8", "9 10 ");
	const size_t end = (size_t)(strstr(whole, "\nNStgid:") - whole);
	char text[sizeof(whole)];

	(void)state;
	/*
	 * Cut anywhere before the end of the groups it is no answer: a group that lacks may be one
	 * that takes rights away.
	 */
	for (size_t n = 0; n <= end; n++) {
		memcpy(text, whole, n);
		text[n] = '\0';
		assert_int_equal(parse(text), -EBADMSG);
	}
	assert_int_equal(parse(whole), 0);
	assert_int_equal(parse(TEXT("x", "4\t4\t4", "8\t8\t8\t8", "9 ")), -EBADMSG);
	assert_int_equal(parse(TEXT("x", "4\t4\t4\t4\t4", "8\t8\t8\t8", "9 ")), -EBADMSG);
	assert_int_equal(parse(TEXT("x", "4\t4\t4\t-4", "8\t8\t8\t8", "9 ")), -EBADMSG);
	assert_int_equal(parse(TEXT("x", "4\t4\t4\t4294967296", "8\t8\t8\t8", "9 ")), -EBADMSG);
	assert_int_equal(parse(TEXT("x", "4\t4\t4\t4", "8\t8\t8\t8", "9 ten ")), -EBADMSG);
	assert_int_equal(parse(TEXT("x", "4\t4\t4\t4", "8\t8\t8\t8", "99999999999999999999999 ")),
			 -EBADMSG);
}

static void test_many_groups(void **state)
{
	static char text[OPENER_MAX_GROUPS * 8 + 512];
	struct cred *cred;

	(void)state;
	for (size_t groups = OPENER_MAX_GROUPS; groups <= OPENER_MAX_GROUPS + 1; groups++) {
		char *p = text +
			  sprintf(text, "Name:\tx\nUid:\t4\t4\t4\t4\nGid:\t8\t8\t8\t8\nGroups:\t");

		for (size_t i = 0; i < groups; i++)
			p += sprintf(p, "%zu ", i);
		(void)strcpy(p, "\n");
		if (groups > OPENER_MAX_GROUPS) {
			assert_int_equal(cred_parse(text, &cred), -E2BIG);
			break;
		}
		assert_int_equal(cred_parse(text, &cred), 0);
		assert_int_equal(cred->n_groups, OPENER_MAX_GROUPS);
		assert_int_equal(cred->groups[OPENER_MAX_GROUPS - 1], OPENER_MAX_GROUPS - 1);
		(void)cred_unref(cred);
	}
}

static int in_child(int (*work)(int proc))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		int proc = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);

		_exit(proc < 0 ? 99 : work(proc));
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WEXITSTATUS(status);
}

static int plain(int proc)
{
	struct cred *cred;
	int r = cred_read_plain(proc, getuid(), &cred);

	if (r == 0)
		(void)cred_unref(cred);
	return -r;
}

static int other_user(int proc)
{
	return setresuid(4711, 4711, 4711) < 0 || prctl(PR_SET_DUMPABLE, 1) < 0 ? 99 : plain(proc);
}

static int not_dumpable(int proc)
{
	return setresuid(4711, 4711, 4711) < 0 ? 99 : plain(proc);
}

/* Even where it has itself looked into. */
static int other_group(int proc)
{
	return setresgid(4711, 4712, 4712) < 0 || setresuid(4711, 4711, 4711) < 0 ||
			       prctl(PR_SET_DUMPABLE, 1) < 0
		       ? 99
		       : plain(proc);
}

static int kept_user(int proc)
{
	return setresuid(4711, 4711, 0) < 0 || prctl(PR_SET_DUMPABLE, 1) < 0 ? 99 : plain(proc);
}

static void test_plain(void **state)
{
	(void)state;
	assert_int_equal(in_child(plain), 0);
	if (geteuid() != 0) {
		print_message("SKIP: only root becomes others\n");
		return;
	}
	assert_int_equal(in_child(other_user), 0);
	assert_int_equal(in_child(not_dumpable), EACCES);
	assert_int_equal(in_child(other_group), EACCES);
	assert_int_equal(in_child(kept_user), EACCES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields),
		cmocka_unit_test(test_hostile_name),
		cmocka_unit_test(test_broken),
		cmocka_unit_test(test_many_groups),
		cmocka_unit_test(test_plain),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
