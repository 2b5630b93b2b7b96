// SPDX-License-Identifier: Apache-2.0
/* Address filters: their text, and the very file that a process has mapped. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <event2/event.h>

#include "common/base/io.h"
#include "common/base/procfs.h"
#include "daemon/backend/pt/filter.h"
#include "daemon/base/closer.h"

static struct closer *closer;

static struct event_base *base;

static int setup(void **state)
{
	base = event_base_new();
	return closer_new(base, &closer);
}

static int teardown(void **state)
{
	(void)closer_free(closer);
	event_base_free(base);
	return 0;
}

static void test_parse(void **state)
{
	static const char *const bad[] = {"",
					  "1:2:3:4:5",
					  "1:2:3:4:5:",
					  "1:2:3:4:0:f",
					  "1:2:0:4:5:f",
					  ":2:3:4:5:f",
					  "-1:2:3:4:5:f",
					  "1:2:3:4: 5:f",
					  "4294967296:2:3:4:5:f",
					  "1:2:18446744073709551616:4:5:f",
					  "1:2:3:9223372036854775807:1:f",
					  "1:2:3:9223372036854775808:1:f",
					  "0x1:2:3:4:5:f"};
	char longest[PT_FILTER_NAME_MAX + 32];
	struct pt_range range;

	(void)state;
	assert_int_equal(pt_range_parse("8:1:131073:4416:64:ns::f(int):x", &range), 0);
	assert_int_equal(range.maj, 8);
	assert_int_equal(range.min, 1);
	assert_int_equal(range.ino, 131073);
	assert_int_equal(range.offset, 4416);
	assert_int_equal(range.size, 64);
	assert_string_equal(range.name, "ns::f(int):x");
	assert_int_equal(range.fd, -1);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(pt_range_parse(bad[i], &range), -EINVAL);
	memset(longest, 'a', sizeof(longest));
	memcpy(longest, "1:2:3:4:5:", 10);
	longest[10 + PT_FILTER_NAME_MAX] = '\0';
	assert_int_equal(pt_range_parse(longest, &range), 0);
	longest[10 + PT_FILTER_NAME_MAX] = 'a';
	longest[11 + PT_FILTER_NAME_MAX] = '\0';
	assert_int_equal(pt_range_parse(longest, &range), -EINVAL);
}

/* The mapping of code that this function is in. */
static struct proc_map own(char *path, size_t size)
{
	_cleanup_free_ char *text = NULL;
	struct proc_map map;
	size_t len, pos = 0;
	int r;

	assert_int_equal(io_read_file_at(AT_FDCWD, "/proc/self/maps", PROC_MAPS_BYTES_MAX, &text,
					 &len),
			 0);
	while ((r = proc_map_next(text, len, &pos, &map)) != 0)
		if (r > 0 && map.start <= (uint64_t)(uintptr_t)own &&
		    map.end > (uint64_t)(uintptr_t)own) {
			(void)snprintf(path, size, "%.*s", (int)map.path_len, map.path);
			return map;
		}
	fail();
	return map;
}

static struct pt_filter *filter_of(const struct proc_map *map, uint64_t ino_more, uint64_t offset)
{
	struct pt_filter *f = NULL;
	char text[256];
	const char *texts[1] = {text};

	(void)snprintf(text, sizeof(text), "%u:%u:%llu:%llu:64:own", map->maj, map->min,
		       (unsigned long long)(map->ino + ino_more), (unsigned long long)offset);
	assert_int_equal(pt_filter_new(texts, 1, closer, &f), 0);
	return f;
}

static void test_find(void **state)
{
	_cleanup_close_ int dir = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char path[4096], why[200] = "", text[PT_FILTER_KERNEL_MAX],
			 expected[PT_FILTER_KERNEL_MAX + 4096];
	const struct proc_map map = own(path, sizeof(path));
	struct pt_filter *f = filter_of(&map, 0, map.pgoff + 16);
	struct stat mine, found;
	char *perf;
	int r;

	(void)state;
	r = pt_filter_find(f, dir, why, sizeof(why));
	if (r == TARGET_E_UNSUPPORTED) {
		(void)pt_filter_put(f);
		print_message("SKIP: %s\n", why);
		skip();
	}
	assert_int_equal(r, 0);
	assert_int_equal(stat("/proc/self/exe", &mine), 0);
	assert_int_equal(fstat(f->v[0].fd, &found), 0);
	assert_int_equal(mine.st_ino, found.st_ino);
	assert_int_equal(mine.st_dev, found.st_dev);
	pt_filter_kernel_text(f, text);
	(void)snprintf(expected, sizeof(expected), "filter 0x%llx/0x40@/proc/self/fd/%d",
		       (unsigned long long)map.pgoff + 16, f->v[0].fd);
	assert_string_equal(text, expected);
	/*
	 * what the kernel makes of it is the same file, whatever its path is in the target's
	 * namespace
	 */
	assert_int_equal(stat(strchr(text, '@') + 1, &found), 0);
	assert_int_equal(mine.st_ino, found.st_ino);
	perf = pt_filter_perf_text(f);
	(void)snprintf(expected, sizeof(expected), "filter 0x%llx/0x40@%s",
		       (unsigned long long)map.pgoff + 16, path);
	assert_string_equal(perf, expected);
	free(perf);
	/* again is no other file */
	r = f->v[0].fd;
	assert_int_equal(pt_filter_find(f, dir, why, sizeof(why)), 0);
	assert_int_equal(f->v[0].fd, r);
	/* perf cannot read this path */
	free(f->v[0].path);
	f->v[0].path = strdup("/tmp/a b");
	assert_null(pt_filter_perf_text(f));
	(void)pt_filter_put(f);
}

/* A mapping that touches the range is not one that has it, but the kernel takes it for that. */
static void test_edges(void **state)
{
	_cleanup_close_ int dir = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char path[4096], why[200] = "";
	const struct proc_map map = own(path, sizeof(path));
	const uint64_t len = map.end - map.start;
	struct pt_filter *f = filter_of(&map, 0, map.pgoff);
	int r = pt_filter_find(f, dir, why, sizeof(why));

	(void)state;
	if (r != TARGET_E_UNSUPPORTED) {
		assert_int_equal(r, 0);
		assert_int_equal(f->v[0].offset, map.pgoff + 1);
		assert_int_equal(f->v[0].size, 63);
		(void)pt_filter_put(f);
		f = filter_of(&map, 0, map.pgoff + len - 64);
		assert_int_equal(pt_filter_find(f, dir, why, sizeof(why)), 0);
		assert_int_equal(f->v[0].offset, map.pgoff + len - 64);
		assert_int_equal(f->v[0].size, 63);
	}
	(void)pt_filter_put(f);
}

static void test_not_mapped(void **state)
{
	_cleanup_close_ int dir = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char path[4096], why[200] = "";
	const struct proc_map map = own(path, sizeof(path));
	struct pt_filter *f = filter_of(&map, 1000000, map.pgoff);

	(void)state;
	assert_int_equal(pt_filter_find(f, dir, why, sizeof(why)), TARGET_E_BAD);
	assert_non_null(strstr(why, "does not have this code mapped"));
	(void)pt_filter_put(f);
	f = filter_of(&map, 0, map.pgoff + (map.end - map.start));
	assert_int_equal(pt_filter_find(f, dir, why, sizeof(why)), TARGET_E_BAD);
	(void)pt_filter_put(f);
}

/* The path of what is mapped has another file by now. */
static void test_replaced(void **state)
{
	_cleanup_close_ int dir = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC), fd = -1,
			    other = -1;
	char path[] = "/tmp/test-filter-XXXXXX", why[200] = "";
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct proc_map map = {0};
	struct stat st, found;
	struct pt_filter *f;
	void *at;
	int r;

	(void)state;
	fd = mkostemp(path, O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)page), 0);
	at = mmap(NULL, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	if (at == MAP_FAILED) {
		(void)unlink(path);
		print_message("SKIP: /tmp is mounted noexec\n");
		skip();
	}
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(unlink(path), 0);
	other = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	assert_true(other >= 0);
	{
		_cleanup_free_ char *text = NULL;
		size_t len, pos = 0;

		assert_int_equal(io_read_file_at(AT_FDCWD, "/proc/self/maps", PROC_MAPS_BYTES_MAX,
						 &text, &len),
				 0);
		while ((r = proc_map_next(text, len, &pos, &map)) != 0 &&
		       map.start != (uint64_t)(uintptr_t)at)
			;
	}
	f = filter_of(&map, 0, 0);
	r = pt_filter_find(f, dir, why, sizeof(why));
	if (r == 0) {
		/* by the kernel's link: the mapped one, not the one that has its path */
		assert_int_equal(fstat(f->v[0].fd, &found), 0);
		assert_int_equal(found.st_ino, st.st_ino);
	} else if (r != TARGET_E_UNSUPPORTED) {
		assert_int_equal(r, TARGET_E_GONE);
	}
	(void)pt_filter_put(f);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(munmap(at, page), 0);
}

/* ---- a process as files, whose code is that of this program */

struct made {
	char dir[64];
	struct proc_map map;
	int fd;
};

static void put(const struct made *m, const char *name, const char *text)
{
	char path[128];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/%s", m->dir, name);
	file = fopen(path, "we");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static void make(struct made *m, const char *fs_type)
{
	char path[4096], text[8192];

	(void)snprintf(m->dir, sizeof(m->dir), "/tmp/test-filter-XXXXXX");
	assert_non_null(mkdtemp(m->dir));
	m->map = own(path, sizeof(path));
	(void)snprintf(text, sizeof(text), "%llx-%llx r-xp %08llx %02x:%02x %llu /link\n",
		       (unsigned long long)m->map.start, (unsigned long long)m->map.end,
		       (unsigned long long)m->map.pgoff, m->map.maj, m->map.min,
		       (unsigned long long)m->map.ino);
	put(m, "maps", text);
	(void)snprintf(
		text, sizeof(text),
		"20 1 99:1 / /other rw - fuse other rw\n21 1 %u:%u / / rw,relatime shared:1 - %s /dev/x rw\n",
		m->map.maj, m->map.min, fs_type);
	put(m, "mountinfo", text);
	(void)snprintf(text, sizeof(text), "%s/root", m->dir);
	assert_int_equal(mkdir(text, 0700), 0);
	(void)snprintf(text, sizeof(text), "%s/root/link", m->dir);
	/* absolute: outside of the root it is this program */
	assert_int_equal(symlink(path, text), 0);
	m->fd = open(m->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	assert_true(m->fd >= 0);
}

static void unmake(struct made *m)
{
	static const char *const names[] = {"maps", "mountinfo", "root/link"};
	char path[128];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		assert_int_equal(unlinkat(m->fd, names[i], 0), 0);
	assert_int_equal(unlinkat(m->fd, "root", AT_REMOVEDIR), 0);
	(void)snprintf(path, sizeof(path), "%s", m->dir);
	assert_int_equal(rmdir(path), 0);
	(void)close(m->fd);
}

/* A link in the target's tree leads to nothing outside of it. */
static void test_root(void **state)
{
	char why[200] = "";
	struct pt_filter *f;
	struct made m;

	(void)state;
	make(&m, "ext4");
	f = filter_of(&m.map, 0, m.map.pgoff + 16);
	assert_int_equal(pt_filter_find(f, m.fd, why, sizeof(why)), TARGET_E_GONE);
	assert_non_null(strstr(why, "cannot be found"));
	(void)pt_filter_put(f);
	unmake(&m);
}

static void test_served(void **state)
{
	static const char *const types[] = {"fuse", "fuse.sshfs", "fuseblk"};

	(void)state;
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
		char why[200] = "";
		struct pt_filter *f;
		struct made m;

		make(&m, types[i]);
		f = filter_of(&m.map, 0, m.map.pgoff + 16);
		assert_int_equal(pt_filter_find(f, m.fd, why, sizeof(why)), TARGET_E_UNSUPPORTED);
		assert_non_null(strstr(why, "FUSE"));
		(void)pt_filter_put(f);
		unmake(&m);
	}
}

/*
 * What keeps it for last may be a file that takes the kernel seconds to free: the loop does not
 * wait for that.
 */
static void test_closed_by_thread(void **state)
{
	char path[4096];
	const struct proc_map map = own(path, sizeof(path));
	struct pt_filter *f = filter_of(&map, 0, map.pgoff);

	(void)state;
	f->v[0].fd = open("/proc/self/exe", O_PATH | O_CLOEXEC);
	assert_true(f->v[0].fd >= 0);
	(void)pt_filter_put(f);
	assert_int_equal(closer_waiting(closer), 1);
}

int main(void)
{
#define T(x) cmocka_unit_test_setup_teardown(x, setup, teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse),
		T(test_find),
		T(test_edges),
		T(test_not_mapped),
		T(test_replaced),
		T(test_root),
		T(test_served),
		T(test_closed_by_thread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
