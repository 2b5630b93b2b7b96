// SPDX-License-Identifier: Apache-2.0
/*
 * Which instructions may put anything into the stack pointer, by their bytes, and which do, by the
 * code of their function.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "decode/pt/code.h"
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
	{"mov %ds:(%rsi),%rsp", {0x3e, 0x48, 0x8b, 0x26}, 4, .loads = true},
	{"mov %fs:(%rsp),%rsp", {0x64, 0x48, 0x8b, 0x24, 0x24}, 5, .loads = true},
	{"cmovne %rsi,%rsp", {0x48, 0x0f, 0x45, 0xe6}, 4, .loads = true},
	{"cmove (%rsi),%rsp", {0x48, 0x0f, 0x44, 0x26}, 4, .loads = true},
	{"add %rsi,%rsp", {0x48, 0x01, 0xf4}, 3, .loads = true},
	{"add (%rsi),%rsp", {0x48, 0x03, 0x26}, 3, .loads = true},
	{"lea -8(%rsi),%rsp", {0x48, 0x8d, 0x66, 0xf8}, 4, .loads = true},
	{"lea (%rsi,%rax,8),%rsp", {0x48, 0x8d, 0x24, 0xc6}, 4, .loads = true},
	{"lea 16(%rip),%rsp", {0x48, 0x8d, 0x25, 0x10, 0, 0, 0}, 7, .loads = true},
	{"iretq", {0x48, 0xcf}, 2, .loads = true},
	/* perhaps to its own frame, which its function says */
	{"leave", {0xc9}, 1, .loads = true},
	{"mov %rbp,%rsp", {0x48, 0x89, 0xec}, 3, .loads = true},
	{"lea -40(%rbp),%rsp", {0x48, 0x8d, 0x65, 0xd8}, 4, .loads = true},
	/* back to its own frame */
	{"lea -8(%r10),%rsp", {0x49, 0x8d, 0x62, 0xf8}, 4},
	{"lea -8(%r13),%rsp", {0x49, 0x8d, 0x65, 0xf8}, 4},
	{"lea -4(%ecx),%esp", {0x8d, 0x61, 0xfc}, 3, .is32 = true},
	{"iret, within a privilege", {0xcf}, 1, .is32 = true},
	{"lea 8(%rsp),%rsp", {0x48, 0x8d, 0x64, 0x24, 0x08}, 5},
	{"lea 8(%rsp,%rax),%rsp", {0x48, 0x8d, 0x64, 0x04, 0x08}, 5},
	{"lea 8(%rbp,%rax),%rsp", {0x48, 0x8d, 0x64, 0x05, 0x08}, 5},
	{"add 8(%rsp),%rsp", {0x48, 0x03, 0x64, 0x24, 0x08}, 5},
	{"sub %rax,%rsp, an array", {0x48, 0x29, 0xc4}, 3},
	{"add $8,%rsp", {0x48, 0x83, 0xc4, 0x08}, 4},
	{"and $-16,%rsp", {0x48, 0x83, 0xe4, 0xf0}, 4},
	/* where the kernel is entered */
	{"mov %gs:8,%rsp", {0x65, 0x48, 0x8b, 0x24, 0x25, 8, 0, 0}, 8},
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
	{"a prefix", {0x3e}, 1},
	{"cmov, without its operands", {0x48, 0x0f, 0x45}, 3},
	{"mov, without its operands", {0x48, 0x8b}, 2},
	{"mov, without its offset", {0x48, 0x8b, 0x67}, 3},
};

static void test_encodings(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(encodings) / sizeof(*encodings); i++) {
		const struct encoding *e = &encodings[i];

		if (stack_pointer_may_load(e->code, e->n, !e->is32) != e->loads)
			fail_msg("%s: %s", e->what,
				 e->loads ? "is not seen" : "is taken for a load");
	}
}

/* One function, in place of all code of decode/pt/code.c. */
struct ptcode {
	const uint8_t *code;
	size_t n;
};

#define BEGIN 0x1000u

size_t ptcode_read(struct ptcode *c, const struct address_space *s, uint64_t ip,
		   const uint8_t **ret, uint8_t *buffer, size_t n)
{
	(void)s;
	(void)buffer;
	if (ip < BEGIN || ip >= BEGIN + c->n)
		return 0;
	*ret = c->code + (ip - BEGIN);
	return BEGIN + c->n - ip < n ? BEGIN + c->n - ip : n;
}

bool ptcode_begin(const struct ptcode *c, const struct address_space *s, uint64_t ip, uint64_t *ret)
{
	(void)s;
	*ret = BEGIN;
	return ip >= BEGIN && ip < BEGIN + c->n;
}

static const struct function {
	const char *what;
	uint8_t code[32];
	uint8_t n, from; /* the straight line that is asked for begins there */
	bool loads;
} code_of_functions[] = {
	/* push %rbp; mov %rsp,%rbp; pop %rbp; ret; leave; ret */
	{"a frame, behind an earlier return",
	 {0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3, 0xc9, 0xc3},
	 8,
	 6},
	/* ...; mov 8(%rsp),%rbp; ...; lea -40(%rbp),%rsp */
	{"a frame, and its caller's from the stack",
	 {0x55, 0x48, 0x89, 0xe5, 0x48, 0x8b, 0x6c, 0x24, 0x08, 0xc3, 0x48, 0x8d, 0x65, 0xd8, 0xc3},
	 15,
	 10},
	{"enter and leave", {0xc8, 0x10, 0, 0, 0xc9, 0xc3}, 6, 0},
	/* pop %rbp; ret; leave; ret */
	{"a part without a begin", {0x5d, 0xc3, 0xc9, 0xc3}, 4, 2},
	/* mov %rsp,%rbx; sub %rax,%rsp; mov %rbx,%rsp */
	{"an array", {0x48, 0x89, 0xe3, 0x48, 0x29, 0xc4, 0x48, 0x89, 0xdc}, 9, 0},
	/*
	 * lea 8(%rsp),%r10; and $-32,%rsp; push -8(%r10); push %rbp; mov %rsp,%rbp; push %r10; pop
	 * %r10; pop %rbp; lea -8(%r10),%rsp
	 */
	{"an aligned stack",
	 {0x4c, 0x8d, 0x54, 0x24, 0x08, 0x48, 0x83, 0xe4, 0xe0, 0x41, 0xff, 0x72, 0xf8, 0x55,
	  0x48, 0x89, 0xe5, 0x41, 0x52, 0x41, 0x5a, 0x5d, 0x49, 0x8d, 0x62, 0xf8, 0xc3},
	 27,
	 19},
	/* mov %rbx,%rsp; mov (%rsp),%rdi */
	{"what makecontext has set up", {0x48, 0x89, 0xdc, 0x48, 0x8b, 0x3c, 0x24}, 7, 0},
	/* mov %rsp,(%rdi); mov %rbx,%rsp */
	{"given, and left", {0x48, 0x89, 0x27, 0x48, 0x89, 0xdc}, 6, 0, .loads = true},
	/* mov %rsp,(%rdi); mov %rsi,%rbp; mov %rbp,%rsp */
	{"by the frame pointer",
	 {0x48, 0x89, 0x27, 0x48, 0x89, 0xf5, 0x48, 0x89, 0xec},
	 9,
	 0,
	 .loads = true},
	/* mov %rsp,(%rdi); mov (%rsi),%rbp; leave */
	{"by leave", {0x48, 0x89, 0x27, 0x48, 0x8b, 0x2e, 0xc9}, 7, 0, .loads = true},
	/* push %rbp; mov %rsp,%rbp; mov %rsi,%rsp */
	{"with a frame", {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf4}, 7, 0, .loads = true},
	/* mov %rsp,%rax; mov %rsi,%rsp; mov %rax,%rsp */
	{"there and back", {0x48, 0x89, 0xe0, 0x48, 0x89, 0xf4, 0x48, 0x89, 0xc4}, 9, 6},
};

static void test_functions(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(code_of_functions) / sizeof(*code_of_functions); i++) {
		const struct function *f = &code_of_functions[i];
		struct ptcode c = {f->code, f->n};

		if (stack_pointer_loads(&c, NULL, BEGIN + f->from, BEGIN + f->n, true) != f->loads)
			fail_msg("%s: %s", f->what,
				 f->loads ? "is not seen" : "is taken for a load");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_encodings),
					   cmocka_unit_test(test_functions)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
