// SPDX-License-Identifier: Apache-2.0
/* The spool: whose snapshots go first, what a restart finds, and names that a client may ask for. */
#include "daemon/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/io.h"
#include "common/log.h"
#include "common/safefile.h"

/* ---- the rule */

static struct spool_item items[16];
static const struct spool_item *list[16];
static size_t n;
static struct spool_limits limits;
static struct spool_usage usage;

static void start(void)
{
	memset(items, 0, sizeof(items));
	n = 0;
	limits = (struct spool_limits){.exempt = 999};
	usage = (struct spool_usage){.free_bytes = 1000, .total_bytes = 10000, .now_ns = 1000};
}

static void item(uid_t owner, uint64_t bytes, uint64_t published)
{
	items[n] = (struct spool_item){.owner = owner, .bytes = bytes, .published_ns = published};
	list[n] = &items[n];
	n++;
}

static ssize_t pick(uid_t owner, uint64_t incoming)
{
	return spool_pick_victim(list, n, &limits, &usage, owner, incoming);
}

static void test_rule(void **state)
{
	start();
	item(1, 10, 100);
	item(2, 100, 200);
	item(2, 100, 300);
	item(2, 100, 400);
	assert_int_equal(pick(1, 100), -1); /* no limits */
	/* age: the oldest, whoever has it */
	limits.max_age_ns = 900;
	assert_int_equal(pick(1, 0), 0);
	limits.max_age_ns = 901;
	assert_int_equal(pick(1, 0), -1);
	/* count and size: of who holds most, the one who asks included */
	limits = (struct spool_limits){.max_count = 4};
	assert_int_equal(pick(1, 0), -1);
	assert_int_equal(pick(1, 1), 1);
	limits = (struct spool_limits){.max_bytes = 400};
	assert_int_equal(pick(1, 90), -1);
	assert_int_equal(pick(1, 91), 1);
	assert_int_equal(pick(1, 1000), 0);
	/* one's own share: one's own oldest */
	limits = (struct spool_limits){.uid_bytes = 350};
	assert_int_equal(pick(2, 50), -1);
	assert_int_equal(pick(2, 51), 1);
	assert_int_equal(pick(1, 51), -1);
	assert_int_equal(pick(3, 1000), -1); /* has none to give */
	assert_int_equal(pick(0, 1000), -1); /* root has only the limits of the whole */
	/* free disk */
	limits = (struct spool_limits){.keep_free_percent = 5};
	assert_int_equal(pick(1, 500), -1);
	assert_int_equal(pick(1, 501), 0);
	limits.keep_free_percent = 10;
	assert_int_equal(pick(3, 1), 1);
	start();
	limits.keep_free_percent = 50;
	assert_int_equal(pick(1, 1), -1); /* nothing can go */
}

/* ---- the directory */

static char dir[64];
static struct spool *spool;

static void put(const char *path, const char *text)
{
	int fd;

	assert_int_equal(safefile_create(spool_dir_fd(spool), path, &fd), 0);
	assert_int_equal(io_write_all(fd, text, strlen(text)), 0);
	(void)close(fd);
}

static int setup(void **state)
{
	const struct spool_limits none = {0};

	(void)strcpy(dir, "/tmp/tracerd-spool-XXXXXX");
	assert_non_null(mkdtemp(dir));
	return spool_open(dir, &none, &spool);
}

static int teardown(void **state)
{
	int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

	spool_close(spool);
	r = safefile_remove_tree(tmp, dir + strlen("/tmp/"));
	(void)close(tmp);
	return r;
}

static void reopen(void)
{
	const struct spool_limits none = {0};

	spool_close(spool);
	assert_int_equal(spool_open(dir, &none, &spool), 0);
}

static int opened_by_another(void)
{
	const struct spool_limits none = {0};
	struct spool *second;
	int status = -1;
	pid_t pid = fork();

	if (pid == 0)
		_exit(-spool_open(dir, &none, &second));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return -WEXITSTATUS(status);
}

/* The child of a fork has the descriptors, but not the lock: it may live on when we do not. */
static void test_lock_is_not_inherited(void **state)
{
	const struct spool_limits none = {0};
	pid_t child = fork();

	if (child == 0)
		for (;;)
			(void)pause();
	spool_close(spool);
	assert_int_equal(opened_by_another(), 0);
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(spool_open(dir, &none, &spool), 0);
}

#define ID "20260101-000000-00a"

static void test_restart(void **state)
{
	const struct spool_item *i;

	put(ID "1/meta.json", "{\"format\":1,\"snapshot\":{\"uid\":1000,\"published_at\":7}}");
	put(ID "1/perf.data", "12345");
	put(ID "2/meta.json", "{\"format\":1,\"snapshot\":{\"uid\":-1,\"published_at\":7}}");
	put(ID "2/perf.data", "x");
	put(ID "3/meta.json", "not JSON");
	put(ID "3/perf.data", "x");
	put(ID "4/other", "x");
	put(".tmp-" ID "5/perf.data", "half");
	put(".tmp-removed-" ID "6/perf.data", "deleted");
	put("lost+found/x", "not ours");
	assert_int_equal(symlinkat("/etc", spool_dir_fd(spool), ID "7"), 0);
	assert_int_equal(opened_by_another(), -EBUSY);
	reopen();
	assert_int_equal(opened_by_another(), -EBUSY);
	assert_int_equal(spool_count(spool), 4);
	i = spool_find(spool, ID "1");
	assert_non_null(i);
	assert_int_equal(i->owner, 1000);
	assert_int_equal(i->published_ns, 7);
	assert_true(i->bytes > 5);
	/* what has no owner that can be believed is root's */
	assert_int_equal(spool_find(spool, ID "2")->owner, 0);
	assert_int_equal(spool_find(spool, ID "3")->owner, 0);
	assert_int_equal(spool_find(spool, ID "4")->owner, 0);
	assert_true(faccessat(spool_dir_fd(spool), ".tmp-" ID "5", F_OK, 0) < 0);
	assert_true(faccessat(spool_dir_fd(spool), ".tmp-removed-" ID "6", F_OK, 0) < 0);
	assert_int_equal(spool_uid_bytes(spool, 1000), i->bytes);
	assert_ptr_equal(spool_at(spool, 3), i); /* the newest is last */
}

static void test_files(void **state)
{
	struct json_object *files;
	uint64_t size;
	int fd;

	put(ID "1/meta.json", "{\"format\":1,\"snapshot\":{\"uid\":1000,\"published_at\":7}}");
	put(ID "1/perf.data", "12345");
	put("secret", "s");
	reopen();
	assert_int_equal(spool_files(spool, ID "1", &files), 0);
	assert_int_equal(json_object_array_length(files), 2);
	json_object_put(files);
	assert_int_equal(spool_open_file(spool, ID "1", "perf.data", &fd, &size), 0);
	assert_int_equal(size, 5);
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	(void)close(fd);
	assert_int_equal(spool_open_file(spool, ID "1", "../secret", &fd, &size), -ENOENT);
	assert_int_equal(spool_open_file(spool, ID "1", "/etc/passwd", &fd, &size), -ENOENT);
	assert_int_equal(spool_open_file(spool, ID "1", "", &fd, &size), -ENOENT);
	assert_int_equal(spool_open_file(spool, ID "1", ".", &fd, &size), -ENOENT);
	assert_int_equal(spool_open_file(spool, "..", "secret", &fd, &size), -ENOENT);
	assert_int_equal(spool_files(spool, ID "9", &files), -ENOENT);
	assert_int_equal(spool_remove(spool, ID "1", "test"), 0);
	assert_int_equal(spool_remove(spool, ID "1", "test"), -ENOENT);
	assert_int_equal(spool_open_file(spool, ID "1", "perf.data", &fd, &size), -ENOENT);
	spool_purge(spool);
	assert_true(faccessat(spool_dir_fd(spool), ".tmp-removed-" ID "1", F_OK, 0) < 0);
	assert_int_equal(spool_bytes(spool), 0);
}

static void test_ids(void **state)
{
	char id[SPOOL_ID_LEN + 1];

	spool_new_id(spool, id);
	assert_true(spool_id_is_valid(id));
	assert_true(spool_id_is_valid("20261121-101500-3f9a"));
	assert_false(spool_id_is_valid(""));
	assert_false(spool_id_is_valid("20261121-101500-3f9"));
	assert_false(spool_id_is_valid("20261121-101500-3f9a0"));
	assert_false(spool_id_is_valid("20261121-101500-3F9a"));
	assert_false(spool_id_is_valid("2026112/-101500-3f9a"));
}

static void test_room(void **state)
{
	const struct spool_limits small = {.max_bytes = 1000, .uid_bytes = 500, .exempt = 999};

	spool_close(spool);
	assert_int_equal(spool_open(dir, &small, &spool), 0);
	assert_int_equal(spool_make_room(spool, 1000, 501), SPOOL_E_QUOTA);
	assert_int_equal(spool_make_room(spool, 0, 1001), SPOOL_E_NO_SPACE);
	assert_int_equal(spool_make_room(spool, 0, 1000), 0);
	put(ID "1/perf.data", "x");
	put(ID "2/perf.data", "x");
	assert_int_equal(spool_add(spool, ID "1", 1000, 400, 1, json_object_new_object()), 0);
	assert_int_equal(spool_add(spool, ID "2", 1001, 400, 2, json_object_new_object()), 0);
	assert_int_equal(spool_make_room(spool, 1000, 100), 0);
	assert_int_equal(spool_count(spool), 2);
	assert_int_equal(spool_make_room(spool, 1000, 200), 0); /* its own went */
	assert_int_equal(spool_count(spool), 1);
	assert_non_null(spool_find(spool, ID "2"));
	assert_int_equal(spool_make_room(spool, 0, 1001), SPOOL_E_NO_SPACE);
	assert_int_equal(spool_count(spool), 1); /* nothing goes for what cannot fit */
	assert_int_equal(spool_make_room(spool, 0, UINT64_MAX), SPOOL_E_NO_SPACE);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rule), T(test_restart), T(test_lock_is_not_inherited), T(test_files), T(test_ids), T(test_room),
	};

	log_init("test-spool", LOG_L_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
