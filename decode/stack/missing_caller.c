// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/stack/missing_caller.h"

#include <string.h>

#include "decode/base/bytes.h"
#include "decode/object/cfi.h"
#include "decode/stack/unwind.h"

/* Longer functions are looked at in their first part only. */
#define MAX_BODY 16384u

/* Whom the call before a return address calls, if it says so itself. */
static const struct symbol *callee_of(struct image *img, uint64_t vaddr)
{
	const struct symbol *sym;
	uint8_t call[5];
	uint64_t target;

	if (vaddr < sizeof(call) ||
		image_read(img, vaddr - sizeof(call), call, sizeof(call)) != sizeof(call) ||
		call[0] != 0xe8)
		return NULL;
	target = vaddr + (uint64_t)(int64_t)(int32_t)load_u32(call + 1);
	sym = symbols_find(&img->symbols, target);
	return sym && sym->addr == target && !sym->plt ? sym : NULL;
}

/*
 * Does the function call `leaf` (the address of a function of the same image, 0: it is in another
 * one), or something that only runs can tell?
 */
static bool calls_on(struct image *img, const struct symbol *sym, uint64_t leaf)
{
	static uint8_t body[MAX_BODY]; /* one thread decodes */
	size_t len = sym->size < sizeof(body) ? (size_t)sym->size : sizeof(body);

	len = image_read(img, sym->addr, body, len);
	for (size_t i = 0; i + 5 <= len; i++) {
		const struct symbol *to;
		uint64_t target;

		if (body[i] == 0xff && (body[i + 1] & 0x38) == 0x10)
			return true;
		if (body[i] != 0xe8)
			continue;
		target = sym->addr + i + 5 + (uint64_t)(int64_t)(int32_t)load_u32(body + i + 1);
		if (leaf && target == leaf)
			return true;
		to = leaf ? NULL : symbols_find(&img->symbols, target);
		if (to && to->plt)
			return true;
	}
	return false;
}

/*
 * Go's tables tell the frame from the stack pointer everywhere; of the frame pointer they tell where the caller's is, and not between
 * which instructions the register has another value.
 */
static bool has_callers_bp(struct image *img, uint64_t vaddr, const struct cfi_row *row)
{
	uint8_t code[16] = {0}; /* the eight bytes before, and what comes */
	const uint8_t *next = code + 8;
	bool taken, given;

	if (row->regs[CFI_REG_BP].kind == CFI_SAME)
		return true;
	if (vaddr < 8 || image_read(img, vaddr - 8, code, sizeof(code)) != sizeof(code))
		return false;
	/* saved, but not taken yet: mov %rsp,%rbp or lea OFF(%rsp),%rbp comes */
	taken = next[0] == 0x48 && ((next[1] == 0x89 && next[2] == 0xe5) ||
				    (next[1] == 0x8d && (next[2] == 0x6c || next[2] == 0xac) && next[3] == 0x24));
	/* given back: behind mov OFF(%rsp),%rbp comes add $SIZE,%rsp */
	given = next[0] == 0x48 && (next[1] == 0x83 || next[1] == 0x81) && next[2] == 0xc4 &&
		((code[3] == 0x48 && code[4] == 0x8b && code[5] == 0x6c && code[6] == 0x24) ||
			(code[0] == 0x48 && code[1] == 0x8b && code[2] == 0xac && code[3] == 0x24));
	return taken || given;
}

uint32_t missing_caller_frame(struct resolver *r, struct code *code, struct budget *budget, uint64_t ip,
	uint32_t leaf, uint64_t ra, struct missing_caller_stats *stats)
{
	const struct cfi_row *row = unwind_row(r, code, budget, ip);
	const struct symbol *sym;
	struct image *img, *of_leaf;
	uint64_t vaddr, leaf_vaddr, leaf_start = 0;

	/* Where the frame is reckoned from the stack pointer, the frame pointer is still the
	 * caller's. */
	if (!row || !row->known || row->elsewhere || row->cfa.kind != CFI_REGISTER || row->cfa.reg != CFI_REG_SP ||
		resolver_is_entry(r, leaf))
		return 0;
	of_leaf = resolver_image(r, code, ip, &leaf_vaddr);
	if (row->go && !(of_leaf && has_callers_bp(of_leaf, leaf_vaddr, row)))
		return 0;
	img = resolver_image(r, code, ra - 1, &vaddr);
	if (img && img->x86_64 && resolver_load_symbols(r, img)) {
		if (of_leaf == img) {
			sym = symbols_find(&img->symbols, leaf_vaddr);
			leaf_start = sym ? sym->addr : 0;
		}
		sym = callee_of(img, vaddr + 1);
		if (sym && calls_on(img, sym, leaf_start)) {
			stats->found++;
			return resolver_symbol(r, img, sym);
		}
	}
	stats->gaps++;
	return resolver_gap(r);
}

/* Does the function jump into `to` (NULL: it is in another image), or to where only runs can tell? */
static bool jumps_on(struct image *img, const struct symbol *sym, const struct symbol *to)
{
	static uint8_t body[MAX_BODY]; /* one thread decodes */
	size_t len = sym->size < sizeof(body) ? (size_t)sym->size : sizeof(body);

	len = image_read(img, sym->addr, body, len);
	for (size_t i = 0; i + 5 <= len; i++) {
		const bool branch = i && body[i - 1] == 0x0f && (body[i] & 0xf0) == 0x80;
		const struct symbol *at;
		uint64_t target;

		if (body[i] == 0xff && (body[i + 1] & 0x38) == 0x20)
			return true;
		if (body[i] != 0xe9 && !branch)
			continue;
		target = sym->addr + i + 5 + (uint64_t)(int64_t)(int32_t)load_u32(body + i + 1);
		at = symbols_find(&img->symbols, target);
		if (at && (to ? at->addr == to->addr : at->plt))
			return true;
	}
	return sym->size > sizeof(body);
}

bool missing_caller_between(struct resolver *r, struct code *code, uint64_t ip, uint64_t ra)
{
	const struct symbol *called, *in = NULL;
	struct image *img, *of_ip;
	uint64_t vaddr, ip_vaddr;

	img = resolver_image(r, code, ra - 1, &vaddr);
	of_ip = resolver_image(r, code, ip, &ip_vaddr);
	if (!img || !of_ip || !img->x86_64 || !resolver_load_symbols(r, img))
		return false;
	called = callee_of(img, vaddr + 1);
	if (!called)
		return false;
	if (of_ip == img) {
		in = symbols_find(&img->symbols, ip_vaddr);
		if (!in || in->addr == called->addr)
			return false;
	}
	return !jumps_on(img, called, in);
}
