// SPDX-License-Identifier: Apache-2.0
/*
 * Length, kind and target of instructions: vectors as an assembler writes them. Whole libraries are
 * compared with a disassembler by tests/system/insn-objdump.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/cleanup.h"
#include "common/base/insn.h"

struct vector {
	const char *what;
	uint8_t len;
	uint8_t bytes[INSN_MAX];
	enum insn_kind kind;
	int32_t offset;
	bool is_syscall;
};

/* clang-format off */
static const struct vector vectors64[] = {
	{"clac", 3, {0x0f, 0x01, 0xca}, INSN_OTHER, 0},
	{"eretu", 4, {0xf3, 0x0f, 0x01, 0xca}, INSN_FAR_RET, 0},
	{"erets", 4, {0xf2, 0x0f, 0x01, 0xca}, INSN_FAR_RET, 0},
	{"jmpabs $0x100d", 11, {0xd5, 0x00, 0xa1, 0x0d, 0x10}, INSN_JUMP_INDIRECT, 0},
	{"REX2 mov %r16,%r17", 4, {0xd5, 0x58, 0x89, 0xc1}, INSN_OTHER, 0},
	{"REX2 imul (0f af)", 4, {0xd5, 0x88, 0xaf, 0xc1}, INSN_OTHER, 0},
	{"REX2 mov $imm64,%r16", 11, {0xd5, 0x18, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8}, INSN_OTHER, 0},
	{"nop", 1, {0x90}, INSN_OTHER, 0},
	{"pause", 2, {0xf3, 0x90}, INSN_OTHER, 0},
	{"endbr64", 4, {0xf3, 0x0f, 0x1e, 0xfa}, INSN_OTHER, 0},
	{"rep ret", 2, {0xf3, 0xc3}, INSN_RET, 0},
	{"rep movsb", 2, {0xf3, 0xa4}, INSN_OTHER, 0},
	{"lock cmpxchg %rcx,(%rdi)", 5, {0xf0, 0x48, 0x0f, 0xb1, 0x0f}, INSN_OTHER, 0},
	{"mov %rax,%rbx", 3, {0x48, 0x89, 0xc3}, INSN_OTHER, 0},
	{"mov $0x1122334455667788,%rax", 10, {0x48, 0xb8, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11}, INSN_OTHER, 0},
	{"mov $0x11223344,%eax", 5, {0xb8, 0x44, 0x33, 0x22, 0x11}, INSN_OTHER, 0},
	{"mov $0x1122,%ax", 4, {0x66, 0xb8, 0x22, 0x11}, INSN_OTHER, 0},
	{"movabs 0x1122334455667788,%al", 9, {0xa0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11}, INSN_OTHER, 0},
	{"lea 0x12345678(%rax,%rcx,4),%rdx", 8, {0x48, 0x8d, 0x94, 0x88, 0x78, 0x56, 0x34, 0x12}, INSN_OTHER, 0},
	{"mov 0x12345678,%eax", 7, {0x8b, 0x04, 0x25, 0x78, 0x56, 0x34, 0x12}, INSN_OTHER, 0},
	{"mov 0x10(%rip),%eax", 6, {0x8b, 0x05, 0x10, 0x00, 0x00, 0x00}, INSN_OTHER, 0},
	{"testb $1,(%rax)", 3, {0xf6, 0x00, 0x01}, INSN_OTHER, 0},
	{"notb (%rax)", 2, {0xf6, 0x10}, INSN_OTHER, 0},
	{"testl $1,(%rax)", 6, {0xf7, 0x00, 0x01, 0x00, 0x00, 0x00}, INSN_OTHER, 0},
	{"testw $1,(%rax)", 5, {0x66, 0xf7, 0x00, 0x01, 0x00}, INSN_OTHER, 0},
	{"negl (%rax)", 2, {0xf7, 0x18}, INSN_OTHER, 0},
	{"enter $16,$1", 4, {0xc8, 0x10, 0x00, 0x01}, INSN_OTHER, 0},
	{"imul $0x1234,%ecx,%eax", 6, {0x69, 0xc1, 0x34, 0x12, 0x00, 0x00}, INSN_OTHER, 0},
	{"imul $0x12,%ecx,%eax", 3, {0x6b, 0xc1, 0x12}, INSN_OTHER, 0},
	{"push $0x12345678", 5, {0x68, 0x78, 0x56, 0x34, 0x12}, INSN_OTHER, 0},
	{"fld1", 2, {0xd9, 0xe8}, INSN_OTHER, 0},
	{"fnstcw (%rsp)", 3, {0xd9, 0x3c, 0x24}, INSN_OTHER, 0},
	{"movdqa %xmm0,%xmm1", 4, {0x66, 0x0f, 0x6f, 0xc8}, INSN_OTHER, 0},
	{"pshufd $1,%xmm0,%xmm1", 5, {0x66, 0x0f, 0x70, 0xc8, 0x01}, INSN_OTHER, 0},
	{"pshufb %xmm0,%xmm1", 5, {0x66, 0x0f, 0x38, 0x00, 0xc8}, INSN_OTHER, 0},
	{"palignr $3,%xmm0,%xmm1", 6, {0x66, 0x0f, 0x3a, 0x0f, 0xc8, 0x03}, INSN_OTHER, 0},
	{"extrq $1,$2,%xmm0", 6, {0x66, 0x0f, 0x78, 0xc0, 0x02, 0x01}, INSN_OTHER, 0},
	{"vzeroupper", 3, {0xc5, 0xf8, 0x77}, INSN_OTHER, 0},
	{"vmovdqu (%rsi),%ymm0", 4, {0xc5, 0xfe, 0x6f, 0x06}, INSN_OTHER, 0},
	{"vpshufd $1,%ymm0,%ymm1", 5, {0xc5, 0xfd, 0x70, 0xc8, 0x01}, INSN_OTHER, 0},
	{"vpshufb %ymm0,%ymm1,%ymm2", 5, {0xc4, 0xe2, 0x75, 0x00, 0xd0}, INSN_OTHER, 0},
	{"vpblendvb %ymm0,%ymm1,%ymm2,%ymm3", 6, {0xc4, 0xe3, 0x6d, 0x4c, 0xd9, 0x00}, INSN_OTHER, 0},
	{"andn %rax,%rbx,%rcx", 5, {0xc4, 0xe2, 0xe0, 0xf2, 0xc8}, INSN_OTHER, 0},
	{"rorx $3,%rax,%rbx", 6, {0xc4, 0xe3, 0xfb, 0xf0, 0xd8, 0x03}, INSN_OTHER, 0},
	{"vmovdqu64 0x40(%rsi),%zmm0", 7, {0x62, 0xf1, 0xfe, 0x48, 0x6f, 0x46, 0x01}, INSN_OTHER, 0},
	{"vpternlogd $0xff,%zmm0,%zmm0,%zmm0", 7, {0x62, 0xf3, 0x7d, 0x48, 0x25, 0xc0, 0xff}, INSN_OTHER, 0},
	{"vpcmpeqb (%rdi),%ymm16,%k0", 6, {0x62, 0xf1, 0x7d, 0x20, 0x74, 0x07}, INSN_OTHER, 0},
	{"vpcmpub $1,(%rdi),%zmm16,%k0", 7, {0x62, 0xf3, 0x7d, 0x40, 0x3e, 0x07, 0x01}, INSN_OTHER, 0},
	{"vpcomd $1,%xmm0,%xmm1,%xmm2", 6, {0x8f, 0xe8, 0x70, 0xce, 0xd0, 0x01}, INSN_OTHER, 0},
	{"bextr $0x1234,%eax,%ebx", 9, {0x8f, 0xea, 0x78, 0x10, 0xd8, 0x34, 0x12, 0x00, 0x00}, INSN_OTHER, 0},
	{"crc32b %al,%ebx", 5, {0xf2, 0x0f, 0x38, 0xf0, 0xd8}, INSN_OTHER, 0},
	{"rdtsc", 2, {0x0f, 0x31}, INSN_OTHER, 0},
	{"cpuid", 2, {0x0f, 0xa2}, INSN_OTHER, 0},
	{"hlt", 1, {0xf4}, INSN_OTHER, 0},
	{"ud2", 2, {0x0f, 0x0b}, INSN_OTHER, 0},
	{"pushf", 1, {0x9c}, INSN_OTHER, 0},
	{"mov %rax,%cr3", 3, {0x0f, 0x22, 0xd8}, INSN_MOV_CR3, 0},
	{"mov %rax,%cr0", 3, {0x0f, 0x22, 0xc0}, INSN_OTHER, 0},
	{"mov %cr3,%rax", 3, {0x0f, 0x20, 0xd8}, INSN_OTHER, 0},
	{"ptwrite %eax", 4, {0xf3, 0x0f, 0xae, 0xe0}, INSN_PTWRITE, 0},
	{"ptwriteq (%rax)", 5, {0xf3, 0x48, 0x0f, 0xae, 0x20}, INSN_PTWRITE, 0},
	{"jmp .+2+0x10", 2, {0xeb, 0x10}, INSN_JUMP, 0x10},
	{"jmp .+5+0x1000", 5, {0xe9, 0x00, 0x10, 0x00, 0x00}, INSN_JUMP, 0x1000},
	{"bnd jmp .+6-0x1000", 6, {0xf2, 0xe9, 0x00, 0xf0, 0xff, 0xff}, INSN_JUMP, -0x1000},
	{"je .+2-2", 2, {0x74, 0xfe}, INSN_COND, -2},
	{"jg .+6+0x1000", 6, {0x0f, 0x8f, 0x00, 0x10, 0x00, 0x00}, INSN_COND, 0x1000},
	{"notrack jmp *%rax", 3, {0x3e, 0xff, 0xe0}, INSN_JUMP_INDIRECT, 0},
	{"jmp *0x10(%rip)", 6, {0xff, 0x25, 0x10, 0x00, 0x00, 0x00}, INSN_JUMP_INDIRECT, 0},
	{"jmp *(%rax,%rcx,8)", 3, {0xff, 0x24, 0xc8}, INSN_JUMP_INDIRECT, 0},
	{"loop .+2+4", 2, {0xe2, 0x04}, INSN_COND, 4},
	{"jrcxz .+2+4", 2, {0xe3, 0x04}, INSN_COND, 4},
	{"jecxz .+3+4", 3, {0x67, 0xe3, 0x04}, INSN_COND, 4},
	{"call .+5+0x1000", 5, {0xe8, 0x00, 0x10, 0x00, 0x00}, INSN_CALL, 0x1000},
	{"call .+5", 5, {0xe8, 0x00, 0x00, 0x00, 0x00}, INSN_CALL_NEXT, 0},
	{"call *%r11", 3, {0x41, 0xff, 0xd3}, INSN_CALL_INDIRECT, 0},
	{"call *0x12345678(%rbx)", 6, {0xff, 0x93, 0x78, 0x56, 0x34, 0x12}, INSN_CALL_INDIRECT, 0},
	{"ret", 1, {0xc3}, INSN_RET, 0},
	{"ret $8", 3, {0xc2, 0x08, 0x00}, INSN_RET, 0},
	{"syscall", 2, {0x0f, 0x05}, INSN_FAR_CALL, 0, true},
	{"sysenter", 2, {0x0f, 0x34}, INSN_FAR_CALL, 0, true},
	{"int $0x80", 2, {0xcd, 0x80}, INSN_FAR_CALL, 0},
	{"int3", 1, {0xcc}, INSN_FAR_CALL, 0},
	{"int1", 1, {0xf1}, INSN_FAR_CALL, 0},
	{"vmcall", 3, {0x0f, 0x01, 0xc1}, INSN_FAR_CALL, 0},
	{"lcall *(%rax)", 2, {0xff, 0x18}, INSN_FAR_CALL, 0},
	{"ljmp *(%rax)", 2, {0xff, 0x28}, INSN_FAR_JUMP, 0},
	{"lret", 1, {0xcb}, INSN_FAR_RET, 0},
	{"lret $4", 3, {0xca, 0x04, 0x00}, INSN_FAR_RET, 0},
	{"iretq", 2, {0x48, 0xcf}, INSN_FAR_RET, 0},
	{"sysretq", 3, {0x48, 0x0f, 0x07}, INSN_FAR_RET, 0},
	{"vmlaunch", 3, {0x0f, 0x01, 0xc2}, INSN_FAR_RET, 0},
	{"uiret", 4, {0xf3, 0x0f, 0x01, 0xec}, INSN_FAR_RET, 0},
	{"xbegin .+6+0x10", 6, {0xc7, 0xf8, 0x10, 0x00, 0x00, 0x00}, INSN_OTHER, 0},
	{"xabort $1", 3, {0xc6, 0xf8, 0x01}, INSN_OTHER, 0},
	{"inc %eax", 2, {0xff, 0xc0}, INSN_OTHER, 0},
	{"push (%rax)", 2, {0xff, 0x30}, INSN_OTHER, 0},
};

static const struct vector vectors32[] = {
	{"inc %eax", 1, {0x40}, INSN_OTHER, 0},
	{"push %es", 1, {0x06}, INSN_OTHER, 0},
	{"bound %eax,(%ecx)", 2, {0x62, 0x01}, INSN_OTHER, 0},
	{"les (%eax),%ecx", 2, {0xc4, 0x08}, INSN_OTHER, 0},
	{"lds (%eax),%ecx", 2, {0xc5, 0x08}, INSN_OTHER, 0},
	{"arpl %ax,(%ecx)", 2, {0x63, 0x01}, INSN_OTHER, 0},
	{"mov 0x12345678,%eax", 5, {0xa1, 0x78, 0x56, 0x34, 0x12}, INSN_OTHER, 0},
	{"mov (%bx,%si),%eax", 3, {0x67, 0x8b, 0x00}, INSN_OTHER, 0},
	{"mov 0x1234,%ax", 6, {0x66, 0xa1, 0x34, 0x12, 0x00, 0x00}, INSN_OTHER, 0},
	{"mov %ax,0x12(%bp)", 5, {0x67, 0x66, 0x89, 0x46, 0x12}, INSN_OTHER, 0},
	{"mov 0x1234(%bx),%eax", 5, {0x67, 0x8b, 0x87, 0x34, 0x12}, INSN_OTHER, 0},
	{"aam", 2, {0xd4, 0x0a}, INSN_OTHER, 0},
	{"daa", 1, {0x27}, INSN_OTHER, 0},
	{"vzeroupper", 3, {0xc5, 0xf8, 0x77}, INSN_OTHER, 0},
	{"vaddps %xmm0,%xmm1,%xmm2", 4, {0xc5, 0xf0, 0x58, 0xd0}, INSN_OTHER, 0},
	{"vmovdqu64 (%esi),%zmm0", 6, {0x62, 0xf1, 0xfe, 0x48, 0x6f, 0x06}, INSN_OTHER, 0},
	{"call .+5+0x1000", 5, {0xe8, 0x00, 0x10, 0x00, 0x00}, INSN_CALL, 0x1000},
	{"callw .+4+0x10", 4, {0x66, 0xe8, 0x10, 0x00}, INSN_CALL, 0x10},
	{"call .+5", 5, {0xe8, 0x00, 0x00, 0x00, 0x00}, INSN_CALL_NEXT, 0},
	{"lcall $0x23,$0x12345678", 7, {0x9a, 0x78, 0x56, 0x34, 0x12, 0x23, 0x00}, INSN_FAR_CALL, 0},
	{"ljmp $0x33,$0x12345678", 7, {0xea, 0x78, 0x56, 0x34, 0x12, 0x33, 0x00}, INSN_FAR_JUMP, 0},
	{"into", 1, {0xce}, INSN_FAR_CALL, 0},
	{"int $0x80", 2, {0xcd, 0x80}, INSN_FAR_CALL, 0},
	{"sysenter", 2, {0x0f, 0x34}, INSN_FAR_CALL, 0, true},
	{"jcxz .+3+4", 3, {0x67, 0xe3, 0x04}, INSN_COND, 4},
	{"jecxz .+2+4", 2, {0xe3, 0x04}, INSN_COND, 4},
	{"je .", 2, {0x74, 0xfe}, INSN_COND, -2},
	{"ret", 1, {0xc3}, INSN_RET, 0},
	{"lret", 1, {0xcb}, INSN_FAR_RET, 0},
	{"iret", 1, {0xcf}, INSN_FAR_RET, 0},
};

/* What is an instruction in 32-bit mode only. */
static const struct vector not_in_64[] = {
	{"push %es", 1, {0x06}, INSN_OTHER, 0},
	{"daa", 1, {0x27}, INSN_OTHER, 0},
	{"lcall $0x23,$0x12345678", 7, {0x9a, 0x78, 0x56, 0x34, 0x12, 0x23, 0x00}, INSN_FAR_CALL, 0},
	{"into", 1, {0xce}, INSN_FAR_CALL, 0},
};
/* clang-format on */

static void check(const struct vector *v, bool is64)
{
	uint8_t code[INSN_MAX + 1];
	struct insn insn;

	/* What follows must not matter, least of all if it looks like more of the same. */
	for (unsigned int fill = 0; fill < 256; fill += 51) {
		memset(code, (int)fill, sizeof(code));
		memcpy(code, v->bytes, v->len);
		memset(&insn, 0xcd, sizeof(insn));
		if (!insn_decode(code, sizeof(code), is64, &insn))
			fail_msg("%s: no instruction", v->what);
		if (insn.length != v->len || insn.kind != v->kind || insn.offset != v->offset ||
		    insn.is_syscall != v->is_syscall)
			fail_msg("%s: length %u kind %u offset %d syscall %d", v->what, insn.length,
				 insn.kind, (int)insn.offset, insn.is_syscall);
		assert_int_equal(insn_is_branch(&insn),
				 v->kind >= INSN_COND && v->kind <= INSN_FAR_JUMP);
	}
	/* Cut short it is nothing, and no byte behind the cut is read. */
	for (size_t n = 0; n < v->len; n++) {
		uint8_t *cut = malloc(n ? n : 1);

		assert_non_null(cut);
		memcpy(cut, v->bytes, n);
		assert_false(insn_decode(cut, n, is64, &insn));
		free(cut);
	}
}

static void test_64_bit(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(vectors64); i++)
		check(&vectors64[i], true);
}

static void test_32_bit(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(vectors32); i++)
		check(&vectors32[i], false);
	for (size_t i = 0; i < ARRAY_SIZE(not_in_64); i++) {
		struct insn insn;

		check(&not_in_64[i], false);
		assert_false(insn_decode(not_in_64[i].bytes, not_in_64[i].len, true, &insn));
	}
}

/* Prefixes without end are no instruction: it has at most 15 bytes. */
static void test_too_long(void **state)
{
	uint8_t code[32];
	struct insn insn;

	(void)state;
	memset(code, 0x66, sizeof(code));
	assert_false(insn_decode(code, sizeof(code), true, &insn));
	code[14] = 0x90;
	assert_true(insn_decode(code, sizeof(code), true, &insn));
	assert_int_equal(insn.length, 15);
	memset(code, 0x66, sizeof(code));
	code[15] = 0x90;
	assert_false(insn_decode(code, sizeof(code), true, &insn));
}

/*
 * An operand size prefix counts for what it is in front of; REX in front of a prefix counts for
 * nothing.
 */
static void test_prefixes(void **state)
{
	/* __tls_get_addr */
	static const uint8_t call[] = {0x66, 0x48, 0xe8, 0x10, 0x00, 0x00, 0x00};
	/* mov $0x1122,%ax */
	static const uint8_t rex_then_66[] = {0x48, 0x66, 0xb8, 0x22, 0x11, 0x00, 0x00};
	struct insn insn;

	(void)state;
	assert_true(insn_decode(call, sizeof(call), true, &insn));
	assert_int_equal(insn.kind, INSN_CALL);
	assert_int_equal(insn.length, 7);
	assert_int_equal(insn.offset, 0x10);
	assert_true(insn_decode(rex_then_66, sizeof(rex_then_66), true, &insn));
	assert_int_equal(insn.length, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_64_bit),
		cmocka_unit_test(test_32_bit),
		cmocka_unit_test(test_too_long),
		cmocka_unit_test(test_prefixes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
