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

/* A name without what libraries put before it: the same function has several. */
static const char *bare_name(const char *name, size_t *len)
{
	static const char *const prefixes[] = {"_", "GI_", "libc_", "IO_", "new_"};

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
		const size_t n = strlen(prefixes[i]);

		if (*len > n && memcmp(name, prefixes[i], n) == 0) {
			name += n;
			*len -= n;
			i = (size_t)-1;
		}
	}
	return name;
}

/*
 * Can an entry of the linkage table lead to that function? By their names: one that is chosen at
 * run time has a variant's.
 */
static bool plt_leads_to(const struct symbol *plt, const struct symbol *leaf)
{
	static const char *const variants[] = {"_avx", "_sse", "_ssse", "_evex", "_erms"};
	size_t n = plt->name_len, len = leaf->name_len;
	const char *wanted = bare_name(plt->name, &n), *name = bare_name(leaf->name, &len);

	if (n == strlen("memcpy") && memcmp(wanted, "memcpy", n) == 0) {
		wanted = "memmove"; /* one code for both */
		n = strlen(wanted);
	}
	if (len < n || memcmp(wanted, name, n) != 0)
		return false;
	if (len == n)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(variants); i++)
		if (len - n >= strlen(variants[i]) &&
		    memcmp(name + n, variants[i], strlen(variants[i])) == 0)
			return true;
	return false;
}

/* A function of which it is asked who has called it. */
struct callee {
	const struct symbol *sym; /* NULL: it has none */
	bool here;		  /* in the same image as the caller */
};

/* Does the function call that one, or something that only runs can tell? */
static bool calls_on(struct image *img, const struct symbol *sym, const struct callee *leaf)
{
	static uint8_t body[MAX_BODY]; /* one thread decodes */
	size_t len = sym->size < sizeof(body) ? (size_t)sym->size : sizeof(body);

	len = image_read(img, sym->addr, body, len);
	for (size_t i = 0; i + 5 <= len; i++) {
		const struct symbol *to;
		uint64_t target;

		if (body[i] == 0xff && (body[i + 1] & 0x38) == 0x10)
			return true;
		if (body[i] != 0xe8 || !leaf->sym)
			continue;
		target = sym->addr + i + 5 + (uint64_t)(int64_t)(int32_t)load_u32(body + i + 1);
		if (leaf->here && target == leaf->sym->addr)
			return true;
		to = symbols_find(&img->symbols, target);
		if (to && to->plt && plt_leads_to(to, leaf->sym))
			return true;
	}
	return false;
}

/*
 * Go's tables tell the frame from the stack pointer everywhere; of the frame pointer they tell
 * where the caller's is, and not between which instructions the register has another value.
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
	taken = next[0] == 0x48 &&
		((next[1] == 0x89 && next[2] == 0xe5) ||
		 (next[1] == 0x8d && (next[2] == 0x6c || next[2] == 0xac) && next[3] == 0x24));
	/* given back: behind mov OFF(%rsp),%rbp comes add $SIZE,%rsp */
	given = next[0] == 0x48 && (next[1] == 0x83 || next[1] == 0x81) && next[2] == 0xc4 &&
		((code[3] == 0x48 && code[4] == 0x8b && code[5] == 0x6c && code[6] == 0x24) ||
			(code[0] == 0x48 && code[1] == 0x8b && code[2] == 0xac && code[3] == 0x24));
	return taken || given;
}

/*
 * Does the function jump into `to` (NULL: it is in another image), or to where only runs can tell?
 * `blind`: only the latter is asked for.
 */
static bool jumps_on(struct image *img, const struct symbol *sym, const struct symbol *to,
		     bool blind)
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
		if (blind || (body[i] != 0xe9 && !branch))
			continue;
		target = sym->addr + i + 5 + (uint64_t)(int64_t)(int32_t)load_u32(body + i + 1);
		at = symbols_find(&img->symbols, target);
		if (at && (to ? at->addr == to->addr : at->plt))
			return true;
	}
	return sym->size > sizeof(body);
}

enum frame_of_own { HAS_FRAME, HAS_NONE, MAY_HAVE };

/*
 * Whether the function has set up a frame where it is: one that has not leaves its caller's frame
 * pointer in the register.
 */
static enum frame_of_own frame_at(const struct cfi_row *row, struct image *img, uint64_t vaddr,
				  bool innermost, const struct symbol *sym)
{
	/* Generated code, which is not in the recording. */
	if (!img)
		return MAY_HAVE;
	/* What a linkage table jumps to has its caller. */
	if (innermost && sym && sym->plt)
		return HAS_NONE;
	/* Nobody has called the way back from a handler. */
	if (!row || !row->known || row->elsewhere || row->signal || row->injected ||
	    row->cfa.kind != CFI_REGISTER || row->cfa.reg != CFI_REG_SP)
		return HAS_FRAME;
	if (row->go &&
	    !(innermost ? has_callers_bp(img, vaddr, row) : row->regs[CFI_REG_BP].kind == CFI_SAME))
		return HAS_FRAME;
	return HAS_NONE;
}

uint32_t missing_caller_frames(struct resolver *r, struct code *code, struct budget *budget,
			       uint64_t ip, bool innermost, uint32_t leaf, uint64_t ra,
			       struct missing_caller_stats *stats, uint32_t ret[static 2])
{
	const struct cfi_row *row = unwind_row(r, code, budget, ip);
	const struct symbol *sym = NULL;
	struct callee called = {0};
	struct image *img, *of_leaf;
	enum frame_of_own own;
	uint64_t vaddr, leaf_vaddr;
	bool calls = false, jumps = false;
	uint32_t n = 0;

	if (resolver_is_entry(r, leaf))
		return 0;
	of_leaf = resolver_image(r, code, ip, &leaf_vaddr);
	if (of_leaf && of_leaf->x86_64 && resolver_load_symbols(r, of_leaf))
		called.sym = symbols_find(&of_leaf->symbols, leaf_vaddr);
	own = frame_at(row, of_leaf, leaf_vaddr, innermost, called.sym);
	if (own == HAS_FRAME)
		return 0;
	img = resolver_image(r, code, ra - 1, &vaddr);
	if (img && img->x86_64 && resolver_load_symbols(r, img))
		sym = callee_of(img, vaddr + 1);
	/* Of generated code nothing else says that somebody is missing. */
	if (own == MAY_HAVE && !sym)
		return 0;
	if (sym) {
		called.here = of_leaf == img;
		calls = calls_on(img, sym, &called);
		/*
		 * It is the function itself that was called there: its table does not tell that it
		 * has a frame.
		 */
		if (sym == called.sym && !calls)
			return 0;
		/*
		 * Who jumps on is not on the stack any more. Not so through the linkage table: of a
		 * library without frames, as the innermost function's is, he would have left none
		 * that returns here.
		 */
		if (own == MAY_HAVE || !calls)
			jumps = jumps_on(img, sym, called.here ? called.sym : NULL,
					 own == MAY_HAVE || !called.here);
		if (own == MAY_HAVE && jumps && !calls)
			return 0;
	}
	/* He was called, and it was not he who called the other. */
	if (!calls || jumps) {
		stats->gaps++;
		ret[n++] = resolver_gap(r);
	}
	if (sym && !jumps) {
		stats->found++;
		ret[n++] = resolver_symbol(r, img, sym);
	}
	return n;
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
	return !jumps_on(img, called, in, false);
}
