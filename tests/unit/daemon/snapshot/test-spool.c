// SPDX-License-Identifier: Apache-2.0
/*
 * The spool: whose snapshots go first, what a restart finds, and names that a client may ask for.
 */
#include "daemon/snapshot/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "common/base/safefile.h"

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
	/* what is held counts, but cannot go; what is leaving does not count */
	start();
	item(1, 300, 100);
	item(1, 100, 200);
	item(2, 100, 300);
	items[0].state = SPOOL_HELD;
	limits = (struct spool_limits){.uid_bytes = 450};
	assert_int_equal(pick(1, 51), 1);
	items[1].state = SPOOL_HELD;
	assert_int_equal(pick(1, 51), -1);
	items[0].state = items[1].state = SPOOL_LEAVING;
	assert_int_equal(pick(1, 450), -1);
	limits = (struct spool_limits){.max_bytes = 450, .max_count = 2};
	assert_int_equal(pick(1, 300), -1);
	items[0].state = SPOOL_HELD;
	assert_int_equal(pick(1, 51), 2); /* of those who have something to give */
	/* one's own share behind a publish: the last one stays */
	items[0].state = items[1].state = SPOOL_KEPT;
	limits = (struct spool_limits){.uid_bytes = 350};
	assert_int_equal(pick(1, 0), 0);
	limits = (struct spool_limits){.uid_bytes = 50};
	assert_int_equal(pick(2, 0), -1);
	start();
	limits.keep_free_percent = 50;
	assert_int_equal(pick(1, 1), -1); /* nothing can go */
}

/* ---- the directory */

static char dir[64];
static struct spool *spool;
static struct quota quota;

static void open_with(const struct spool_limits *l)
{
	assert_int_equal(spool_open(dir, l, &quota, &spool), 0);
}

static void add(const char *id, uid_t owner, uint64_t bytes, uint64_t published_ns)
{
	struct spool_item *new;

	assert_int_equal(spool_reserve(spool, id, owner, &new), 0);
	spool_add(spool, new, bytes, published_ns);
}

static void purge(void)
{
	struct spool_purge *p = spool_purge_begin(spool);

	if (p)
		spool_purge_run(p);
	spool_purge_end(p);
}

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
	quota = (struct quota){.exempt = 999};
	open_with(&none);
	return 0;
}

static int teardown(void **state)
{
	int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

	spool_close(spool);
	quota_fini(&quota); /* nothing is charged any more */
	r = safefile_remove_tree(tmp, dir + strlen("/tmp/"));
	(void)close(tmp);
	return r;
}

static void reopen(void)
{
	const struct spool_limits none = {0};

	spool_close(spool);
	open_with(&none);
}

static int opened_by_another(void)
{
	const struct spool_limits none = {0};
	struct spool *second;
	int status = -1;
	pid_t pid = fork();

	if (pid == 0)
		_exit(-spool_open(dir, &none, &quota, &second));
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
	open_with(&none);
}

#define ID "20260101-000000-00a"

static void test_restart(void **state)
{
	const struct spool_item *i;
	uint64_t bytes;

	put(ID "1/meta.json", "{\"format\":1,\"snapshot\":{\"uid\":1000,\"published_at\":7}}");
	put(ID "1/perf.data", "12345");
	put(ID "2/meta.json", "{\"format\":1,\"snapshot\":{\"uid\":-1,\"published_at\":7}}");
	put(ID "2/perf.data", "x");
	put(ID "3/meta.json", "not JSON");
	put(ID "3/perf.data", "x");
	put(ID "4/other", "x");
	put(".tmp-" ID "5/perf.data", "half");
	put(".removed-" ID "6/meta.json",
	    "{\"format\":1,\"snapshot\":{\"uid\":1001,\"published_at\":7}}");
	put(".removed-" ID "6/perf.data", "deleted");
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
	assert_int_equal(spool_uid_bytes(spool, 1000), i->bytes);
	assert_int_equal(quota_used(&quota, 1000, QUOTA_SPOOL_BYTES), i->bytes);
	assert_ptr_equal(spool_at(spool, 3), i); /* the newest is last */
	/* what was removed is its owner's still, until it is gone */
	assert_null(spool_find(spool, ID "6"));
	assert_true(quota_used(&quota, 1001, QUOTA_SPOOL_BYTES) > strlen("deleted"));
	assert_int_equal(spool_removing(spool, &bytes), 1);
	purge();
	assert_int_equal(spool_removing(spool, &bytes), 0);
	assert_int_equal(quota_used(&quota, 1001, QUOTA_SPOOL_BYTES), 0);
	assert_true(faccessat(spool_dir_fd(spool), ".removed-" ID "6", F_OK, 0) < 0);
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
	assert_true(spool_bytes(spool) > 5);
	purge();
	assert_true(faccessat(spool_dir_fd(spool), ".removed-" ID "1", F_OK, 0) < 0);
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
	open_with(&small);
	assert_int_equal(spool_make_room(spool, 1000, 501), SPOOL_E_QUOTA);
	assert_int_equal(spool_make_room(spool, 0, 1001), SPOOL_E_NO_SPACE);
	assert_int_equal(spool_make_room(spool, 0, 1000), 0);
	put(ID "1/perf.data", "x");
	put(ID "2/perf.data", "x");
	add(ID "1", 1000, 400, 1);
	add(ID "2", 1001, 400, 2);
	assert_int_equal(spool_make_room(spool, 1000, 100), 0);
	assert_int_equal(spool_count(spool), 2);
	assert_int_equal(spool_make_room(spool, 1000, 200), 0); /* its own went */
	assert_int_equal(spool_count(spool), 1);
	assert_non_null(spool_find(spool, ID "2"));
	assert_int_equal(spool_make_room(spool, 0, 1001), SPOOL_E_NO_SPACE);
	assert_int_equal(spool_count(spool), 1); /* nothing goes for what cannot fit */
	assert_int_equal(spool_make_room(spool, 0, UINT64_MAX), SPOOL_E_NO_SPACE);
}

static void assert_state(const char *id, enum spool_item_state state)
{
	const struct spool_item *i;

	for (size_t k = 0; (i = spool_at(spool, k)) != NULL; k++)
		if (!strcmp(i->id, id)) {
			assert_int_equal(i->state, state);
			return;
		}
	fail_msg("%s is not there", id);
}

/* What a descriptor or a mapping holds stays charged and makes no room; in the end it is cut. */
static void test_held(void **state)
{
	struct spool_limits l = {.uid_bytes = 1000, .exempt = 999, .hold_ns = UINT64_MAX};
	char buf[8];
	uint64_t size;
	void *map;
	int fd;

	spool_close(spool);
	open_with(&l);
	put(ID "1/perf.data", "12345");
	put(ID "1/images/a/b", "1234567890");
	put(ID "1/meta.json", "{}");
	add(ID "1", 1000, 900, 1);
	assert_int_equal(spool_open_file(spool, ID "1", "images/a/b", &fd, &size), 0);
	/* it had to go, but cannot yet */
	assert_int_equal(spool_make_room(spool, 1000, 200), SPOOL_E_QUOTA);
	assert_state(ID "1", SPOOL_HELD);
	purge();
	assert_state(ID "1", SPOOL_HELD);
	/* what nobody has is gone; meta.json says whose the rest is */
	assert_int_equal(quota_used(&quota, 1000, QUOTA_SPOOL_BYTES), 12);
	assert_true(faccessat(spool_dir_fd(spool), ".removed-" ID "1/perf.data", F_OK, 0) < 0);
	assert_true(faccessat(spool_dir_fd(spool), ".removed-" ID "1/meta.json", F_OK, 0) == 0);
	assert_int_equal(pread(fd, buf, sizeof(buf), 0), 8);
	/* mapped, with the descriptor closed */
	map = mmap(NULL, 10, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	(void)close(fd);
	purge();
	assert_int_equal(quota_used(&quota, 1000, QUOTA_SPOOL_BYTES), 12);
	assert_int_equal(munmap(map, 10), 0);
	purge();
	assert_null(spool_at(spool, 0));

	/* never handed out: it is as good as gone */
	put(ID "2/perf.data", "12345");
	add(ID "2", 1000, 900, 1);
	assert_int_equal(spool_make_room(spool, 1000, 200), 0);
	assert_state(ID "2", SPOOL_LEAVING);
	purge();

	/* held for ever, in vain */
	l.hold_ns = 0;
	spool_close(spool);
	open_with(&l);
	put(ID "3/perf.data", "12345");
	add(ID "3", 1000, 900, 1);
	assert_int_equal(spool_open_file(spool, ID "3", "perf.data", &fd, &size), 0);
	assert_int_equal(spool_remove(spool, ID "3", "test"), 0);
	assert_int_equal(quota_used(&quota, 1000, QUOTA_SPOOL_BYTES), 900);
	purge();
	assert_null(spool_at(spool, 0));
	assert_int_equal(size, 5);
	assert_int_equal(pread(fd, buf, sizeof(buf), 0), 0); /* its space is free */
	(void)close(fd);
}

/* Purges one behind the other have each what was removed before them, once. */
static void test_purges(void **state)
{
	struct spool_purge *first, *second;
	uint64_t bytes;

	put(ID "1/perf.data", "x");
	put(ID "2/perf.data", "x");
	add(ID "1", 1000, 1, 1);
	add(ID "2", 1000, 1, 2);
	assert_null(spool_purge_begin(spool));
	assert_int_equal(spool_remove(spool, ID "1", "test"), 0);
	first = spool_purge_begin(spool);
	assert_int_equal(spool_remove(spool, ID "2", "test"), 0);
	second = spool_purge_begin(spool);
	assert_non_null(first);
	assert_non_null(second);
	assert_null(spool_purge_begin(spool));
	spool_purge_run(first);
	spool_purge_end(first);
	assert_int_equal(spool_removing(spool, &bytes), 1);
	assert_int_equal(bytes, 1);
	/* given up before it ran: the next one has it */
	spool_purge_end(second);
	assert_int_equal(spool_removing(spool, &bytes), 1);
	purge();
	assert_int_equal(spool_removing(spool, &bytes), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rule),
		T(test_restart),
		T(test_lock_is_not_inherited),
		T(test_files),
		T(test_ids),
		T(test_room),
		T(test_held),
		T(test_purges),
	};

	log_init("test-spool", LOG_L_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
