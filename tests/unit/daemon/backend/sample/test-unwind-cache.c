// SPDX-License-Identifier: Apache-2.0
/*
 * Tables of unwind rules that are kept on disk: which files' are, that they come back as they were,
 * that anything else than that is refused and removed, and that the least recently used make room.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "common/base/safefile.h"
#include "common/control/json.h"
#include "daemon/backend/sample/unwind_cache.h"
#include "tests/unit/daemon/backend/sample/table-make.h"

static char state_dir[128];
static int dir_fd = -1;

static struct unwind_key key(unsigned int n)
{
	return (struct unwind_key){.file = {.dev = 1, .ino = n, .size = 4096, .mtime_s = 5},
				   .head = {1, 2, 3}};
}

static struct unwind_cache *open_cache(uint64_t max_bytes)
{
	struct unwind_cache *c;

	assert_int_equal(unwind_cache_new(state_dir, max_bytes, "/proc/self/exe", &c), 0);
	return c;
}

static uint64_t count(const struct unwind_cache *c, const char *name)
{
	_cleanup_json_ struct json_object *status = json_object_new_object();
	uint64_t n = 0;

	unwind_cache_status(c, status);
	assert_true(json_get_uint(json_get_object(status, "cache"), name, &n));
	return n;
}

static int get(struct unwind_cache *c, unsigned int n)
{
	const struct unwind_key k = key(n);
	struct unwind_cached cached;
	int r = unwind_cache_get(c, &k, &cached);

	unwind_cached_fini(&cached);
	return r;
}

static void put(struct unwind_cache *c, unsigned int n)
{
	const struct unwind_key k = key(n);
	const struct table t = good();

	unwind_cache_put(c, &k, &t, sizeof(t), NULL);
}

static int setup(void **state)
{
	const char *tmp = getenv("TEST_TMP");

	(void)snprintf(state_dir, sizeof(state_dir), "%s/state.XXXXXX", tmp ? tmp : "/tmp");
	return mkdtemp(state_dir) ? 0 : -1;
}

static int teardown(void **state)
{
	_cleanup_close_ int parent = -1;
	char *name = strrchr(state_dir, '/');

	dir_fd = close_fd(dir_fd);
	*name++ = '\0';
	parent = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return safefile_remove_tree(parent, name);
}

/* The only file, open; its name is in `name`. */
static void only_file(char name[NAME_MAX + 1])
{
	struct dirent *e;
	DIR *dir;
	int n = 0;

	if (dir_fd < 0) {
		char path[160];

		(void)snprintf(path, sizeof(path), "%s/unwind", state_dir);
		dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(dir_fd >= 0);
	}
	dir = fdopendir(openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	assert_non_null(dir);
	while ((e = readdir(dir)) != NULL) {
		if (e->d_name[0] == '.')
			continue;
		(void)snprintf(name, NAME_MAX + 1, "%s", e->d_name);
		n++;
	}
	(void)closedir(dir);
	assert_int_equal(n, 1);
}

static void write_over(const char *name, const void *data, size_t size)
{
	assert_int_equal(safefile_replace(dir_fd, name, data, size), 0);
}

/* ---- which files */

static void test_eligible(void **state)
{
	const uint8_t head[SHA256_BYTES] = {9};
	const struct stat plain = {.st_mode = S_IFREG | 0755,
				   .st_ino = 3,
				   .st_ctim = {.tv_sec = 1000}};
	struct stat st = plain;
	struct unwind_key k, other;

	assert_true(unwind_key_of(&st, head, 2000, &k));
	assert_false(unwind_key_of(&st, NULL, 2000, &k));
	st.st_uid = 1;
	assert_false(unwind_key_of(&st, head, 2000, &k));
	st = plain;
	st.st_mode |= S_IWGRP;
	assert_false(unwind_key_of(&st, head, 2000, &k));
	st.st_mode = plain.st_mode | S_IWOTH;
	assert_false(unwind_key_of(&st, head, 2000, &k));
	st.st_mode = S_IFIFO | 0755;
	assert_false(unwind_key_of(&st, head, 2000, &k));
	/* One that has just been changed, or will have been. */
	st = plain;
	assert_false(unwind_key_of(&st, head, 1000, &k));
	assert_false(unwind_key_of(&st, head, 1000 + UNWIND_CACHE_REST_S - 1, &k));
	assert_true(unwind_key_of(&st, head, 1000 + UNWIND_CACHE_REST_S, &k));
	assert_false(unwind_key_of(&st, head, 900, &k));

	/* Each field tells two files apart. */
#define DIFFERS(field, value)                                                  \
	do {                                                                   \
		st = plain;                                                    \
		st.field = value;                                              \
		assert_true(unwind_key_of(&st, head, 2000, &other));           \
		assert_int_not_equal(memcmp(&k, &other, sizeof(k)), 0);        \
	} while (0)
	DIFFERS(st_dev, 8);
	DIFFERS(st_ino, 4);
	DIFFERS(st_size, 1);
	DIFFERS(st_mtim.tv_sec, 1);
	DIFFERS(st_mtim.tv_nsec, 1);
	DIFFERS(st_ctim.tv_sec, 999);
	DIFFERS(st_ctim.tv_nsec, 1);
	assert_true(unwind_key_of(&plain, (const uint8_t[SHA256_BYTES]){8}, 2000, &other));
	assert_int_not_equal(memcmp(&k, &other, sizeof(k)), 0);
}

/* ---- what is in them */

static void test_kept(void **state)
{
	static const char python[] = "{\"minor\":9,\"refused\":\"too old\"}";
	struct unwind_cache *c = open_cache(1 << 20);
	const struct unwind_key k = key(1);
	const struct table t = good();
	struct unwind_cached cached;
	char name[NAME_MAX + 1];
	struct stat st;

	assert_int_equal(get(c, 1), -ENOENT);
	unwind_cache_put(c, &k, &t, sizeof(t), python);
	for (int again = 0; again < 2; again++) {
		assert_int_equal(unwind_cache_get(c, &k, &cached), 0);
		assert_int_equal(cached.table.head.lo_page, 7);
		assert_memory_equal(cached.table.rows, t.rows, sizeof(t.rows));
		assert_memory_equal(cached.table.rules, t.rules, sizeof(t.rules));
		assert_int_equal(cached.python.is, PYTHON_REFUSED);
		assert_string_equal(cached.python.refused, "too old");
		unwind_cached_fini(&cached);
		assert_int_equal(get(c, 2), -ENOENT);
		assert_int_equal(count(c, "files"), 1);
		assert_int_equal(count(c, "hits"), 1);
		/* The next daemon's. */
		(void)unwind_cache_free(c);
		c = open_cache(1 << 20);
	}
	only_file(name);
	assert_int_equal(fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0600);
	assert_int_equal(fstat(dir_fd, &st), 0);
	assert_int_equal(st.st_mode, S_IFDIR | 0700);
	(void)unwind_cache_free(c);
	/* A decoder that is another file may make others. */
	assert_int_equal(unwind_cache_new(state_dir, 1 << 20, "/", &c), 0);
	assert_int_equal(get(c, 1), -ENOENT);
	assert_int_equal(count(c, "damaged"), 0);
	(void)unwind_cache_free(c);
	assert_int_equal(unwind_cache_new(state_dir, 1 << 20, "/no/such/program", &c), -ENOENT);
}

/* That a file tells nothing is known again, too. */
static void test_none(void **state)
{
	struct unwind_cache *c = open_cache(1 << 20);
	const struct unwind_key k = key(1);
	struct unwind_cached cached;

	assert_int_equal(get(c, 1), -ENOENT);
	unwind_cache_put(c, &k, NULL, 0, NULL);
	assert_int_equal(unwind_cache_get(c, &k, &cached), 0);
	assert_true(cached.none);
	unwind_cached_fini(&cached);
	put(c, 1);
	assert_int_equal(unwind_cache_get(c, &k, &cached), 0);
	assert_false(cached.none);
	unwind_cached_fini(&cached);
	(void)unwind_cache_free(c);
}

/* Each byte of it, and each length, as somebody or something else has left it. */
static void test_damaged(void **state)
{
	struct unwind_cache *c = open_cache(1 << 20);
	_cleanup_close_ int fd = -1;
	uint8_t data[1024], bad[1024];
	char name[NAME_MAX + 1];
	uint64_t size, damaged = 0;

	put(c, 1);
	assert_int_equal(get(c, 1), 0);
	only_file(name);
	assert_int_equal(safefile_open(dir_fd, name, &fd, &size), 0);
	assert_true(size < sizeof(data));
	assert_int_equal(io_pread_full(fd, data, size, 0), size);
	for (size_t i = 0; i < size; i++) {
		memcpy(bad, data, size);
		bad[i] ^= (uint8_t)(1u << i % 8);
		write_over(name, bad, size);
		if (get(c, 1) != -ENOENT || faccessat(dir_fd, name, F_OK, 0) == 0)
			fail_msg("byte %zu may be wrong", i);
		assert_int_equal(count(c, "damaged"), ++damaged);
	}
	for (size_t n = 0; n < size; n++) {
		write_over(name, data, n);
		if (get(c, 1) != -ENOENT)
			fail_msg("%zu bytes do", n);
		assert_int_equal(count(c, "damaged"), ++damaged);
	}
	data[size] = 0;
	write_over(name, data, size + 1);
	assert_int_equal(get(c, 1), -ENOENT);
	write_over(name, data, size);
	assert_int_equal(get(c, 1), 0);
	(void)unwind_cache_free(c);
}

/*
 * With a checksum that is right: what a decoder would not get through does not get through here,
 * either.
 */
static void test_checked_like_a_new_one(void **state)
{
	struct {
		size_t at;
		uint32_t value;
	} changes[] = {
		{offsetof(struct table, head.magic), 1},
		{offsetof(struct table, head.n_rows), 3},
		{offsetof(struct table, head.n_rules), UINT32_MAX},
		{offsetof(struct table, load.size), 0},
		{offsetof(struct table, pages[0]), 4},
		{offsetof(struct table, rows[1]), UNWIND_ROW(5, 2)},
		{offsetof(struct table, rows[2]), UNWIND_ROW(5, 0)},
		{offsetof(struct table, rules[0]), UNWIND_KINDS},
	};
	static const char *const texts[] = {"{", "[]",  "{}{}", "{\"minor\":1,\"minor\":2}",
					    "1", "\xff"};
	struct unwind_cache *c = open_cache(1 << 20);
	const struct unwind_key k = key(1);
	uint64_t damaged = 0;

	assert_int_equal(get(c, 1), -ENOENT);
	for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
		struct table t = good();

		memcpy((uint8_t *)&t + changes[i].at, &changes[i].value, sizeof(uint32_t));
		unwind_cache_put(c, &k, &t, sizeof(t), NULL);
		if (get(c, 1) != -ENOENT)
			fail_msg("change %zu passes", i);
		assert_int_equal(count(c, "damaged"), ++damaged);
	}
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		const struct table t = good();

		unwind_cache_put(c, &k, &t, sizeof(t), texts[i]);
		if (get(c, 1) != -ENOENT)
			fail_msg("%s passes", texts[i]);
		assert_int_equal(count(c, "damaged"), ++damaged);
	}
	(void)unwind_cache_free(c);
}

/* Under its name lies another's, or what is no file of ours. */
static void test_foreign(void **state)
{
	struct unwind_cache *c = open_cache(1 << 20);
	char name[NAME_MAX + 1], path[200];

	put(c, 1);
	only_file(name);
	assert_int_equal(renameat(dir_fd, name, dir_fd, "../first"), 0);
	put(c, 2);
	only_file(name);
	/* The first one's table for the second. */
	assert_int_equal(linkat(dir_fd, "../first", dir_fd, ".tmp-x", 0), 0);
	assert_int_equal(renameat(dir_fd, "../first", dir_fd, name), 0);
	assert_int_equal(unlinkat(dir_fd, ".tmp-x", 0), 0);
	assert_int_equal(get(c, 2), -ENOENT);
	assert_int_equal(count(c, "damaged"), 1);
	/* Its own through a link, of either kind. */
	put(c, 2);
	assert_int_equal(renameat(dir_fd, name, dir_fd, "../own"), 0);
	assert_int_equal(symlinkat("../own", dir_fd, name), 0);
	assert_int_equal(get(c, 2), -ENOENT);
	assert_int_equal(count(c, "damaged"), 2);
	assert_int_equal(linkat(dir_fd, "../own", dir_fd, name, 0), 0);
	assert_int_equal(get(c, 2), -ENOENT);
	assert_int_equal(count(c, "damaged"), 3);
	/* Others may write it. */
	put(c, 2);
	assert_int_equal(fchmodat(dir_fd, name, 0660, 0), 0);
	assert_int_equal(get(c, 2), -ENOENT);
	assert_int_equal(count(c, "damaged"), 4);
	/* What waits for a writer, at the next start, too. */
	assert_int_equal(mkfifoat(dir_fd, name, 0600), 0);
	assert_int_equal(get(c, 2), -ENOENT);
	put(c, 2);
	assert_int_equal(get(c, 2), 0);
	(void)unwind_cache_free(c);
	assert_int_equal(unlinkat(dir_fd, name, 0), 0);
	assert_int_equal(mkfifoat(dir_fd, name, 0600), 0);
	c = open_cache(1 << 20);
	assert_int_equal(get(c, 2), -ENOENT);
	assert_int_equal(count(c, "damaged"), 1);
	assert_int_equal(count(c, "files"), 0);
	/* A link is not written through. */
	(void)snprintf(path, sizeof(path), "%s/elsewhere", state_dir);
	assert_int_equal(symlinkat(path, dir_fd, name), 0);
	put(c, 2);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(get(c, 2), 0);
	(void)unwind_cache_free(c);
}

static void test_directory(void **state)
{
	struct unwind_cache *c = open_cache(1 << 20);
	char path[160], elsewhere[160];

	(void)snprintf(path, sizeof(path), "%s/unwind", state_dir);
	(void)snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", state_dir);
	/* Nothing is touched before it is asked for something. */
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(mkdir(elsewhere, 0700), 0);
	assert_int_equal(symlink(elsewhere, path), 0);
	assert_int_equal(get(c, 1), -ENOENT);
	put(c, 1);
	assert_int_equal(count(c, "unkept"), 1);
	assert_int_equal(rmdir(elsewhere), 0); /* it is empty */
	(void)unwind_cache_free(c);
	assert_int_equal(unlink(path), 0);

	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(chmod(path, 0770), 0);
	c = open_cache(1 << 20);
	put(c, 1);
	assert_int_equal(count(c, "unkept"), 1);
	assert_int_equal(count(c, "files"), 0);
	(void)unwind_cache_free(c);
	assert_int_equal(rmdir(path), 0);
	/* What a killed daemon has left, and what is none of ours. */
	c = open_cache(1 << 20);
	put(c, 1);
	(void)unwind_cache_free(c);
	(void)snprintf(path, sizeof(path), "%s/unwind/.tmp-0", state_dir);
	assert_int_equal(mkdir(path, 0700), 0);
	c = open_cache(1 << 20);
	assert_int_equal(get(c, 1), 0);
	assert_int_equal(access(path, F_OK), -1);
	(void)unwind_cache_free(c);
}

/* ---- budget */

static void test_budget(void **state)
{
	const uint64_t each = sizeof(struct unwind_cache_head) + sizeof(struct table);
	struct unwind_cache *c = open_cache(4 * each);
	char name[NAME_MAX + 1];

	put(c, 1);
	only_file(name);
	for (unsigned int i = 2; i <= 4; i++)
		put(c, i);
	assert_int_equal(count(c, "bytes"), 4 * each);
	assert_int_equal(count(c, "thrown_away"), 0);
	assert_int_equal(get(c, 1), 0);
	put(c, 5); /* for the second, since the first has been used */
	assert_int_equal(get(c, 2), -ENOENT);
	assert_int_equal(get(c, 1), 0);
	put(c, 5); /* in its own place */
	assert_int_equal(count(c, "thrown_away"), 1);
	assert_int_equal(count(c, "files"), 4);
	assert_int_equal(count(c, "bytes"), 4 * each);
	(void)unwind_cache_free(c);

	/* The next daemon knows by the files' times, and may have less room. */
	assert_int_equal(utimensat(dir_fd, name,
				   (const struct timespec[2]){{.tv_sec = 1}, {.tv_sec = 1}}, 0),
			 0);
	c = open_cache(3 * each);
	assert_int_equal(get(c, 1), -ENOENT);
	assert_int_equal(count(c, "thrown_away"), 1);
	assert_int_equal(count(c, "files"), 3);
	assert_int_equal(get(c, 5), 0);
	(void)unwind_cache_free(c);

	c = open_cache(each - 1);
	put(c, 6);
	assert_int_equal(count(c, "unkept"), 1);
	assert_int_equal(count(c, "files"), 0);
	assert_int_equal(count(c, "bytes"), 0);
	(void)unwind_cache_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_eligible),
		cmocka_unit_test_setup_teardown(test_kept, setup, teardown),
		cmocka_unit_test_setup_teardown(test_none, setup, teardown),
		cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
		cmocka_unit_test_setup_teardown(test_checked_like_a_new_one, setup, teardown),
		cmocka_unit_test_setup_teardown(test_foreign, setup, teardown),
		cmocka_unit_test_setup_teardown(test_directory, setup, teardown),
		cmocka_unit_test_setup_teardown(test_budget, setup, teardown),
	};

	log_init("test-unwind-cache", LOG_L_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
