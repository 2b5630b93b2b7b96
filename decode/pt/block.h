/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of code: straight lines from an address to the first branch, found once and kept, with
 * links to the blocks where the branch goes. This is what makes following a trace cheap: one block,
 * one decision. Owns the blocks of one address space; must not know where bytes come from
 * (code_read) and what a branch means for a stack.
 *
 * Whoever changes what is mapped where must call codeblocks_flush().
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/base/insn.h"

#define CODEBLOCK_NONE 0u
#define CODEBLOCK_MAX_INSNS 512u

enum codeblock_tag {
	CODEBLOCK_LEAVES = 1, /* its user's: the branch is handed out; not set when made */
	/* it may load the stack pointer (decode/pt/stack_pointer.h); its user may know better */
	CODEBLOCK_LOADS_SP = 2,
};

struct codeblock {
	uint64_t start;	   /* address of the first instruction */
	uint32_t to_last;  /* from it to the last */
	/*
	 * block where a direct branch goes, an indirect one went last; CODEBLOCK_NONE: not looked
	 * up yet
	 */
	uint32_t taken;
	uint32_t fall;	   /* block after the last instruction; likewise */
	int32_t offset;	   /* of a direct branch, from the end of the last instruction */
	uint16_t insns;
	/* enum insn_kind of the last; INSN_OTHER: the line was cut or nothing follows */
	uint8_t kind;
	uint8_t last_bytes; /* its length */
	uint32_t tags;	   /* enum codeblock_tag */
};

/* Reads code at `ip` for an instruction: how many bytes can be read there, at most `n`; 0: none. */
typedef size_t (*code_read_fn)(void *arg, uint64_t ip, const uint8_t **ret_bytes, uint8_t *buffer,
			       size_t n);

/*
 * Its user goes along the links without a call: `blocks` is indexed by their numbers, and moves
 * with codeblocks_get(). When memory is used up all blocks are forgotten; `epoch` then differs, and
 * numbers from before mean nothing.
 */
/* Sets `tags` of a block that was just found. */
typedef void (*codeblock_made_fn)(void *arg, struct codeblock *b);
/* Instead of looking for one: it is known already, tags and all, but for its links. */
typedef bool (*codeblock_known_fn)(void *arg, uint64_t ip, struct codeblock *ret);
/* A block was asked for of which there is not one byte. */
typedef void (*codeblock_missing_fn)(void *arg, uint64_t ip);

struct codeblocks {
	struct codeblock *blocks; /* [0] is none */
	uint64_t epoch;
	/* its own */
	code_read_fn read;
	codeblock_made_fn made; /* may be NULL */
	codeblock_missing_fn on_missing; /* NULL; or set after codeblocks_new() */
	codeblock_known_fn known; /* likewise */
	void *arg;
	size_t max_bytes;
	uint32_t n, room;
	uint32_t *slots; /* open addressing by start; at most half full */
	uint32_t n_slots;
	bool is64;
	bool foreign; /* set after codeblocks_new(): that it is not known is no loss */
};
int codeblocks_new(code_read_fn read, codeblock_made_fn made, void *arg, size_t max_bytes,
		   struct codeblocks **ret) _must_check_;
struct codeblocks *codeblocks_free(struct codeblocks *cb);
DEFINE_CLEANUP(struct codeblocks *, codeblocks_free)

void codeblocks_set_mode(struct codeblocks *cb, bool is64);
void codeblocks_flush(struct codeblocks *cb);

/* The block that begins at `ip`, or CODEBLOCK_NONE: there is no code that could be read. */
uint32_t codeblocks_get(struct codeblocks *cb, uint64_t ip);

/*
 * How many instructions of the block lie before `ip`; -1: none of them begins there. Reads the code
 * again.
 */
int codeblocks_count(struct codeblocks *cb, const struct codeblock *b, uint64_t ip);
