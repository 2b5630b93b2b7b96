// SPDX-License-Identifier: Apache-2.0
/*
 * The opener against a target's root that its owner has prepared: links, FIFOs, directories,
 * foreign files.
 */
#include "common/decoder/opener.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/io.h"
#include "common/base/safefile.h"

static char dir[64];
static int root_fd;
static struct opener_answer answer;

static void file_at(const char *path, const char *content, mode_t mode)
{
	int fd;

	assert_int_equal(safefile_create(root_fd, path, &fd), 0);
	assert_int_equal(io_write_all(fd, content, strlen(content)), 0);
	assert_int_equal(fchmod(fd, mode), 0);
	(void)close(fd);
}

#define ELF "\177ELFrest"

static int setup(void **state)
{
	int fd;

	(void)strcpy(dir, "/tmp/tracerd-opener-XXXXXX");
	assert_non_null(mkdtemp(dir));
	root_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(root_fd >= 0);
	file_at("usr/bin/app", ELF, 0755);
	file_at("usr/bin/private", ELF, 0700);
	file_at("usr/bin/script", "#!/bin/sh\n", 0755);
	file_at("usr/lib/debug/.build-id/ab/cdef.debug", ELF, 0644);
	file_at("usr/bin/.debug/app.debug", ELF, 0644);
	file_at("usr/lib/debug/.dwz/x.debug", ELF, 0644);
	file_at("tmp/perf-42.map", "1000 10 jitted\n", 0644);
	assert_int_equal(symlinkat("/etc/passwd", root_fd, "usr/bin/absolute"), 0);
	assert_int_equal(symlinkat("../../../../../../../../etc/passwd", root_fd,
				   "usr/bin/climbing"),
			 0);
	assert_int_equal(symlinkat("app", root_fd, "usr/bin/alias"), 0);
	assert_int_equal(symlinkat("/proc/self/root/etc/passwd", root_fd, "usr/bin/magic"), 0);
	assert_int_equal(symlinkat("perf-42.map", root_fd, "tmp/perf-43.map"), 0);
	assert_int_equal(mkfifoat(root_fd, "usr/bin/fifo", 0666), 0);
	assert_int_equal(mkfifoat(root_fd, "tmp/perf-44.map", 0666), 0);
	assert_int_equal(safefile_mkdirs(root_fd, "usr/bin/directory", &fd), 0);
	(void)close(fd);
	return 0;
}

static int teardown(void **state)
{
	int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

	(void)close(root_fd);
	r = safefile_remove_tree(tmp, dir + strlen("/tmp/"));
	(void)close(tmp);
	return r;
}

static int mapped_fd = -1;

static bool ask(bool strict, uid_t uid, const struct file_request *request)
{
	const struct opener_options options = {.bundle_fd = -1,
					       .images_fd = -1,
					       .symfs_fd = -1,
					       .root_fd = root_fd,
					       .root_source = OPENER_TARGET,
					       .mapped_fd = mapped_fd,
					       .strict = strict,
					       .uid = uid};
	struct opener *o;
	bool found;

	assert_int_equal(opener_new(&options, &o), 0);
	assert_int_equal(opener_open(o, request, &answer), 0);
	opener_free(o);
	found = answer.fd >= 0;
	if (found)
		(void)close(answer.fd);
	else
		assert_true(answer.why[0]);
	return found;
}

static struct file_request need_of(enum file_request_kind kind, const char *path)
{
	struct file_request n = {.kind = kind};
	struct stat st;

	(void)snprintf(n.path, sizeof(n.path), "%s", path);
	if (kind == FILE_REQUEST_OBJECT &&
	    fstatat(root_fd, path + strspn(path, "/"), &st, 0) == 0) {
		n.maj = major(st.st_dev);
		n.min = minor(st.st_dev);
		n.ino = st.st_ino;
	}
	return n;
}

static bool object(const char *path)
{
	struct file_request n = need_of(FILE_REQUEST_OBJECT, path);

	return ask(true, 0xfffe, &n);
}

static void test_objects(void **state)
{
	char fifo[PATH_MAX], event[sizeof(struct inotify_event) + NAME_MAX + 1];
	int watch;

	assert_true(object("/usr/bin/app"));
	assert_int_equal(answer.source, OPENER_TARGET);
	assert_string_equal(answer.path, "usr/bin/app");
	assert_true(object("/usr/bin/alias")); /* a link that stays inside */
	assert_false(object("/usr/bin/absolute"));
	assert_false(object("/usr/bin/climbing"));
	assert_false(object("/usr/bin/magic"));
	assert_false(object("/usr/bin/../../../../../../../etc/passwd"));
	/* What is no file is not even opened: with a device that would do something. */
	(void)snprintf(fifo, sizeof(fifo), "%s/usr/bin/fifo", dir);
	watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	assert_true(inotify_add_watch(watch, fifo, IN_OPEN) >= 0);
	assert_false(object("/usr/bin/fifo"));
	assert_true(read(watch, event, sizeof(event)) < 0 && errno == EAGAIN);
	(void)close(watch);
	assert_false(object("/usr/bin/directory"));
	assert_false(object("/usr/bin/script")); /* no ELF file */
	assert_false(object("/usr/bin/nothing"));
	assert_false(object("/"));
	assert_false(object(""));
	assert_false(object("[vdso]"));
	assert_false(object("usr/bin/app")); /* what is mapped has an absolute path */
}

/* Code that is no ELF file: the very file of the record, offline, or what a user has put there. */
static void test_flat_code(void **state)
{
	const struct opener_options options = {.bundle_fd = -1,
					       .images_fd = -1,
					       .symfs_fd = root_fd,
					       .root_fd = -1,
					       .mapped_fd = -1,
					       .strict = true};
	struct file_request n = need_of(FILE_REQUEST_OBJECT, "/usr/bin/script");
	struct opener *o;

	assert_false(ask(true, 0xfffe, &n));
	assert_true(ask(false, 0xfffe, &n));
	assert_false(answer.changed);
	n.ino++;
	assert_false(ask(false, 0xfffe, &n));
	assert_string_equal(answer.why, "not an ELF file");
	n.ino = 0;
	assert_false(ask(false, 0xfffe, &n));
	assert_int_equal(opener_new(&options, &o), 0);
	assert_int_equal(opener_open(o, &n, &answer), 0);
	assert_true(answer.fd >= 0);
	assert_int_equal(answer.source, OPENER_SYMFS);
	(void)close(answer.fd);
	/* what has a build id is ELF */
	n.build_id_len = 20;
	assert_int_equal(opener_open(o, &n, &answer), 0);
	assert_true(answer.fd < 0);
	opener_free(o);
	n = need_of(FILE_REQUEST_DEBUG, "script");
	(void)strcpy(n.object, "/usr/bin/app");
	assert_false(ask(false, 0xfffe, &n));
}

static void test_changed(void **state)
{
	struct file_request n = need_of(FILE_REQUEST_OBJECT, "/usr/bin/app");

	n.ino++;
	assert_false(ask(true, 0xfffe, &n));
	assert_non_null(strstr(answer.why, "another file"));
	/* offline the decoder gets it, is told, and compares build ids */
	assert_true(ask(false, 0xfffe, &n));
	assert_true(answer.changed);
	n.ino = 0;
	assert_false(ask(true, 0xfffe, &n));
	assert_true(ask(false, 0xfffe, &n));
	assert_false(answer.changed);
	n = need_of(FILE_REQUEST_OBJECT, "/usr/bin/app");
	(void)strcat(n.path, " (deleted)");
	assert_true(ask(true, 0xfffe, &n)); /* the same inode: a hard link was removed */
}

static void test_debug(void **state)
{
	struct file_request n = need_of(FILE_REQUEST_DEBUG, "");

	n.build_id[0] = 0xab;
	n.build_id[1] = 0xcd;
	n.build_id[2] = 0xef;
	n.build_id_len = 3;
	assert_true(ask(true, 0xfffe, &n));
	n.build_id_len = 2;
	assert_false(ask(true, 0xfffe, &n));
	n = need_of(FILE_REQUEST_DEBUG, "app.debug");
	assert_false(ask(true, 0xfffe, &n));
	(void)strcpy(n.object, "/usr/bin/app");
	assert_true(ask(true, 0xfffe, &n));
	(void)strcpy(n.path, "../bin/.debug/app.debug"); /* a link's name is a name */
	assert_false(ask(true, 0xfffe, &n));
	n = need_of(FILE_REQUEST_DWZ, "../../lib/debug/.dwz/x.debug");
	assert_false(ask(true, 0xfffe, &n)); /* relative to what? */
	(void)strcpy(n.object, "/usr/bin/.debug/app.debug");
	assert_true(ask(true, 0xfffe, &n));
	(void)strcpy(n.path, "../../../../../../../../../../etc/hostname");
	assert_false(ask(true, 0xfffe, &n));
}

static bool perfmap(pid_t nspid, uid_t uid)
{
	struct file_request n = {.kind = FILE_REQUEST_PERFMAP, .nspid = nspid};

	return ask(true, uid, &n);
}

static void test_perfmaps(void **state)
{
	assert_true(perfmap(42, getuid()));
	/*
	 * another user's is not theirs, and root's neither: in a mount namespace of one's own any
	 * file can be there
	 */
	assert_false(perfmap(42, getuid() + 1));
	if (getuid() == 0) {
		assert_int_equal(fchownat(root_fd, "tmp/perf-42.map", 1234, 1234, 0), 0);
		assert_false(perfmap(42, 0));
		assert_true(perfmap(42, 1234));
	}
	assert_false(perfmap(43, getuid())); /* a link */
	assert_false(perfmap(44, getuid())); /* a FIFO: must not block either */
	assert_false(perfmap(0, getuid()));
	assert_false(perfmap(-1, getuid()));
}

/*
 * Permissions are the kernel's to judge: who may not read a file is not given it, however it is
 * found.
 */
static void test_rights(void **state)
{
	struct file_request private = need_of(FILE_REQUEST_OBJECT, "/usr/bin/private"),
			    app = need_of(FILE_REQUEST_OBJECT, "/usr/bin/app");
	struct stat st;

	if (geteuid() != 0) {
		print_message("SKIP: needs root, to be another user\n");
		skip();
	}
	assert_true(ask(true, 0, &private));
	assert_int_equal(chmod(dir, 0755), 0);
	assert_int_equal(fchmodat(root_fd, "usr", 0755, 0), 0);
	assert_int_equal(fchmodat(root_fd, "usr/bin", 0755, 0), 0);
	mapped_fd = openat(root_fd, "usr/bin/private", O_PATH | O_CLOEXEC);
	assert_int_equal(fstat(mapped_fd, &st), 0);
	(void)setfsuid(1234);
	assert_true(ask(true, 1234, &app));
	assert_string_equal(answer.path, "usr/bin/app");
	assert_false(ask(true, 1234, &private)); /* neither by its path nor by its mapping */
	assert_non_null(strstr(answer.why, "Permission denied"));
	(void)setfsuid(0);
	assert_true(ask(true, 0, &private));
	assert_string_equal(answer.path, "");
	assert_int_equal(answer.stat.st_ino, st.st_ino);
	(void)close(mapped_fd);
	mapped_fd = -1;
	assert_int_equal(fchmodat(root_fd, "usr/bin", 0700, 0), 0);
	(void)setfsuid(1234);
	assert_false(ask(true, 1234, &app)); /* in a closed folder */
	(void)setfsuid(0);
}

/*
 * The file of the mapping is taken before what is at its path now; one that is not the record's
 * never is.
 */
static void test_mapped(void **state)
{
	struct file_request n = need_of(FILE_REQUEST_OBJECT, "/usr/bin/app"),
			    other = need_of(FILE_REQUEST_OBJECT, "/usr/bin/private");

	mapped_fd = openat(root_fd, "usr/bin/app", O_PATH | O_CLOEXEC);
	assert_int_equal(renameat(root_fd, "usr/bin/private", root_fd, "usr/bin/app"), 0);
	assert_true(ask(true, getuid(), &n));
	assert_int_equal(answer.stat.st_ino, n.ino);
	assert_string_equal(answer.path, "");
	(void)strcpy(other.path, "/usr/bin/nothing");
	assert_false(ask(true, getuid(), &other));
	(void)strcpy(other.path, "/usr/bin/app");
	assert_true(ask(true, getuid(), &other));
	(void)close(mapped_fd);
	mapped_fd = -1;
	assert_false(ask(true, getuid(), &n));
}

static void test_bundle(void **state)
{
	const struct opener_options options = {.bundle_fd = -1,
					       .images_fd = root_fd,
					       .symfs_fd = -1,
					       .root_fd = -1,
					       .mapped_fd = -1,
					       .strict = true};
	struct file_request n = {.kind = FILE_REQUEST_OBJECT, .maj = 1, .min = 2, .ino = 3};
	struct opener *o;

	(void)strcpy(n.path, "/gone/app");
	/* a bundle's copies have other inodes; the second of one path lies under its old number */
	file_at(".inode/1-2-3", "\177ELFsecond", 0600);
	assert_int_equal(opener_new(&options, &o), 0);
	assert_int_equal(opener_open(o, &n, &answer), 0);
	assert_string_equal(answer.path, ".inode/1-2-3");
	(void)close(answer.fd);
	n.ino = 4;
	(void)strcpy(n.path, "/usr/bin/private");
	assert_int_equal(opener_open(o, &n, &answer), 0);
	assert_int_equal(answer.source, OPENER_BUNDLE);
	(void)close(answer.fd);
	opener_free(o);
}

/*
 * Event rings come out of the bundle's own directory, by the names that a daemon gives, and from
 * nowhere else.
 */
static void test_rings(void **state)
{
	static const char *const none[] = {
		"",
		"rings",
		"rings/",
		"rings/.ring",
		"rings/1.ring",
		"rings/1-2",
		"rings/1-2.rin",
		"rings/1-2.ring ",
		"rings/1-2.ringx",
		"rings/a-2.ring",
		"rings/1-b.ring",
		"rings/-1-2.ring",
		"rings/1--2.ring",
		"rings/1-2-.ring",
		"rings/1-2-3-4.ring",
		"rings/../rings/1-2.ring",
		"rings//1-2.ring",
		"/rings/1-2.ring",
		"./rings/1-2.ring",
		"meta.json",
		"rings/1-2\n.ring",
		"rings/111111111111111111111-2.ring",
		"usr/bin/app",
		"/usr/bin/app",
		"perf.data",
	};
	struct opener_options options = {
		.bundle_fd = root_fd, .images_fd = root_fd, .symfs_fd = root_fd, .root_fd = root_fd,
		.root_source = OPENER_HOST, .mapped_fd = -1};
	struct file_request n = {.kind = FILE_REQUEST_RING};
	struct opener *o;

	file_at("rings/1-2.ring", "TRCDRCPY", 0600);
	file_at("rings/12-18446744073709551615-3.ring", "TRCDRCPY", 0600);
	file_at("meta.json", "{}", 0600);
	assert_int_equal(symlinkat("../usr/bin/app", root_fd, "rings/5-5.ring"), 0);
	assert_int_equal(mkfifoat(root_fd, "rings/6-6.ring", 0600), 0);
	assert_int_equal(opener_new(&options, &o), 0);
	for (size_t i = 0; i < ARRAY_SIZE(none); i++) {
		(void)strcpy(n.path, none[i]);
		assert_int_equal(opener_open(o, &n, &answer), 0);
		assert_int_equal(answer.fd, -1);
		assert_non_null(strstr(answer.why, "not the name"));
	}
	for (const char **p =
		     (const char *[]){"rings/5-5.ring", "rings/6-6.ring", "rings/7-7.ring", NULL};
	     *p; p++) {
		(void)strcpy(n.path, *p);
		assert_int_equal(opener_open(o, &n, &answer), 0);
		assert_int_equal(answer.fd, -1);
		assert_true(answer.why[0]);
	}
	for (const char **p = (const char *[]){"rings/1-2.ring",
					       "rings/12-18446744073709551615-3.ring", NULL};
	     *p; p++) {
		(void)strcpy(n.path, *p);
		assert_int_equal(opener_open(o, &n, &answer), 0);
		assert_true(answer.fd >= 0);
		assert_int_equal(answer.source, OPENER_BUNDLE);
		assert_int_equal(fcntl(answer.fd, F_GETFL) & O_ACCMODE, O_RDONLY);
		assert_string_equal(answer.path, *p);
		(void)close(answer.fd);
	}
	opener_free(o);
	/* without a bundle there is nowhere to look, whatever other trees have such a file */
	options.bundle_fd = -1;
	assert_int_equal(opener_new(&options, &o), 0);
	assert_int_equal(opener_open(o, &n, &answer), 0);
	assert_int_equal(answer.fd, -1);
	opener_free(o);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_objects), T(test_flat_code), T(test_changed),
		T(test_debug),   T(test_perfmaps),  T(test_rights),
		T(test_mapped),  T(test_bundle),    T(test_rings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
