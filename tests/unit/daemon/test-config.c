// SPDX-License-Identifier: Apache-2.0
/* The table of keys and the file: what is taken, and what keeps tracerd from starting. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/io.h"
#include "daemon/config.h"

/* Loads text as a file; the message goes to `why`. */
static int load(struct config *c, const char *text, char *why, size_t why_size)
{
	_cleanup_close_ int fd = io_memfd("config");
	char path[64];

	why[0] = '\0';
	assert_true(fd >= 0);
	assert_int_equal(io_write_all(fd, text, strlen(text)), 0);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return config_load(c, path, why, why_size);
}

static void test_defaults(void **state)
{
	struct config c;

	(void)state;
	assert_int_equal(config_init(&c), 0);
	assert_int_equal(c.sample_hz, 999);
	assert_int_equal(c.socket_mode, 0666);
	assert_int_equal(c.max_connections, 4096);
	assert_string_equal(c.decoder, "");
	assert_string_equal(c.runtime_dir, TRACERD_RUNDIR);
	for (size_t i = 0; i < config_n_keys; i++) {
		assert_true(config_keys[i].doc[0]);
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(config_keys[i].name, config_keys[j].name);
	}
	config_fini(&c);
	config_fini(&c); /* and again: nothing is left */
}

static void test_file(void **state)
{
	struct config c;
	char why[200];

	(void)state;
	assert_int_equal(config_init(&c), 0);
	assert_int_equal(
		load(&c,
		     "# comment\n; comment\n[capture]\nsample_hz = 50\nring_kib=128\n\n[daemon]\n"
		     "socket_mode = 0600\nstate_dir = /srv/x\nsocket_group =\n[client]\nclient_idle_s: 5\n",
		     why, sizeof(why)),
		0);
	assert_int_equal(c.sample_hz, 50);
	assert_int_equal(c.ring_kib, 128);
	assert_int_equal(c.socket_mode, 0600);
	assert_int_equal(c.client_idle_s, 5);
	assert_string_equal(c.state_dir, "/srv/x");
	assert_string_equal(c.socket_group, "");
	config_fini(&c);
}

static void test_bad_files(void **state)
{
	static const char *const bad[][2] = {
		{"[capture]\nsample_hz = 0\n", "line 2: sample_hz: out of range"},
		{"[capture]\nsample_hz = 20001\n", "line 2: sample_hz: out of range"},
		{"[capture]\nsample_hz = -1\n", "line 2: sample_hz: not a number"},
		{"[capture]\nsample_hz = 99999999999999999999\n",
		 "line 2: sample_hz: not a number"},
		{"[capture]\nsample_hz = 1k\n", "line 2: sample_hz: not a number"},
		{"[capture]\nsample_hz =\n", "line 2: sample_hz: not a number"},
		{"[capture]\n\nsample_hzz = 1\n", "line 3: unknown key"},
		{"[daemon]\nsample_hz = 100\n", "line 2: sample_hz belongs to section [capture]"},
		{"sample_hz = 100\n", "line 1: a key outside"},
		{"[capture]\nsample_hz\n", "line 2: "},
		{"[capture\nsample_hz = 1\n", "line 1: "},
		{"[capture]\nring_kib = 100\n", "line 2: ring_kib: not a power of two"},
		{"[capture]\ndwarf_stack_bytes = 1001\n",
		 "line 2: dwarf_stack_bytes: not a multiple of 8"},
		{"[daemon]\nsocket_mode = 0888\n", "line 2: socket_mode: not an octal number"},
		{"[daemon]\nsocket_mode = 07777\n", "line 2: socket_mode: out of range"},
		{"[daemon]\nstate_dir = relative\n", "line 2: state_dir: must be an absolute path"},
		{"[daemon]\nstate_dir =\n", "line 2: state_dir: 0 bytes"},
		{"[daemon]\nlog_level = loud\n", "line 2: log_level: must be"},
		{"[daemon]\nruntime_dir = /0123456789/0123456789/0123456789/0123456789/0123456789/0123456789/0123456789/01234\n",
		 "line 2: runtime_dir: 83 bytes"},
	};
	struct config c;
	char why[200];

	(void)state;
	assert_int_equal(config_init(&c), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(load(&c, bad[i][0], why, sizeof(why)), -EINVAL);
		if (strncmp(why, bad[i][1], strlen(bad[i][1])) != 0)
			fail_msg("%s said \"%s\"", bad[i][0], why);
	}
	assert_int_equal(c.sample_hz, 999);
	assert_int_equal(config_load(&c, "/nonexistent/x", why, sizeof(why)), -ENOENT);
	assert_int_equal(config_load(&c, "/proc", why, sizeof(why)), -EIO);
	config_fini(&c);
}

/* What is printed can be loaded and gives the same again. */
static void test_round_trip(void **state)
{
	struct config a, b;
	char why[200], *text = NULL, *again = NULL;
	size_t len;
	FILE *f;

	(void)state;
	assert_int_equal(config_init(&a), 0);
	assert_int_equal(config_init(&b), 0);
	assert_int_equal(config_set(&a, NULL, "sample_hz", "123", why, sizeof(why)), 0);
	assert_int_equal(config_set(&a, "daemon", "socket_mode", "640", why, sizeof(why)), 0);
	assert_int_equal(config_set(&a, NULL, "state_dir", "/x y", why, sizeof(why)), 0);
	f = open_memstream(&text, &len);
	assert_int_equal(config_print(&a, f), 0);
	(void)fclose(f);
	if (load(&b, text, why, sizeof(why)) != 0)
		fail_msg("%s", why);
	f = open_memstream(&again, &len);
	assert_int_equal(config_print(&b, f), 0);
	(void)fclose(f);
	assert_string_equal(text, again);
	assert_int_equal(b.sample_hz, 123);
	assert_string_equal(b.state_dir, "/x y");
	free(text);
	free(again);
	config_fini(&a);
	config_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_file),
		cmocka_unit_test(test_bad_files),
		cmocka_unit_test(test_round_trip),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
