/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the frames (functions) and call stacks of one decode, each stored once and named by a
 * small number: frames by their content, stacks as nodes of a trie (parent stack + frame,
 * outermost frame first). So a stack that occurs a million times costs four bytes an occurrence,
 * and two stacks share everything up to where they part.
 *
 * It refuses to know where frames come from, and times.
 *
 * Everything in a frame belongs to the *function*, never to the address inside it: two samples at
 * two lines of one function must give the same frame, or the timeline would cut the function's
 * slice in two. So `line` is the line of the declaration and `offset` the function's start.
 *
 * Memory is bounded: past the limit a new frame becomes STACKTAB_FRAME_FULL and a new stack
 * becomes its own parent; both are counted (stacktab_dropped), nothing fails.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

struct stacktab;

enum frame_kind {
	FRAME_KIND_USER,
	FRAME_KIND_KERNEL,
	FRAME_KIND_VDSO,
	FRAME_KIND_JIT,
	/* in no known symbol; the name says the object, or that there is none */
	FRAME_KIND_UNKNOWN,
	FRAME_KIND_INLINED,
	FRAME_KIND_MISSING, /* stands for callers that are not known */
	FRAME_KIND_PYTHON,  /* a function of Python, which CPython ran */
};

/* What a function is. Strings are copied; NULL is the same as "". */
struct frame_info {
	const char *name;   /* demangled and escaped (common/base/escape.h) */
	const char *object; /* path as mapped, or "[vdso]", "[kernel]" ...; escaped */
	const char *file;   /* source file, if known; escaped */
	uint32_t line;	    /* of the declaration; 0 = unknown */
	uint64_t offset;    /* of the function's start in its object; 0 = unknown */
	uint8_t kind;	    /* enum frame_kind */
};

#define STACKTAB_ROOT 0u       /* the empty stack; as a sample's stack: "unknown" */
#define STACKTAB_FRAME_FULL 1u /* "[frames beyond the memory limit]" */
#define STACKTAB_MAX_DEPTH 4096u

/* `max_bytes` bounds all tables together; 0 = 512 MiB. */
int stacktab_new(size_t max_bytes, struct stacktab **ret) _must_check_;
struct stacktab *stacktab_free(struct stacktab *st);
DEFINE_CLEANUP(struct stacktab *, stacktab_free)

/* The frame's number (>= 1), the same for the same content. Never fails (see above). */
uint32_t stacktab_frame(struct stacktab *st, const struct frame_info *info);

/*
 * The number of the stack `parent` plus one inner frame; start at STACKTAB_ROOT with the outermost
 * frame. Never fails: past STACKTAB_MAX_DEPTH or the memory limit it returns `parent` and counts.
 */
uint32_t stacktab_push(struct stacktab *st, uint32_t parent, uint32_t frame);

/* A stack's parent, innermost frame and depth; all 0 for STACKTAB_ROOT. */
uint32_t stacktab_parent(const struct stacktab *st, uint32_t stack);
uint32_t stacktab_leaf(const struct stacktab *st, uint32_t stack);
uint32_t stacktab_depth(const struct stacktab *st, uint32_t stack);

/*
 * Fills `frames` (room for `max`) with the outermost frames of the stack, outermost first, and
 * returns how many were written: the smaller of depth and `max`.
 */
uint32_t stacktab_frames(const struct stacktab *st, uint32_t stack, uint32_t *frames, uint32_t max);

/* The frame's content; pointers live until the next stacktab_frame(). `frame` 0 gives "". */
void stacktab_info(const struct stacktab *st, uint32_t frame, struct frame_info *ret_info);

/* How many numbers there are: frames are 1..n-1, stacks 0..n-1. */
uint32_t stacktab_n_frames(const struct stacktab *st);
uint32_t stacktab_n_stacks(const struct stacktab *st);
size_t stacktab_bytes(const struct stacktab *st);

/* How often a frame or a stack found no room. */
uint64_t stacktab_dropped(const struct stacktab *st);
