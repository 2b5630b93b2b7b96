/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "decode/base/stacktab.h"
#include "decode/base/strtab.h"

static uint32_t frame(struct stacktab *st, const char *name)
{
	return stacktab_frame(st, &(struct frame_info){.name = name, .object = "/bin/x"});
}

static void strings_are_stored_once(void **state)
{
	_cleanup_(strtab_freep) struct strtab *t = NULL;
	const char *first;
	char name[32];
	bool new;

	assert_int_equal(strtab_new(1 << 20, "full", &t), 0);
	assert_int_equal(strtab_add(t, "", 0, &new), STRTAB_EMPTY);
	assert_int_equal(strtab_add(t, "a", 1, &new), 2);
	assert_true(new);
	first = strtab_text(t, 2);
	for (uint32_t i = 0; i < 5000; i++) {
		int n = snprintf(name, sizeof(name), "name %u", i);

		assert_int_equal(strtab_add(t, name, (size_t)n, NULL), 3 + i);
	}
	assert_int_equal(strtab_add(t, "a", 1, &new), 2);
	assert_false(new);
	assert_ptr_equal(strtab_text(t, 2), first); /* texts never move */
	assert_string_equal(strtab_text(t, 3 + 4999), "name 4999");
	assert_int_equal(strtab_add(t, "name 4999x", 9, NULL), 3 + 4999);
	assert_string_equal(strtab_text(t, 1u << 30), "");
}

static void strings_beyond_the_limit_are_counted(void **state)
{
	_cleanup_(strtab_freep) struct strtab *t = NULL;
	char name[128];
	uint32_t full = 0;

	assert_int_equal(strtab_new(600 * 1024, "full", &t), 0);
	for (uint32_t i = 0; i < 20000; i++) {
		int n = snprintf(name, sizeof(name), "%0100u", i);

		full += strtab_add(t, name, (size_t)n, NULL) == STRTAB_FULL;
	}
	assert_true(full > 10000 && full < 20000);
	assert_int_equal(strtab_dropped(t), full);
	assert_true(strtab_bytes(t) <= 600 * 1024);
	assert_string_equal(strtab_text(t, STRTAB_FULL), "full");
}

static void equal_frames_are_one(void **state)
{
	_cleanup_(stacktab_freep) struct stacktab *st = NULL;
	struct frame_info info;
	uint32_t a, b;

	assert_int_equal(stacktab_new(0, &st), 0);
	a = frame(st, "main");
	assert_true(a > STACKTAB_FRAME_FULL);
	assert_int_equal(frame(st, "main"), a);
	b = stacktab_frame(st, &(struct frame_info){.name = "main", .object = "/bin/y"});
	assert_int_not_equal(a, b);
	assert_int_not_equal(a, stacktab_frame(st, &(struct frame_info){.name = "main",
									.object = "/bin/x",
									.kind = FRAME_KIND_JIT}));
	stacktab_info(st, b, &info);
	assert_string_equal(info.name, "main");
	assert_string_equal(info.object, "/bin/y");
	assert_string_equal(info.file, "");
	stacktab_info(st, 0, &info);
	assert_string_equal(info.name, "");
	stacktab_info(st, 4711, &info);
	assert_string_equal(info.name, "");
}

static void stacks_share_their_outer_part(void **state)
{
	_cleanup_(stacktab_freep) struct stacktab *st = NULL;
	uint32_t f[3], s1, s2, out[4];

	assert_int_equal(stacktab_new(0, &st), 0);
	f[0] = frame(st, "main");
	f[1] = frame(st, "work");
	f[2] = frame(st, "wait");
	s1 = stacktab_push(st, stacktab_push(st, STACKTAB_ROOT, f[0]), f[1]);
	s2 = stacktab_push(st, stacktab_push(st, STACKTAB_ROOT, f[0]), f[2]);
	assert_int_not_equal(s1, s2);
	assert_int_equal(stacktab_parent(st, s1), stacktab_parent(st, s2));
	assert_int_equal(stacktab_n_stacks(st), 4);
	assert_int_equal(stacktab_leaf(st, s2), f[2]);
	assert_int_equal(stacktab_depth(st, s2), 2);
	assert_int_equal(stacktab_depth(st, STACKTAB_ROOT), 0);
	assert_int_equal(stacktab_frames(st, s2, out, 4), 2);
	assert_int_equal(out[0], f[0]);
	assert_int_equal(out[1], f[2]);
	assert_int_equal(stacktab_frames(st, s2, out, 1), 1); /* outermost first */
	assert_int_equal(out[0], f[0]);
	/* recursion is kept */
	s1 = stacktab_push(st, s2, f[2]);
	assert_int_equal(stacktab_depth(st, s1), 3);
}

static void nonsense_is_refused(void **state)
{
	_cleanup_(stacktab_freep) struct stacktab *st = NULL;
	uint32_t f, s = STACKTAB_ROOT;

	assert_int_equal(stacktab_new(0, &st), 0);
	f = frame(st, "main");
	assert_int_equal(stacktab_push(st, STACKTAB_ROOT, 0), STACKTAB_ROOT);
	assert_int_equal(stacktab_push(st, STACKTAB_ROOT, 4711), STACKTAB_ROOT);
	assert_int_equal(stacktab_push(st, 4711, f), 4711);
	assert_int_equal(stacktab_dropped(st), 3);
	assert_int_equal(stacktab_depth(st, 4711), 0);
	for (uint32_t i = 0; i < STACKTAB_MAX_DEPTH + 10; i++)
		s = stacktab_push(st, s, f);
	assert_int_equal(stacktab_depth(st, s), STACKTAB_MAX_DEPTH);
	assert_int_equal(stacktab_dropped(st), 13);
}

static void memory_is_bounded(void **state)
{
	const size_t limit = 1 << 20;
	_cleanup_(stacktab_freep) struct stacktab *st = NULL;
	uint32_t last = 0, s;
	char name[64];

	assert_int_equal(stacktab_new(limit, &st), 0);
	for (uint32_t i = 0; i < 100000; i++) {
		(void)snprintf(name, sizeof(name), "function %u", i);
		last = frame(st, name);
		s = stacktab_push(st, STACKTAB_ROOT, last);
		assert_true(s < stacktab_n_stacks(st));
	}
	assert_true(stacktab_bytes(st) <= limit);
	assert_true(stacktab_dropped(st) > 0);
	/* what is known stays known */
	assert_int_equal(frame(st, "function 0"), STACKTAB_FRAME_FULL + 1);
}

static void many_frames_and_stacks(void **state)
{
	_cleanup_(stacktab_freep) struct stacktab *st = NULL;
	uint32_t f[200], first[200];
	char name[32];

	assert_int_equal(stacktab_new(0, &st), 0);
	for (uint32_t i = 0; i < 200; i++) {
		(void)snprintf(name, sizeof(name), "f%u", i);
		f[i] = frame(st, name);
	}
	for (int round = 0; round < 2; round++)
		for (uint32_t i = 0; i < 200; i++) {
			uint32_t s = stacktab_push(st, STACKTAB_ROOT, f[i]);

			for (uint32_t k = 0; k < 200; k++) {
				uint32_t t = stacktab_push(st, s, f[k]);

				assert_int_equal(stacktab_leaf(st, t), f[k]);
				assert_int_equal(stacktab_parent(st, t), s);
			}
			if (round == 0)
				first[i] = s;
			else
				assert_int_equal(first[i], s);
		}
	assert_int_equal(stacktab_n_stacks(st), 1 + 200 + 200 * 200);
	assert_int_equal(stacktab_dropped(st), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strings_are_stored_once),
		cmocka_unit_test(strings_beyond_the_limit_are_counted),
		cmocka_unit_test(equal_frames_are_one),
		cmocka_unit_test(stacks_share_their_outer_part),
		cmocka_unit_test(nonsense_is_refused),
		cmocka_unit_test(memory_is_bounded),
		cmocka_unit_test(many_frames_and_stacks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
