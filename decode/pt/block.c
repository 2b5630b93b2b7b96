// SPDX-License-Identifier: Apache-2.0
#include "decode/pt/block.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/address.h"
#include "decode/pt/stack_pointer.h"

#define FIRST_SLOTS 4096u
#define FIRST_BLOCKS 2048u

int codeblocks_new(code_read_fn read, codeblock_made_fn made, void *arg, size_t max_bytes,
		   struct codeblocks **ret)
{
	_cleanup_(codeblocks_freep) struct codeblocks *cb = calloc(1, sizeof(*cb));

	if (!cb)
		return -ENOMEM;
	*cb = (struct codeblocks){
		.read = read, .made = made, .arg = arg, .max_bytes = max_bytes, .is64 = true};
	cb->slots = calloc(FIRST_SLOTS, sizeof(*cb->slots));
	cb->blocks = malloc(FIRST_BLOCKS * sizeof(*cb->blocks));
	if (!cb->slots || !cb->blocks)
		return -ENOMEM;
	cb->n_slots = FIRST_SLOTS;
	cb->room = FIRST_BLOCKS;
	cb->blocks[0] = (struct codeblock){0};
	cb->n = 1;
	*ret = take_ptr(cb);
	return 0;
}

struct codeblocks *codeblocks_free(struct codeblocks *cb)
{
	if (!cb)
		return NULL;
	free(cb->slots);
	free(cb->blocks);
	free(cb);
	return NULL;
}

void codeblocks_flush(struct codeblocks *cb)
{
	memset(cb->slots, 0, cb->n_slots * sizeof(*cb->slots));
	cb->n = 1;
	cb->epoch++;
}

void codeblocks_set_mode(struct codeblocks *cb, bool is64)
{
	if (cb->is64 == is64)
		return;
	cb->is64 = is64;
	codeblocks_flush(cb);
}

static uint32_t slot_of(const struct codeblocks *cb, uint64_t ip)
{
	return (uint32_t)((ip * 0x9e3779b97f4a7c15ull) >> 32) & (cb->n_slots - 1);
}

static void insert(struct codeblocks *cb, uint32_t block)
{
	uint32_t s = slot_of(cb, cb->blocks[block].start);

	while (cb->slots[s])
		s = (s + 1) & (cb->n_slots - 1);
	cb->slots[s] = block;
}

static bool grow(struct codeblocks *cb)
{
	struct codeblock *blocks;
	uint32_t *slots;

	if (cb->n == cb->room) {
		if ((size_t)cb->room * 2 * (sizeof(*blocks) + 4 * sizeof(*slots)) > cb->max_bytes)
			return false;
		blocks = reallocarray(cb->blocks, cb->room * 2u, sizeof(*blocks));
		if (!blocks)
			return false;
		cb->blocks = blocks;
		cb->room *= 2;
	}
	if (cb->n * 2 >= cb->n_slots) {
		slots = calloc(cb->n_slots * 2u, sizeof(*slots));
		if (!slots)
			return false;
		free(cb->slots);
		cb->slots = slots;
		cb->n_slots *= 2;
		for (uint32_t i = 1; i < cb->n; i++)
			insert(cb, i);
	}
	return true;
}

/* Follows the line from `ip` to its first branch. False: not even one instruction could be read. */
static bool scan(const struct codeblocks *cb, uint64_t ip, struct codeblock *ret)
{
	struct codeblock b = {.start = ip};
	uint8_t buffer[INSN_MAX];
	const uint8_t *code = NULL;
	size_t left = 0;
	struct insn insn;

	for (;;) {
		if (left < INSN_MAX) {
			left = cb->read(cb->arg, ip, &code, buffer, INSN_MAX);
			if (left == 0) {
				/* what lies after other code may never be run */
				if (b.insns == 0 && cb->on_missing)
					cb->on_missing(cb->arg, ip);
				break;
			}
		}
		if (!insn_decode(code, left, cb->is64, &insn))
			break;
		b.to_last = (uint32_t)(ip - b.start);
		b.last_bytes = insn.length;
		b.insns++;
		b.kind = insn.kind;
		/* of the kernel's it is known without */
		if (insn.kind != INSN_FAR_RET || ip < KERNEL_HALF)
			b.tags |= stack_pointer_may_load(code, insn.length, cb->is64)
					  ? CODEBLOCK_LOADS_SP
					  : 0;
		if (insn_is_branch(&insn) || insn.kind == INSN_PTWRITE ||
		    insn.kind == INSN_MOV_CR3) {
			b.offset = insn.offset;
			break;
		}
		b.kind = INSN_OTHER;
		if (b.insns == CODEBLOCK_MAX_INSNS)
			break;
		ip += insn.length;
		code += insn.length;
		left -= insn.length;
	}
	if (b.insns == 0)
		return false;
	*ret = b;
	return true;
}

uint32_t codeblocks_get(struct codeblocks *cb, uint64_t ip)
{
	uint32_t s = slot_of(cb, ip);
	struct codeblock b;
	bool known;

	for (; cb->slots[s]; s = (s + 1) & (cb->n_slots - 1))
		if (cb->blocks[cb->slots[s]].start == ip)
			return cb->slots[s];
	known = cb->known && cb->known(cb->arg, ip, &b);
	if (!known && !scan(cb, ip, &b))
		return CODEBLOCK_NONE;
	if (!grow(cb)) {
		/*
		 * Full: what is needed again is found again. Numbers that the caller holds are void
		 * then.
		 */
		codeblocks_flush(cb);
		if (!grow(cb))
			return CODEBLOCK_NONE;
	}
	if (!known && cb->made)
		cb->made(cb->arg, &b);
	cb->blocks[cb->n] = b;
	insert(cb, cb->n);
	return cb->n++;
}

int codeblocks_count(struct codeblocks *cb, const struct codeblock *b, uint64_t ip)
{
	uint8_t buffer[INSN_MAX];
	const uint8_t *code;
	uint64_t at = b->start;
	struct insn insn;
	int n = 0;

	while (at < ip) {
		size_t left = cb->read(cb->arg, at, &code, buffer, INSN_MAX);

		if (left == 0 || !insn_decode(code, left, cb->is64, &insn))
			return -1;
		at += insn.length;
		n++;
	}
	return at == ip ? n : -1;
}
