// SPDX-License-Identifier: Apache-2.0
/* Which instructions may put anything into the stack pointer, by their bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "decode/pt/stack_pointer.h"

static const struct encoding {
	const char *what;
	uint8_t code[8];
	uint8_t n;
	bool is32, loads;
} encodings[] = {
	{"mov (%rsi),%rsp", {0x48, 0x8b, 0x26}, 3, .loads = true},
	{"mov 8(%rdi),%rsp", {0x48, 0x8b, 0x67, 0x08}, 4, .loads = true},
	{"mov (%r12),%rsp", {0x49, 0x8b, 0x24, 0x24}, 4, .loads = true},
	{"mov %rax,%rsp", {0x48, 0x89, 0xc4}, 3, .loads = true},
	{"mov %rsi,%rsp, the other way", {0x48, 0x8b, 0xe6}, 3, .loads = true},
	{"xchg %rax,%rsp", {0x48, 0x94}, 2, .loads = true},
	{"xchg %rsp,(%rdi)", {0x48, 0x87, 0x27}, 3, .loads = true},
	{"pop %rsp", {0x5c}, 1, .loads = true},
	{"lea 16(%rdx),%rsp", {0x48, 0x8d, 0x62, 0x10}, 4, .loads = true},
	{"mov (%eax),%esp", {0x8b, 0x20}, 2, .is32 = true, .loads = true},
	{"mov %edx,%esp", {0x89, 0xd4}, 2, .is32 = true, .loads = true},
	/* back to its own frame */
	{"leave", {0xc9}, 1},
	{"mov %rbp,%rsp", {0x48, 0x89, 0xec}, 3},
	{"lea -40(%rbp),%rsp", {0x48, 0x8d, 0x65, 0xd8}, 4},
	{"lea -8(%r10),%rsp", {0x49, 0x8d, 0x62, 0xf8}, 4},
	{"lea 8(%rsp),%rsp", {0x48, 0x8d, 0x64, 0x24, 0x08}, 5},
	{"add $8,%rsp", {0x48, 0x83, 0xc4, 0x08}, 4},
	{"and $-16,%rsp", {0x48, 0x83, 0xe4, 0xf0}, 4},
	/* from it, and others */
	{"mov %rsp,(%rdi)", {0x48, 0x89, 0x27}, 3},
	{"mov %rsp,%rax", {0x48, 0x89, 0xe0}, 3},
	{"mov %rax,%r12", {0x49, 0x89, 0xc4}, 3},
	{"mov (%rsi),%r12", {0x4c, 0x8b, 0x26}, 3},
	{"xchg %rax,%r12", {0x49, 0x94}, 2},
	{"pop %r12", {0x41, 0x5c}, 2},
	{"mov %eax,%esp", {0x89, 0xc4}, 2},
	/* cut off */
	{"rex", {0x48}, 1},
	{"mov, without its operands", {0x48, 0x8b}, 2},
	{"mov, without its offset", {0x48, 0x8b, 0x67}, 3},
};

static void test_encodings(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(encodings) / sizeof(*encodings); i++) {
		const struct encoding *e = &encodings[i];

		if (stack_pointer_may_load(e->code, e->n, !e->is32) != e->loads)
			fail_msg("%s: %s", e->what, e->loads ? "is not seen" : "is taken for a load");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_encodings)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
