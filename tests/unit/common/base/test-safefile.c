// SPDX-License-Identifier: Apache-2.0
/*
 * Directories that appear whole, and the removal and walking of trees that somebody may have
 * tampered with.
 */
#include "common/base/safefile.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/io.h"
#include "common/bundle/bundle.h"

static char path[64];
static int fd;

static int setup(void **state)
{
	(void)strcpy(path, "/tmp/tracerd-safefile-XXXXXX");
	assert_non_null(mkdtemp(path));
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0;
}

static int teardown(void **state)
{
	int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

	(void)close(fd);
	r = safefile_remove_tree(tmp, path + strlen("/tmp/"));
	(void)close(tmp);
	return r;
}

static bool there(const char *name)
{
	struct stat st;

	return fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void put(int dir, const char *name, const char *text)
{
	int f;

	assert_int_equal(safefile_create(dir, name, &f), 0);
	assert_int_equal(io_write_all(f, text, strlen(text)), 0);
	(void)close(f);
}

static void test_publish(void **state)
{
	struct safedir d = SAFEDIR_INIT;
	struct stat st;

	assert_int_equal(safedir_begin(fd, "one", &d), 0);
	put(d.dir_fd, "a/b/c", "text");
	assert_false(there("one"));
	assert_int_equal(safedir_publish(&d), 0);
	assert_true(there("one/a/b/c"));
	assert_false(there(".tmp-one"));
	assert_int_equal(fstatat(fd, "one", &st, 0), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(fstatat(fd, "one/a/b/c", &st, 0), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	/* never over what is there */
	assert_int_equal(safedir_begin(fd, "one", &d), 0);
	assert_int_equal(safedir_begin(fd, "one", &d), -EEXIST);
	assert_int_equal(safedir_publish(&d), -EEXIST);
	safedir_abort(&d);
	assert_false(there(".tmp-one"));
	assert_true(there("one/a/b/c"));
	safedir_abort(&d); /* again: nothing */
	assert_int_equal(safedir_begin(fd, "../up", &d), -EINVAL);
	assert_int_equal(safedir_begin(fd, "..", &d), -EINVAL);
	assert_int_equal(safedir_begin(fd, "", &d), -EINVAL);
}

static void test_links_are_not_followed(void **state)
{
	char outside[64];
	uint64_t size;
	int f, out;

	(void)strcpy(outside, "/tmp/tracerd-outside-XXXXXX");
	out = mkostemp(outside, O_CLOEXEC);
	assert_true(out >= 0);
	assert_int_equal(symlinkat(outside, fd, "file"), 0);
	assert_int_equal(symlinkat("/tmp", fd, "dir"), 0);
	assert_int_equal(mkdirat(fd, "tree", 0700), 0);
	assert_int_equal(symlinkat("/tmp", fd, "tree/dir"), 0);
	assert_int_equal(symlinkat("/nowhere", fd, "tree/dangling"), 0);
	assert_int_equal(mkfifoat(fd, "tree/fifo", 0600), 0);
	assert_int_equal(mkfifoat(fd, "fifo", 0600), 0);
	assert_int_equal(safefile_create(fd, "file", &f), -EEXIST);
	assert_true(safefile_create(fd, "dir/x", &f) < 0);
	assert_true(safefile_create(fd, "../x", &f) < 0);
	assert_int_equal(safefile_open(fd, "file", &f, &size), -ELOOP);
	assert_int_equal(safefile_open(fd, "fifo", &f, &size), -ENOENT);
	assert_int_equal(safefile_tree_size(fd, &size), 0);
	assert_int_equal(size, 0);
	assert_int_equal(safefile_sync_tree(fd), 0);
	assert_int_equal(safefile_remove_tree(fd, "tree"), 0);
	assert_int_equal(access(outside, F_OK), 0);
	/* a name that is a link goes itself, not what it points to */
	assert_int_equal(safefile_remove_tree(fd, "file"), 0);
	assert_int_equal(access(outside, F_OK), 0);
	assert_int_equal(safefile_remove_tree(fd, "file"), -ENOENT);
	(void)close(out);
	(void)unlink(outside);
}

static void test_sweep_and_depth(void **state)
{
	unsigned removed;
	int dir, next;

	put(fd, ".tmp-x/deep/file", "x");
	put(fd, ".tmp-y", "y");
	put(fd, "kept", "k");
	dir = dup(fd);
	assert_int_equal(mkdirat(dir, ".tmp-pit", 0700), 0);
	next = openat(dir, ".tmp-pit", O_RDONLY | O_DIRECTORY);
	for (int i = 0; i < SAFEFILE_MAX_DEPTH + 5; i++) {
		(void)close(dir);
		dir = next;
		assert_int_equal(mkdirat(dir, "d", 0700), 0);
		next = openat(dir, "d", O_RDONLY | O_DIRECTORY);
	}
	(void)close(dir);
	(void)close(next);
	assert_int_equal(safefile_remove_tree(fd, ".tmp-pit"), -ELOOP);
	/* one that resists does not keep the others */
	assert_int_equal(safefile_sweep(fd, &removed), 0);
	assert_int_equal(removed, 2);
	assert_true(there("kept"));
	assert_false(there(".tmp-x"));
	{
		char command[128];

		(void)snprintf(command, sizeof(command), "rm -rf %s/.tmp-pit", path);
		assert_int_equal(system(command), 0);
	}
}

static void test_write_and_copy(void **state)
{
	uint64_t size, free_bytes, total;
	char buf[16];
	int in, out;

	assert_int_equal(safefile_write(fd, "meta.json", "first", 5), 0);
	assert_int_equal(safefile_write(fd, "meta.json", "second", 6), 0);
	assert_false(there(".tmp-meta.json"));
	assert_int_equal(safefile_open(fd, "meta.json", &in, &size), 0);
	assert_int_equal(size, 6);
	assert_int_equal(safefile_create(fd, "copy", &out), 0);
	assert_int_equal(safefile_copy(in, out, 5, &size), -EFBIG);
	assert_int_equal(ftruncate(out, 0), 0);
	assert_int_equal(lseek(out, 0, SEEK_SET), 0);
	assert_int_equal(safefile_copy(in, out, 6, &size), 0);
	assert_int_equal(size, 6);
	assert_int_equal(io_pread_full(out, buf, sizeof(buf), 0), 6);
	assert_memory_equal(buf, "second", 6);
	(void)close(out);
	out = open("/dev/full", O_WRONLY | O_CLOEXEC);
	assert_int_equal(safefile_copy(in, out, 100, &size), -ENOSPC);
	(void)close(out);
	(void)close(in);
	assert_int_equal(safefile_space(fd, &free_bytes, &total), 0);
	assert_true(total > 0 && free_bytes <= total);
}

/*
 * What somebody has open stays, with its directories; what nobody has goes. In the end all goes,
 * and holds no space.
 */
static void test_remove_closed(void **state)
{
	uint64_t left = 0, size;
	struct stat st;
	char buf[4];
	int in, o_path, dir;

	put(fd, "tree/last", "LL");
	put(fd, "tree/a/b/held", "1234");
	put(fd, "tree/a/free", "x");
	put(fd, "tree/free", "x");
	assert_int_equal(symlinkat("/etc/passwd", fd, "tree/link"), 0);
	assert_int_equal(safefile_mkdirs(fd, "tree", &dir), 0);
	assert_int_equal(safefile_tree_is_open(dir), 0);
	assert_int_equal(safefile_open(fd, "tree/a/b/held", &in, &size), 0);
	assert_int_equal(safefile_tree_is_open(dir), 1);
	assert_int_equal(safefile_remove_closed(fd, "tree", "last", false, &left), 1);
	assert_int_equal(left, 6);
	assert_true(there("tree/a/b/held"));
	assert_true(there("tree/last"));
	assert_false(there("tree/a/free"));
	assert_false(there("tree/free"));
	assert_false(there("tree/link"));
	assert_int_equal(pread(in, buf, 4, 0), 4);
	/* what cannot be read any more does not hold the space, either */
	o_path = openat(fd, "tree/a/b/held", O_PATH | O_CLOEXEC);
	(void)close(in);
	assert_int_equal(safefile_remove_closed(fd, "tree", "last", false, &left), 0);
	assert_false(there("tree"));
	assert_int_equal(fstat(o_path, &st), 0);
	assert_int_equal(st.st_blocks, 0);
	(void)close(o_path);
	(void)close(dir);
	assert_int_equal(safefile_remove_closed(fd, "tree", "last", false, &left), 0);

	put(fd, "tree/held", "1234");
	assert_int_equal(safefile_open(fd, "tree/held", &in, &size), 0);
	assert_int_equal(safefile_remove_closed(fd, "tree", "last", true, &left), 0);
	assert_false(there("tree"));
	assert_int_equal(pread(in, buf, 4, 0), 0);
	(void)close(in);
}

static int names(void *arg, const char *name, uint64_t size)
{
	(void)strcat(strcat(arg, name), " ");
	return 0;
}

static void test_bundle_names(void **state)
{
	char list[256] = "";

	put(fd, "perf.data", "x");
	put(fd, "images/usr/bin/app", "x");
	put(fd, "images/bad\nname", "x");
	assert_int_equal(symlinkat("/etc/passwd", fd, "trace.pftrace"), 0);
	assert_int_equal(bundle_files(fd, names, list), 0);
	assert_string_equal(list, "images/usr/bin/app perf.data ");
	assert_true(bundle_name_is_valid("images/usr/lib/.build-id/ab/c.debug"));
	assert_false(bundle_name_is_valid(""));
	assert_false(bundle_name_is_valid("/perf.data"));
	assert_false(bundle_name_is_valid("images/"));
	assert_false(bundle_name_is_valid("images//x"));
	assert_false(bundle_name_is_valid("images/../x"));
	assert_false(bundle_name_is_valid("."));
	assert_false(bundle_name_is_valid("a\x1b"));
	assert_false(bundle_name_is_valid("\xff"));
}

static void test_bundle_open(void **state)
{
	struct json_object *body;
	struct bundle b;
	int fds[BUNDLE_MAX_JOB_FDS];
	size_t n;

	assert_int_equal(bundle_open(fd, &b), -ENOENT);
	put(fd, "rings", "not a directory");
	assert_int_equal(bundle_open(fd, &b), -ENOENT);
	assert_int_equal(unlinkat(fd, "rings", 0), 0);
	/* event rings alone can be decoded */
	put(fd, "rings/1-2.ring", "x");
	assert_int_equal(bundle_open(fd, &b), 0);
	assert_true(b.has_rings);
	bundle_close(&b);
	assert_int_equal(safefile_remove_tree(fd, "rings"), 0);
	put(fd, "perf.data", "x");
	assert_int_equal(bundle_open(fd, &b), 0);
	assert_null(b.meta);
	assert_false(b.has_rings);
	assert_int_equal(bundle_job(&b, "text", 1, NULL, &body, fds, &n), 0);
	assert_int_equal(n, 2);
	assert_int_equal(fds[1], 1);
	json_object_put(body);
	bundle_close(&b);
	assert_int_equal(safefile_write(fd, "meta.json", "{\"format\":1}", 12), 0);
	assert_int_equal(bundle_open(fd, &b), 0);
	assert_non_null(b.meta);
	bundle_close(&b);
	assert_int_equal(safefile_write(fd, "meta.json", "{\"format\":2}", 12), 0);
	assert_int_equal(bundle_open(fd, &b), -EPROTO);
	assert_int_equal(safefile_write(fd, "meta.json", "{", 1), 0);
	assert_int_equal(bundle_open(fd, &b), -EPROTO);
}

/* ---- memory fails */

#ifndef __SANITIZE_ADDRESS__
static long fail_in; /* the n-th from now, and all after it; 0: none */

static bool malloc_fails(void)
{
	if (fail_in > 1)
		fail_in--;
	return fail_in == 1;
}

#include "tests/programs/failing_malloc.h"

static void test_removing_needs_no_memory(void **state)
{
	char name[64];
	int r;

	for (int i = 0; i < 300; i++) {
		(void)snprintf(name, sizeof(name), "tree/%d/a-name-of-some-length-%d", i % 3, i);
		put(fd, name, "x");
	}
	fail_in = 1;
	r = safefile_remove_tree(fd, "tree");
	fail_in = 0;
	assert_int_equal(r, 0);
	assert_false(there("tree"));
}

static void test_meta_without_memory(void **state)
{
	struct bundle b;
	int r = -ENOMEM;

	put(fd, "perf.data", "x");
	assert_int_equal(safefile_write(fd, "meta.json", "{\"format\":1}", 12), 0);
	for (long n = 2; r != 0; n++) {
		fail_in = n;
		r = bundle_open(fd, &b);
		fail_in = 0;
		if (r != 0)
			assert_int_equal(r, -ENOMEM);
	}
	bundle_close(&b);
}
#endif

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_publish),	T(test_links_are_not_followed), T(test_sweep_and_depth),
		T(test_write_and_copy), T(test_bundle_names),		T(test_bundle_open),
		T(test_remove_closed),
#ifndef __SANITIZE_ADDRESS__
		T(test_removing_needs_no_memory), T(test_meta_without_memory),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
