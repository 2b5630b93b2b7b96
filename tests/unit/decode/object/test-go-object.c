// SPDX-License-Identifier: Apache-2.0
/*
 * The Go programs that are here say where a thread has its goroutine, as the structures of their
 * release have it; whatever is done to such a file, what is told of it is within bounds, and so is
 * what the daemon takes of that.
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

#include "common/bundle/go_layout.h"
#include "common/control/json.h"
#include "decode/object/go_object.h"

#define ROUNDS 60

static struct budget budget = {.max = 512u << 20};

static const char *const places[] = {"/usr/local/go/bin/gofmt", "/usr/lib/go-*/bin/gofmt",
				     "/usr/lib/golang/bin/gofmt"};

static void each(void (*fn)(const char *path))
{
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		glob_t found;

		if (glob(places[i], 0, NULL, &found) != 0)
			continue;
		for (size_t k = 0; k < found.gl_pathc; k++)
			fn(found.gl_pathv[k]);
		globfree(&found);
	}
}

static void look(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct go_object o;

	if (fd < 0)
		return;
	assert_int_equal(go_object_look(fd, &budget, &o), 0);
	if (o.minor < 18 || o.minor > 27) {
		assert_non_null(o.refused);
		return;
	}
	if (o.refused) /* no release, or another linker's */
		return;
	assert_true(go_layout_ok(&o.layout));
	assert_int_equal(o.layout.m, 48);
	assert_int_equal(o.layout.goid, o.minor == 23 || o.minor == 24 ? 160 : 152);
	assert_int_equal(o.layout.status, o.layout.goid - 8);
	assert_int_equal(o.layout.curg, o.layout.procid + 120);
	assert_int_equal(o.layout.below % 8, 0);
}

static void test_here(void **state)
{
	(void)state;
	each(look);
}

static void spoil(const char *path)
{
	_cleanup_close_ int from = open(path, O_RDONLY | O_CLOEXEC),
			    fd = memfd_create("spoilt", MFD_CLOEXEC);
	struct go_object o;
	struct stat st;
	uint8_t *bytes, *info;

	if (from < 0 || fstat(from, &st) < 0 || st.st_size < 65536 || ftruncate(fd, st.st_size) < 0)
		return;
	bytes = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(bytes != MAP_FAILED);
	assert_int_equal(pread(from, bytes, (size_t)st.st_size, 0), st.st_size);
	info = memmem(bytes, (size_t)st.st_size, "\xff Go buildinf:", 14);
	if (info && go_object_look(fd, &budget, &o) == 0 && !o.refused) {
		for (int round = 0; round < ROUNDS; round++) {
			uint8_t *areas[] = {bytes, bytes + st.st_size - 4096, info};
			uint8_t *at = areas[round % 3] + random() % (round % 3 == 2 ? 64 : 4096);
			const uint8_t was = *at;

			*at ^= (uint8_t)(1 << random() % 8);
			if (go_object_look(fd, &budget, &o) == 0 && !o.refused)
				assert_true(go_layout_ok(&o.layout) && o.minor >= 18 &&
					    o.minor <= 27);
			*at = was;
		}
		/* a release that nobody knows yet, one that is none, and one of before */
		memcpy(info + 33, "go1.99", 6);
		assert_int_equal(go_object_look(fd, &budget, &o), 0);
		assert_string_equal(o.refused, "this version is not known");
		memcpy(info + 33, "go1.26rc1", 9);
		assert_int_equal(go_object_look(fd, &budget, &o), 0);
		assert_string_equal(o.refused, "it is no release");
		memcpy(info + 33, "devel go1", 9);
		assert_int_equal(go_object_look(fd, &budget, &o), 0);
		assert_string_equal(o.refused, "it does not say its version");
		info[15] = 0;
		assert_int_equal(go_object_look(fd, &budget, &o), 0);
		assert_string_equal(o.refused, "it is older than Go 1.18");
		assert_int_equal(ftruncate(fd, 4096), 0);
		(void)!go_object_look(fd, &budget, &o);
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
	struct go_object o;

	(void)state;
	assert_int_equal(go_object_look(self, &budget, &o), -ENODATA);
	assert_int_equal(go_object_look(none, &budget, &o), -EBADMSG);
}

static void test_layout(void **state)
{
	static const char *const bad[] = {
		"[8,48,144,152,64]",          "[8,48,144,152,64,184,0]",
		"[0,48,144,152,64,184]",      "[9,48,144,152,64,184]",
		"[131072,48,144,152,64,184]", "[8,1024,144,152,64,184]",
		"[8,48,146,152,64,184]",      "[8,48,144,156,64,184]",
		"[8,48,144,152,-8,184]",      "[8,48,144,152,64,\"184\"]",
	};
	const struct go_layout layout = {
		.below = 48, .m = 48, .status = 144, .goid = 152, .procid = 64, .curg = 184};
	struct json_object *array = go_layout_json(&layout);
	struct go_layout got;

	(void)state;
	assert_int_equal(go_layout_parse(array, &got), 0);
	assert_memory_equal(&got, &layout, sizeof(got));
	json_object_put(array);
	assert_int_equal(go_layout_parse(NULL, &got), -EBADMSG);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		array = json_tokener_parse(bad[i]);
		assert_non_null(array);
		assert_int_equal(go_layout_parse(array, &got), -EBADMSG);
		json_object_put(array);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_here),
		cmocka_unit_test(test_broken),
		cmocka_unit_test(test_others),
		cmocka_unit_test(test_layout),
	};

	(void)elf_version(EV_CURRENT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
