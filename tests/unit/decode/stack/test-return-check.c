// SPDX-License-Identifier: Apache-2.0
/* Which bytes in front of an address are a call: vectors as an assembler writes them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/cleanup.h"
#include "decode/stack/return_check.h"

struct vector {
	const char *what;
	uint8_t len;
	uint8_t bytes[8];
	bool call;
};

static const struct vector vectors[] = {
	{"call rel32", 5, {0xe8, 0x12, 0x34, 0x00, 0x00}, true},
	{"data16 rex.W call __tls_get_addr", 7, {0x66, 0x48, 0xe8, 0x10, 0x00, 0x00, 0x00}, true},
	{"addr32 call rel32", 6, {0x67, 0xe8, 0x10, 0x00, 0x00, 0x00}, true},
	{"call *%rax", 2, {0xff, 0xd0}, true},
	{"call *%rdi", 2, {0xff, 0xd7}, true},
	{"call *%r11", 3, {0x41, 0xff, 0xd3}, true},
	{"notrack call *%rdx", 3, {0x3e, 0xff, 0xd2}, true},
	{"bnd call *%rdx", 3, {0xf2, 0xff, 0xd2}, true},
	{"call *(%rax)", 2, {0xff, 0x10}, true},
	{"call *(%r12)", 4, {0x41, 0xff, 0x14, 0x24}, true},
	{"call *(%rbx,%rax,8)", 3, {0xff, 0x14, 0xc3}, true},
	{"call *table(,%rax,8)", 7, {0xff, 0x14, 0xc5, 0x10, 0x20, 0x30, 0x00}, true},
	{"call *rel(%rip)", 6, {0xff, 0x15, 0x01, 0x02, 0x03, 0x04}, true},
	{"call *0x18(%rax)", 3, {0xff, 0x50, 0x18}, true},
	{"call *0x18(%r13)", 4, {0x41, 0xff, 0x55, 0x18}, true},
	{"call *0x8(%rsp)", 4, {0xff, 0x54, 0x24, 0x08}, true},
	{"call *0x8(%r9,%rbx,2)", 5, {0x41, 0xff, 0x54, 0x59, 0x08}, true},
	{"call *0x100(%rax)", 6, {0xff, 0x90, 0x00, 0x01, 0x00, 0x00}, true},
	{"call *0x100(%rsp,%rcx,4)", 7, {0xff, 0x94, 0x8c, 0x00, 0x01, 0x00, 0x00}, true},
	{"call *0x100(%r10,%rcx,4)", 8, {0x41, 0xff, 0x94, 0x8a, 0x00, 0x01, 0x00, 0x00}, true},
	{"jmp rel32", 5, {0xe9, 0x12, 0x34, 0x00, 0x00}, false},
	{"jmp *%rax", 2, {0xff, 0xe0}, false},
	{"push (%rax)", 2, {0xff, 0x30}, false},
	{"inc (%rax)", 2, {0xff, 0x00}, false},
	{"jmp *rel(%rip)", 6, {0xff, 0x25, 0x01, 0x02, 0x03, 0x04}, false},
	{"ret", 1, {0xc3}, false},
	{"mov %rsp,%rbp", 3, {0x48, 0x89, 0xe5}, false},
	{"syscall", 2, {0x0f, 0x05}, false},
	{"nops", 8, {0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90}, false},
	{"half of call *rel(%rip)", 5, {0xff, 0x15, 0x01, 0x02, 0x03}, false},
	{"nothing", 0, {0}, false},
};

static void test_vectors(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(vectors); i++) {
		const struct vector *v = &vectors[i];
		uint8_t buf[RETURN_CHECK_BEFORE];

		/* with nops in front, as in code, and alone, as at the front of a segment */
		memset(buf, 0x90, sizeof(buf));
		memcpy(buf + sizeof(buf) - v->len, v->bytes, v->len);
		if (return_check_follows_call(buf, sizeof(buf)) != v->call ||
			return_check_follows_call(v->bytes, v->len) != v->call)
			fail_msg("%s", v->what);
	}
}

static void test_sigreturn(void **state)
{
	static const uint8_t code[] = {0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05};

	(void)state;
	assert_true(return_check_is_sigreturn(code, sizeof(code)));
	assert_false(return_check_is_sigreturn(code, sizeof(code) - 1));
	assert_false(return_check_is_sigreturn(code + 1, sizeof(code) - 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vectors),
		cmocka_unit_test(test_sigreturn),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
