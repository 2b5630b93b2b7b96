/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks that are made by hand, for programs whose coroutines go on in a random order. What is QUIET is not in the log of calls. The program
 * says before how large a STACK is, in bytes, and its SEED.
 */
#pragma once

#include <stdlib.h>
#include <string.h>

#define QUIET __attribute__((no_instrument_function))

#ifdef __cplusplus
extern "C" {
#endif
/* The log's (hooks.c): the stack is one of them. */
void calls_stack(void *low, size_t size);
/* Saves the stack pointer in *from, and goes on where `to` was saved. */
void swap_stacks(void **from, void *to);
#ifdef __cplusplus
}
#endif
__asm__(".globl swap_stacks; .type swap_stacks,@function; swap_stacks: push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15;"
	"mov %rsp,(%rdi); mov %rsi,%rsp; pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp; ret; .size swap_stacks,.-swap_stacks");

static volatile int sink;

static QUIET unsigned draw(unsigned n)
{
	static unsigned seed = SEED;

	seed = seed * 1103515245u + 12345u;
	return (seed >> 16) % n;
}

static __attribute__((noinline)) void leaf(int v)
{
	sink = sink + v;
}

static QUIET char *new_stack(void)
{
	char *stack = (char *)aligned_alloc(4096, STACK);

	calls_stack(stack, STACK);
	return stack;
}

/* What swap_stacks() goes to, to call `f` on that stack. */
static QUIET void *first_frame(char *stack, void (*f)(void))
{
	void **top = (void **)(stack + STACK - 64);

	*--top = NULL;
	*--top = (void *)f;
	return memset(top - 6, 0, 6 * sizeof(*top));
}
