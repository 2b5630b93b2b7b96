// SPDX-License-Identifier: Apache-2.0
/*
 * The daemon's side of tracerd-open, against the real one: rights, deadline, queue, limits, and
 * what dies meanwhile.
 */
#include "daemon/target/opening.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/io.h"
#include "common/base/procfs.h"
#include "common/base/safefile.h"
#include "common/control/json.h"

#define PATIENCE_S 300
#define USER 4711
#define GROUP 4712
#define USERS 40 /* more than a socket takes commands with all groups that there can be */
#define UID_WAITING 1536 /* as opening.c has it */
#define UID_WORKERS 8
#define WORKERS_TRIED 70 /* more than there are of all users */

static char dir[64], program[4096];
static int root_fd;
static struct event_base *base;
static struct openings *openings;

static void file_at(const char *name, uid_t uid, gid_t gid, mode_t mode)
{
	int fd = openat(root_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(io_write_all(fd, "\177ELFrest", 8), 0);
	assert_int_equal(fchown(fd, uid, gid), 0);
	assert_int_equal(fchmod(fd, mode), 0);
	(void)close(fd);
}

static int setup(void **state)
{
	(void)strcpy(dir, "/tmp/tracerd-opening-XXXXXX");
	assert_non_null(mkdtemp(dir));
	root_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(root_fd >= 0);
	assert_int_equal(fchmod(root_fd, 0755), 0);
	file_at("all", getuid(), getgid(), 0644);
	base = event_base_new();
	assert_non_null(base);
	return openings_new(base, program, &openings);
}

static int teardown(void **state)
{
	int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

	openings = openings_free(openings);
	event_base_free(base);
	(void)close(root_fd);
	r = safefile_remove_tree(tmp, dir + strlen("/tmp/"));
	(void)close(tmp);
	return r;
}

/* ---- requests */

struct asked {
	struct opening *opening;
	bool answered, found;
	char why[256];
};

static void on_answer(void *arg, const struct opener_reply *answer, int fd)
{
	struct asked *a = arg;

	assert_false(a->answered);
	a->opening = NULL;
	a->answered = true;
	a->found = fd >= 0;
	(void)snprintf(a->why, sizeof(a->why), "%s", answer->answer.why);
	(void)close_fd(fd);
}

static struct cred *rights(uid_t uid, gid_t gid, const char *groups)
{
	struct cred *cred;
	char text[256];

	(void)snprintf(text, sizeof(text),
		       "Name:\tx\nUid:\t%u\t%u\t%u\t%u\nGid:\t%u\t%u\t%u\t%u\nGroups:\t%s\n", uid,
		       uid, uid, uid, gid, gid, gid, gid, groups);
	assert_int_equal(cred_parse(text, &cred), 0);
	return cred;
}

static struct cred *own_rights(void)
{
	_cleanup_close_ int proc = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct cred *cred;

	assert_int_equal(cred_read(proc, &cred), 0);
	return cred;
}

/* Takes over the reference. */
static int ask(struct cred *cred, const char *name, struct asked *a)
{
	struct file_request file = {.kind = FILE_REQUEST_DWZ};
	const struct opening_request request = {.cred = cred,
						.root_fd = root_fd,
						.mapped_fd = -1,
						.file = &file};
	int r;

	(void)snprintf(file.path, sizeof(file.path), "/%s", name);
	*a = (struct asked){0};
	r = opening_start(openings, &request, on_answer, a, &a->opening);
	(void)cred_unref(cred);
	assert_false(a->answered);
	return r;
}

static void run_until(const bool *done)
{
	const struct timeval slice = {.tv_usec = 20000};
	const uint64_t end = io_now_ns() + PATIENCE_S * 1000000000ULL;

	while (!*done) {
		assert_true(io_now_ns() < end);
		(void)event_base_loopexit(base, &slice);
		(void)event_base_dispatch(base);
	}
}

#define LATE "its file system did not answer in time"

/*
 * Found, or why not. A machine with much to do may be late with a worker, which is none of what is
 * asked here.
 */
static const char *asked(struct cred *cred, const char *name)
{
	static struct asked a;

	do {
		assert_int_equal(ask(cred_ref(cred), name, &a), 0);
		run_until(&a.answered);
	} while (!strcmp(a.why, LATE));
	(void)cred_unref(cred);
	return a.found ? "found" : a.why;
}

/* ---- processes */

/*
 * The child of that process which is a tracerd-open, or 0: there is none yet, or one of an earlier
 * test still ends beside it.
 */
static pid_t opener_of(pid_t parent)
{
	DIR *proc = opendir("/proc");
	struct dirent *e;
	pid_t found = 0;
	unsigned int n = 0;

	assert_non_null(proc);
	while ((e = readdir(proc)) != NULL) {
		_cleanup_close_ int fd = -1;
		struct proc_stat stat;
		char comm[32];

		if (*e->d_name < '0' || *e->d_name > '9')
			continue;
		fd = openat(dirfd(proc), e->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (fd >= 0 && proc_stat_read(fd, &stat) == 0 && stat.ppid == parent &&
		    stat.state != 'Z' && proc_comm_read(fd, comm, sizeof(comm)) == 0 &&
		    !strcmp(comm, "tracerd-open")) {
			found = (pid_t)strtol(e->d_name, NULL, 10);
			n++;
		}
	}
	(void)closedir(proc);
	return n == 1 ? found : 0;
}

static pid_t front(void)
{
	pid_t pid;

	while ((pid = opener_of(getpid())) == 0)
		(void)usleep(1000);
	return pid;
}

/* The only worker: it has answered once, and does not go on. */
static pid_t stopped_worker(void)
{
	pid_t pid = 0;

	/* One that the test before it left may end just now. */
	for (int i = 0; i < 6000 && pid == 0; i++) {
		assert_string_equal(asked(own_rights(), "all"), "found");
		pid = opener_of(front());
		if (pid == 0)
			(void)usleep(10000);
	}
	assert_true(pid > 0);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	return pid;
}

/* ---- tests */

static void test_rights(void **state)
{
	if (geteuid() != 0) {
		print_message("SKIP: only root opens files as others\n");
		return;
	}
	file_at("users", USER, USER, 0600);
	file_at("groups", 0, GROUP, 0640);
	file_at("roots", 0, 0, 0600);
	file_at("nobodys", USER, USER, 0);
	assert_string_equal(asked(rights(USER, USER, ""), "users"), "found");
	assert_non_null(strstr(asked(rights(USER + 1, USER + 1, ""), "users"), strerror(EACCES)));
	assert_non_null(strstr(asked(rights(USER, USER, ""), "groups"), strerror(EACCES)));
	assert_string_equal(asked(rights(USER, USER, "4712"), "groups"), "found");
	assert_string_equal(asked(rights(USER, GROUP, ""), "groups"), "found");
	assert_non_null(strstr(asked(rights(USER, 0, "0"), "roots"), strerror(EACCES)));
	/* root may read what nobody else may */
	assert_string_equal(asked(rights(0, USER, ""), "nobodys"), "found");
	assert_string_equal(asked(rights(USER, USER, ""), "all"), "found");
}

static void test_hangs(void **state)
{
	struct asked a[3];

	(void)stopped_worker();
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(ask(own_rights(), "all", &a[i]), 0);
	for (size_t i = 0; i < 3; i++)
		run_until(&a[i].answered);
	assert_string_equal(a[0].why, LATE);
	assert_true(a[1].found && a[2].found);
}

static void test_dies(void **state)
{
	struct asked a[2];
	pid_t worker = stopped_worker();

	for (size_t i = 0; i < 2; i++)
		assert_int_equal(ask(own_rights(), "all", &a[i]), 0);
	assert_int_equal(kill(worker, SIGKILL), 0);
	for (size_t i = 0; i < 2; i++)
		run_until(&a[i].answered);
	assert_string_equal(a[0].why, "the opener has ended");
	assert_true(a[1].found);
}

static void test_cancel(void **state)
{
	struct asked with_worker, queued, refused, last;
	pid_t worker = stopped_worker();

	assert_int_equal(ask(own_rights(), "all", &with_worker), 0);
	assert_int_equal(ask(own_rights(), "all", &queued), 0);
	assert_int_equal(ask(own_rights(), "all", &last), 0);
	assert_null(opening_cancel(with_worker.opening));
	assert_null(opening_cancel(queued.opening));
	assert_int_equal(kill(worker, SIGCONT), 0);
	run_until(&last.answered);
	assert_true(last.found);
	assert_false(with_worker.answered || queued.answered);
	/* without a front all are refused, at the next turn of the loop */
	assert_int_equal(kill(front(), SIGKILL), 0);
	while (strcmp(asked(own_rights(), "all"), "found") == 0)
		;
	assert_int_equal(ask(own_rights(), "all", &refused), 0);
	assert_null(opening_cancel(refused.opening));
	assert_int_equal(ask(own_rights(), "all", &last), 0);
	run_until(&last.answered);
	assert_false(refused.answered);
	assert_null(opening_cancel(NULL));
}

static void test_front_killed(void **state)
{
	_cleanup_json_ struct json_object *status = json_object_new_object(),
					  *lack = json_object_new_array();
	struct asked a[2];

	(void)stopped_worker();
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(ask(own_rights(), "all", &a[i]), 0);
	assert_int_equal(kill(front(), SIGKILL), 0);
	for (size_t i = 0; i < 2; i++)
		run_until(&a[i].answered);
	assert_false(a[0].found || a[1].found);
	assert_non_null(strstr(asked(own_rights(), "all"), "tracerd-open has ended"));
	openings_status(openings, status, lack);
	assert_int_equal(json_object_array_length(lack), 1);
}

static void test_waiting_limit(void **state)
{
	static struct asked a[UID_WAITING + 1];
	size_t n = 0;

	(void)stopped_worker();
	while (n <= UID_WAITING && ask(own_rights(), "all", &a[n]) == 0)
		n++;
	assert_int_equal(n, UID_WAITING);
	if (geteuid() == 0)
		assert_string_equal(asked(rights(USER, USER, ""), "all"), "found");
}

/* While the front does nothing, so that no worker is done. */
static void test_many_users(void **state)
{
	static struct asked a[USERS];
	pid_t pid = front();

	if (geteuid() != 0) {
		print_message("SKIP: only root opens files as others\n");
		return;
	}
	assert_int_equal(kill(pid, SIGSTOP), 0);
	for (uid_t i = 0; i < USERS; i++)
		assert_int_equal(ask(rights(USER + i, USER, "1 2 3"), "all", &a[i]), 0);
	assert_int_equal(kill(pid, SIGCONT), 0);
	for (size_t i = 0; i < USERS; i++) {
		run_until(&a[i].answered);
		assert_true(a[i].found || !strcmp(a[i].why, LATE));
	}
}

static void test_many_sets_of_one_user(void **state)
{
	static struct asked a[WORKERS_TRIED], other;
	unsigned int refused = 0;
	pid_t pid = front();

	if (geteuid() != 0) {
		print_message("SKIP: only root opens files as others\n");
		return;
	}
	assert_int_equal(kill(pid, SIGSTOP), 0);
	for (gid_t i = 0; i < WORKERS_TRIED; i++)
		assert_int_equal(ask(rights(USER, GROUP + i, ""), "all", &a[i]), 0);
	assert_int_equal(ask(rights(USER + 1, USER, ""), "all", &other), 0);
	assert_int_equal(kill(pid, SIGCONT), 0);
	run_until(&other.answered);
	assert_null(strstr(other.why, "too many"));
	for (size_t i = 0; i < WORKERS_TRIED; i++) {
		run_until(&a[i].answered);
		refused += strstr(a[i].why, "too many") != NULL;
	}
	assert_int_equal(refused, WORKERS_TRIED - UID_WORKERS);
	/* and when they have nothing to do, one of them makes room */
	assert_string_equal(asked(rights(USER, USER, ""), "all"), "found");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_rights, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hangs, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dies, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cancel, setup, teardown),
		cmocka_unit_test_setup_teardown(test_front_killed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_waiting_limit, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_users, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_sets_of_one_user, setup, teardown),
	};
	const char *build = getenv("TRACERD_BUILD");

	(void)snprintf(program, sizeof(program), "%s/tracerd-open", build ? build : ".");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
