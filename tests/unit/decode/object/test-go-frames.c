// SPDX-License-Identifier: Apache-2.0
/*
 * The callers of Go's functions by a table that was made by hand, with code as the compilers of
 * several versions write it; and the same with damages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/cleanup.h"
#include "decode/object/go_frames.h"

#define ROOM 64u /* of each function */
#define NAMES 72u
#define VALUES 600u
#define FUNCTIONS 900u
#define SIZE 2048u
#define TEXT 0x401000u
#define SP 7u
#define BP 6u
#define R12 12u /* the register where the return address is, in place of flags */

static const struct {
	const char *name;
	uint8_t flags;
	const char *code;
	size_t size;
	const char *steps; /* (zigzag of the difference, bytes) */
} functions[] = {
#define CODE(s) s, sizeof(s) - 1
	/* push %rbp; mov %rsp,%rbp; sub $16,%rsp; (8 bytes); add $16,%rsp; pop %rbp; ret */
	{"main.f", 0,
	 CODE("\x55\x48\x89\xe5\x48\x83\xec\x10"
	      "........"
	      "\x48\x83\xc4\x10\x5d\xc3"),
	 "\x02\x01\x10\x07\x20\x0c\x1f\x01\x0f\x01"},
	/*
	 * sub $40,%rsp; mov %rbp,32(%rsp); lea 32(%rsp),%rbp; (4 bytes); mov 32(%rsp),%rbp; add
	 * $40,%rsp; ret
	 */
	{"main.old", 0,
	 CODE("\x48\x83\xec\x28\x48\x89\x6c\x24\x20\x48\x8d\x6c\x24\x20"
	      "...."
	      "\x48\x8b\x6c\x24\x20\x48\x83\xc4\x28\xc3"),
	 "\x02\x04\x50\x17\x4f\x01"},
	{"main.leaf", 0, CODE("...\xc3"), "\x02\x04"},
	/*
	 * push %rbp; mov %rsp,%rbp; (4 bytes); mov 56(%rdx),%rsp; call; mov 56(%rax),%rsp; pop
	 * %rbp; ret
	 */
	{"runtime.systemstack", 6,
	 CODE("\x55\x48\x89\xe5"
	      "...."
	      "\x48\x8b\x62\x38"
	      "\xff\xd7"
	      "\x48\x8b\x60\x38\x5d\xc3"),
	 "\x02\x01\x10\x12\x0f\x01"},
	/* (4 bytes); mov 56(%r14),%rsp; xor %ebp,%ebp; push %rax; call *%r12 */
	{"runtime.mcall", 6,
	 CODE("...."
	      "\x49\x8b\x66\x38"
	      "\x31\xed\x50\x41\xff\xd4"),
	 "\x02\x0b\x10\x03"},
	/* (4 bytes); mov 56(%rbx),%rsp; call */
	{"runtime.morestack", 6,
	 CODE("...."
	      "\x48\x8b\x63\x38"
	      "\xe8...."),
	 "\x02\x0d"},
	/*
	 * push %rbp; mov %rsp,%rbp; sub $24,%rsp; mov %rdi,%rsp; call *%rax; mov 56(%rsi),%rsp;
	 * add; pop; ret
	 */
	{"runtime.cgocallback", 6,
	 CODE("\x55\x48\x89\xe5\x48\x83\xec\x18"
	      "\x48\x89\xfc\xff\xd0\x48\x8b\x66\x38"
	      "\x48\x83\xc4\x18\x5d\xc3"),
	 "\x02\x01\x10\x07\x30\x0d\x2f\x01\x0f\x01"},
	{"runtime.goexit", 5, CODE("\x90\xe8....\x90"), "\x02\x07"},
	/* push %rbp; mov %rsp,%rbp; call */
	{"runtime.asyncPreempt", 4, CODE("\x55\x48\x89\xe5\xe8...."), "\x02\x01\x10\x08"},
	/* mov %fs:-8,%r14; xorps %xmm15,%xmm15; jmp */
	{"runtime.sigpanic0", 4,
	 CODE("\x64\x4c\x8b\x34\x25\xf8\xff\xff\xff\x45\x0f\x57\xff\xe9...."), "\x02\x12"},
	{"runtime.sigreturn__sigaction", 4, CODE("\x48\xc7\xc0\x0f...\x0f\x05"), "\x02\x09"},
	/* pushf; cld; sub $40,%rsp; (4 bytes); mov %rbp,16(%rsp); call */
	{"crosscall2", 4,
	 CODE("\x9c\xfc\x48\x83\xec\x28"
	      "...."
	      "\x48\x89\x6c\x24\x10\xe8...."),
	 "\x02\x01\x10\x05\x50\x0e"},
	/* sub $8,%rsp; mov %rsp,%rbx; and $-64,%rsp; call */
	{"sums.block", 2, CODE("\x48\x83\xec\x08\x48\x89\xe3\x48\x83\xe4\xc0\xe8...."),
	 "\x02\x04\x10\x0c"},
	/* (4 bytes); pop %r12; syscall; push %r12; ret */
	{"syscall.rawVforkSyscall", 4,
	 CODE("...."
	      "\x41\x5c\x0f\x05\x41\x54\xc3"),
	 "\x02\x06\x0f\x04\x10\x01"},
	/* likewise; but it is %r13, of which nothing is known */
	{"sums.pops", 0,
	 CODE("...."
	      "\x41\x5d\x0f\x05\x41\x55\xc3"),
	 "\x02\x06\x0f\x04\x10\x01"},
	/* without C's rules: mov %rbx,%rsp; call; as before Go 1.21 */
	{"runtime.asmcgocall", 6,
	 CODE("...."
	      "\x48\x89\xdc"
	      "\xff\xd0"),
	 "\x02\x09"},
	{"runtime.rt0_go", 7, CODE("...."), "\x02\x04"},
};

static void put32(uint8_t *p, uint32_t v)
{
	memcpy(p, &v, sizeof(v));
}

static struct go_frames make(uint8_t *p, uint8_t *code)
{
	uint32_t names = 0, values = 1;
	const uint32_t n = ARRAY_SIZE(functions);

	memset(p, 0, SIZE);
	memset(code, 0xcc, n * ROOM);
	for (uint32_t i = 0; i < n; i++) {
		uint8_t *f = p + FUNCTIONS + n * 8 + 8 + i * 44;

		put32(p + FUNCTIONS + i * 8, i * ROOM);
		put32(p + FUNCTIONS + i * 8 + 4, n * 8 + 8 + i * 44);
		put32(f + 4, names);
		put32(f + 16, values);
		f[41] = functions[i].flags;
		memcpy(p + NAMES + names, functions[i].name, strlen(functions[i].name));
		names += (uint32_t)strlen(functions[i].name) + 1;
		memcpy(p + VALUES + values, functions[i].steps, strlen(functions[i].steps));
		values += (uint32_t)strlen(functions[i].steps) + 1;
		memcpy(code + i * ROOM, functions[i].code, functions[i].size);
	}
	put32(p + FUNCTIONS + n * 8, n * ROOM);
	assert_true(NAMES + names <= VALUES && VALUES + values <= FUNCTIONS);
	return (struct go_frames){.table = {.data = p,
					    .size = SIZE,
					    .names = NAMES,
					    .values = VALUES,
					    .functions = FUNCTIONS,
					    .text = TEXT,
					    .n_functions = n,
					    .quantum = 1,
					    .has_lines = true},
				  .code = code,
				  .code_at = TEXT,
				  .code_size = n * ROOM};
}

static uint64_t at(const char *name, uint64_t off)
{
	for (uint32_t i = 0; i < ARRAY_SIZE(functions); i++)
		if (strcmp(functions[i].name, name) == 0)
			return TEXT + i * ROOM + off;
	fail_msg("%s", name);
	return 0;
}

static void test_rules(void **state)
{
	static const struct {
		const char *name;
		uint64_t off;
		unsigned kind, reg;
		int cfa_off, bp_off;
		unsigned flags;
	} cases[] = {
		{"main.f", 0, UNWIND_CFA, SP, 8, UNWIND_BP_SAME, 0},
		{"main.f", 1, UNWIND_CFA, SP, 16, -16, 0},
		{"main.f", 8, UNWIND_CFA, SP, 32, -16, 0},
		{"main.f", 19, UNWIND_CFA, SP, 32, -16, 0},
		{"main.f", 20, UNWIND_CFA, SP, 16, -16, 0},
		{"main.f", 21, UNWIND_CFA, SP, 8, UNWIND_BP_SAME, 0},
		{"main.old", 0, UNWIND_CFA, SP, 8, UNWIND_BP_SAME, 0},
		{"main.old", 4, UNWIND_CFA, SP, 48, UNWIND_BP_SAME, 0},
		{"main.old", 9, UNWIND_CFA, SP, 48, -16, 0},
		{"main.old", 27, UNWIND_CFA, SP, 8, UNWIND_BP_SAME, 0},
		{"main.leaf", 2, UNWIND_CFA, SP, 8, UNWIND_BP_SAME, 0},
		{"runtime.systemstack", 0, UNWIND_CFA, SP, 8, UNWIND_BP_SAME, 0},
		{"runtime.systemstack", 1, UNWIND_CFA, SP, 16, -16, 0},
		{"runtime.systemstack", 4, UNWIND_CFA, BP, 16, -16, UNWIND_OTHER_STACK},
		{"runtime.systemstack", 13, UNWIND_CFA, BP, 16, -16, UNWIND_OTHER_STACK},
		{"runtime.systemstack", 19, UNWIND_CFA, SP, 8, UNWIND_BP_SAME, 0},
		{"runtime.mcall", 4, UNWIND_CFA, SP, 8, UNWIND_BP_SAME, 0},
		{"runtime.mcall", 8, UNWIND_END, 0, 0, 0, 0},
		{"runtime.mcall", 13, UNWIND_END, 0, 0, 0, 0},
		{"runtime.morestack", 4, UNWIND_CFA, SP, 8, UNWIND_BP_SAME, 0},
		{"runtime.morestack", 12, UNWIND_ELSEWHERE, 0, 0, 0, 0},
		{"runtime.cgocallback", 8, UNWIND_CFA, SP, 40, -16, 0},
		{"runtime.cgocallback", 12, UNWIND_ELSEWHERE, 0, 0, 0, 0},
		{"runtime.cgocallback", 17, UNWIND_CFA, SP, 40, -16, 0},
		{"runtime.goexit", 0, UNWIND_END, 0, 0, 0, 0},
		{"runtime.asyncPreempt", 0, UNWIND_CFA, SP, 8, UNWIND_BP_SAME,
		 UNWIND_WAS_INTERRUPTED},
		{"runtime.asyncPreempt", 8, UNWIND_CFA, SP, 16, -16, UNWIND_WAS_INTERRUPTED},
		{"runtime.sigpanic0", 13, UNWIND_CFA, SP, 8, UNWIND_BP_SAME,
		 UNWIND_WAS_INTERRUPTED},
		{"runtime.sigreturn__sigaction", (uint64_t)-1, UNWIND_SIGNAL, 0, 0, 0, 0},
		{"runtime.sigreturn__sigaction", 7, UNWIND_SIGNAL, 0, 0, 0, 0},
		{"crosscall2", 1, UNWIND_CFA, SP, 16, UNWIND_BP_SAME, 0},
		{"crosscall2", 10, UNWIND_CFA, SP, 56, UNWIND_BP_SAME, 0},
		{"crosscall2", 15, UNWIND_CFA, SP, 56, -40, 0},
		{"sums.block", 7, UNWIND_CFA, SP, 16, UNWIND_BP_SAME, 0},
		{"sums.block", 11, UNWIND_UNKNOWN, 0, 0, 0, 0},
		{"syscall.rawVforkSyscall", 4, UNWIND_CFA, SP, 8, UNWIND_BP_SAME, 0},
		{"syscall.rawVforkSyscall", 6, UNWIND_RA_REGISTER, SP, 0, UNWIND_BP_SAME, R12},
		{"syscall.rawVforkSyscall", 8, UNWIND_RA_REGISTER, SP, 0, UNWIND_BP_SAME, R12},
		{"syscall.rawVforkSyscall", 10, UNWIND_CFA, SP, 8, UNWIND_BP_SAME, 0},
		{"sums.pops", 8, UNWIND_UNKNOWN, 0, 0, 0, 0},
		{"runtime.asmcgocall", 4, UNWIND_CFA, SP, 8, UNWIND_BP_SAME, 0},
		{"runtime.asmcgocall", 7, UNWIND_ELSEWHERE, 0, 0, 0, 0},
		{"runtime.rt0_go", 1, UNWIND_END, 0, 0, 0, 0},
	};
	uint8_t p[SIZE], code[ARRAY_SIZE(functions) * ROOM];
	struct go_frames g = make(p, code);
	struct unwind_rule rule;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		if (!go_frames_rule(&g, at(cases[i].name, cases[i].off), &rule))
			fail_msg("%s+%d: no rule", cases[i].name, (int)cases[i].off);
		if (UNWIND_KIND(&rule) != cases[i].kind || UNWIND_REG(&rule) != cases[i].reg ||
		    rule.cfa_off != cases[i].cfa_off || rule.bp_off != cases[i].bp_off ||
		    rule.extra != cases[i].flags)
			fail_msg("%s+%d: kind %u, register %u, CFA %d, rbp %d, flags %#x",
				 cases[i].name, (int)cases[i].off, UNWIND_KIND(&rule),
				 UNWIND_REG(&rule), rule.cfa_off, rule.bp_off, rule.extra);
	}
	assert_false(go_frames_rule(&g, TEXT - 1, &rule));
	assert_false(go_frames_rule(&g, TEXT + sizeof(code), &rule));
	/* Without its code nobody knows where it goes. */
	g.code = NULL;
	assert_true(go_frames_rule(&g, at("runtime.systemstack", 13), &rule));
	assert_int_equal(UNWIND_KIND(&rule), UNWIND_UNKNOWN);
	assert_true(go_frames_rule(&g, at("main.f", 8), &rule));
	assert_int_equal(rule.cfa_off, 32);
}

struct order {
	uint64_t last;
	uint32_t n;
};

static bool check_row(void *arg, uint64_t pc, const struct unwind_rule *rule)
{
	struct order *o = arg;

	assert_true(o->n++ == 0 || pc > o->last);
	assert_true(UNWIND_KIND(rule) < UNWIND_KINDS);
	assert_true(UNWIND_KIND(rule) == UNWIND_CFA ||
		    !(rule->extra & (UNWIND_OTHER_STACK | UNWIND_WAS_INTERRUPTED)));
	o->last = pc;
	return true;
}

/*
 * Table and code are exactly as large as their memory, so that a sanitizer sees a read past their
 * ends.
 */
static void test_damaged(void **state)
{
	uint64_t x = 88172645463325252ull;

	(void)state;
	for (unsigned int round = 0; round < 5000; round++) {
		uint8_t *p = malloc(SIZE), *code = malloc(ARRAY_SIZE(functions) * ROOM);
		struct go_frames g;

		assert_non_null(p);
		assert_non_null(code);
		g = make(p, code);
		for (unsigned int i = 0; i < 6; i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			if (i < 4)
				p[NAMES + (x >> 8) % (SIZE - NAMES)] = (uint8_t)x;
			else
				code[(x >> 8) % (ARRAY_SIZE(functions) * ROOM)] = (uint8_t)x;
		}
		for (uint32_t i = 0; i < g.table.n_functions; i++) {
			struct gopclntab_function f;
			struct order o = {.n = 0};
			struct unwind_rule rule;

			if (!gopclntab_function(&g.table, i, &f))
				continue;
			assert_int_equal(go_frames_run(&g, &f, check_row, &o), 0);
			assert_true(o.n > 0);
			(void)go_frames_rule(&g, f.start + x % 64, &rule);
		}
		free(p);
		free(code);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_rules),
					   cmocka_unit_test(test_damaged)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
