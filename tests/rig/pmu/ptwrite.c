// SPDX-License-Identifier: GPL-2.0
/*
 * PTWRITE, which raises #UD on a processor without it: what it would have written, from registers or
 * memory.
 */
#include <linux/ptrace.h>
#include <linux/uaccess.h>

#include "softpt.h"

#define REX_B 1
#define REX_X 2
#define REX_W 8

static u64 reg_of(const struct pt_regs *regs, unsigned int n)
{
	const unsigned long *const regs_of[16] = {
		&regs->ax, &regs->cx, &regs->dx, &regs->bx, &regs->sp, &regs->bp, &regs->si, &regs->di,
		&regs->r8, &regs->r9, &regs->r10, &regs->r11, &regs->r12, &regs->r13, &regs->r14, &regs->r15,
	};

	return *regs_of[n & 15];
}

static s64 displacement(const u8 *code, unsigned int n)
{
	s32 d;

	if (n == 1)
		return (s8)code[0];
	memcpy(&d, code, sizeof(d));
	return n ? d : 0;
}

/* The address of a memory operand. *AT: at the byte after ModRM, then at the instruction's end. */
static u64 address_of(const struct pt_regs *regs, const u8 *code, unsigned int *at, u8 rex)
{
	u8 modrm = code[*at - 1], mod = modrm >> 6, base = modrm & 7;
	unsigned int n = mod == 1 ? 1 : mod == 2 ? 4 : 0;
	u64 address = 0;
	bool from_ip = false, based = true;

	if (base == 4) {
		u8 sib = code[(*at)++], index = ((sib >> 3) & 7) | (rex & REX_X ? 8 : 0);

		base = sib & 7;
		if (index != 4)
			address = reg_of(regs, index) << (sib >> 6);
		based = base != 5 || mod;
	} else if (base == 5 && !mod) {
		from_ip = true;
		based = false;
	}
	if (based)
		address += reg_of(regs, base | (rex & REX_B ? 8 : 0));
	else
		n = 4;
	address += displacement(code + *at, n);
	*at += n;
	return from_ip ? address + regs->ip + *at : address;
}

/* True: the instruction at regs->ip is a PTWRITE, and this is what it writes. */
bool ptwrite_decode(struct pt_regs *regs, struct ptwrite *ret)
{
	u8 code[16] = { 0 }, rex = 0, modrm;
	struct ptwrite found = { 0 };
	bool f3 = false;
	unsigned int i;

	/* not the 16th byte: an instruction has 15, and they may end a mapping */
	for (i = 0; i < 15; i++)
		if (copy_from_user_nofault(&code[i], (void __user *)(regs->ip + i), 1))
			break;
	for (i = 0; i < 4 && (code[i] == 0xf3 || code[i] == 0x66 || code[i] == 0x3e); i++)
		f3 |= code[i] == 0xf3;
	if ((code[i] & 0xf0) == 0x40)
		rex = code[i++];
	modrm = code[i + 2];
	if (!f3 || code[i] != 0x0f || code[i + 1] != 0xae || ((modrm >> 3) & 7) != 4)
		return false;
	i += 3;
	found.wide = rex & REX_W;
	if (modrm >> 6 == 3) {
		found.value = reg_of(regs, (modrm & 7) | (rex & REX_B ? 8 : 0));
		if (!found.wide)
			found.value = (u32)found.value;
	} else {
		u64 address = address_of(regs, code, &i, rex);

		if (copy_from_user_nofault(&found.value, (void __user *)address, found.wide ? 8 : 4))
			return false;
	}
	found.length = i;
	*ret = found;
	return true;
}
