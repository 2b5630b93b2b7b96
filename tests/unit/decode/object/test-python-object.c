// SPDX-License-Identifier: Apache-2.0
/*
 * The interpreters that are here say where they keep their frames, as their headers have it, and
 * older ones are refused; whatever is done to such a file, what is told of it is within bounds.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <libelf.h>
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

#include "common/bundle/python_layout.h"
#include "decode/object/python_object.h"

#define ROUNDS 300

static struct budget budget = {.max = 256u << 20};

static const char *const places[] = {
	"/usr/bin/python3.[0-9]*[0-9]",
	"/usr/lib/x86_64-linux-gnu/libpython3.*.so.1.0",
	"/usr/lib64/libpython3.*.so.1.0",
	"/root/.pyenv/versions/*/lib/libpython3.*.so.1.0",
};

/* By the name of the file: "python3.11", "libpython3.11.so.1.0". */
static unsigned int minor_of(const char *path)
{
	const char *at = strstr(strrchr(path, '/'), "python3.");

	return at ? (unsigned int)strtoul(at + 8, NULL, 10) : 0;
}

static void each(void (*fn)(const char *path, unsigned int minor))
{
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		glob_t found;

		if (glob(places[i], 0, NULL, &found) != 0)
			continue;
		for (size_t k = 0; k < found.gl_pathc; k++)
			fn(found.gl_pathv[k], minor_of(found.gl_pathv[k]));
		globfree(&found);
	}
}

static void look(const char *path, unsigned int minor)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct python_object o;
	int r = python_object_look(fd, &budget, &o);

	/* a script, or a program that has it in a library */
	if (r == -ENODATA || r == -EBADMSG)
		return;
	assert_int_equal(r, 0);
	if (minor < 11) {
		assert_string_equal(o.refused, "it is older than 3.11");
		return;
	}
	assert_int_equal(o.minor, minor);
	if (minor > 14) {
		assert_non_null(o.refused);
		return;
	}
	/* a debug build is refused by its own word */
	if (o.refused)
		return;
	assert_true(o.runtime);
	assert_true(python_layout_ok(&o.layout));
	/* these have not changed in any of the versions */
	assert_int_equal(o.layout.file, 112);
	assert_int_equal(o.layout.name, 128);
	assert_int_equal(o.layout.next, 8);
	assert_int_equal(o.layout.interpreter, 16);
	assert_int_equal(o.layout.is_entry != PYTHON_NONE, minor == 11);
	assert_int_equal(o.layout.frame_within != PYTHON_NONE, minor < 13);
	assert_int_equal(o.layout.ascii, minor == 11 ? 48 : 40);
}

static void test_here(void **state)
{
	(void)state;
	each(look);
}

static void spoil(const char *path, unsigned int minor)
{
	_cleanup_close_ int from = open(path, O_RDONLY | O_CLOEXEC),
			    fd = memfd_create("spoilt", MFD_CLOEXEC);
	struct python_object o;
	struct stat st;
	uint8_t *bytes;
	size_t dynsym = 0;

	if (minor < 11 || from < 0 || fstat(from, &st) < 0 || st.st_size < 4096 ||
	    ftruncate(fd, st.st_size) < 0)
		return;
	bytes = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(bytes != MAP_FAILED);
	assert_int_equal(pread(from, bytes, (size_t)st.st_size, 0), st.st_size);
	if (python_object_look(fd, &budget, &o) == 0) {
		dynsym = o.runtime % (size_t)st.st_size;
		for (int round = 0; round < ROUNDS; round++) {
			const size_t areas[] = {0, (size_t)st.st_size - 4096,
						dynsym < (size_t)st.st_size - 4096 ? dynsym : 0};
			const size_t at = areas[round % 3] + (size_t)random() % 4096;
			const uint8_t was = bytes[at];

			bytes[at] ^= (uint8_t)(1 << random() % 8);
			if (python_object_look(fd, &budget, &o) == 0 && !o.refused)
				assert_true(python_layout_ok(&o.layout) && o.minor >= 11 &&
					    o.minor <= 14);
			bytes[at] = was;
		}
		/* cut off, and nothing but its head */
		assert_int_equal(ftruncate(fd, 4096), 0);
		(void)!python_object_look(fd, &budget, &o);
	}
	munmap(bytes, (size_t)st.st_size);
}

static void test_broken(void **state)
{
	(void)state;
	srandom(1);
	each(spoil);
}

static void test_others(void **state)
{
	_cleanup_close_ int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC),
			    none = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct python_object o;

	(void)state;
	assert_int_equal(python_object_look(self, &budget, &o), -ENODATA);
	assert_int_equal(python_object_look(none, &budget, &o), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_here),
		cmocka_unit_test(test_broken),
		cmocka_unit_test(test_others),
	};

	(void)elf_version(EV_CURRENT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
