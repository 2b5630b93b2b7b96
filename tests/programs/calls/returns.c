// SPDX-License-Identifier: Apache-2.0
/* What a runtime's own unwinder does: a function whose epilogue goes to a handler of an outer frame (__builtin_eh_return), past all calls between. */
#include <stdint.h>
#include <stdlib.h>

static volatile long sink;

static __attribute__((noinline)) void leaf(long v)
{
	sink += v;
}

static __thread struct target {
	void *handler, *frame; /* and the address of the frame's caller's stack: the CFA */
	struct target *outer;
} *innermost;

/* Leaves all frames inside of the target's, and goes on at its handler. */
__attribute__((noinline, no_instrument_function, optimize("omit-frame-pointer"))) void raise_to(struct target *t)
{
	const intptr_t offset = (char *)t->frame - ((char *)__builtin_dwarf_cfa());

	__builtin_eh_return(offset, t->handler);
}

/* Calls f(n); 1: it was left. Its handler finds the stack as `guard` left it. */
int guard(void (*f)(long), long n);
void enter(struct target *t), leave_target(struct target *t);
__attribute__((no_instrument_function)) void enter(struct target *t)
{
	t->outer = innermost;
	innermost = t;
}
__attribute__((no_instrument_function)) void leave_target(struct target *t)
{
	innermost = t->outer;
}
__asm__(".text; .globl guard; .type guard,@function; guard: push %rbp; mov %rsp,%rbp; push %rbx; push %r12; sub $32,%rsp;"
	"mov %rdi,%rbx; mov %rsi,%r12; lea 1f(%rip),%rax; mov %rax,(%rsp); mov %rsp,8(%rsp); mov %rsp,%rdi; call enter;"
	"mov %r12,%rdi; call *%rbx; mov %rsp,%rdi; call leave_target; xor %eax,%eax; jmp 2f;"
	"1: lea 48(%rsp),%rbp; mov %rsp,%rdi; call leave_target; mov $1,%eax; 2: lea -16(%rbp),%rsp; pop %r12; pop %rbx; pop %rbp; ret; .size guard,.-guard");

static void deep(long n)
{
	leaf(n);
	if (n > 0)
		deep(n - 1);
	else
		raise_to(innermost);
	leaf(n);
}

static void mixed(long n)
{
	leaf(1);
	if (n == 0)
		deep(2);
	if (guard(mixed, n - 1))
		leaf(2);
	leaf(3);
	if (n & 1)
		raise_to(innermost);
	leaf(4);
}

int main(void)
{
	for (long i = 0; i < 5; i++) {
		if (guard(deep, i))
			leaf(5);
		if (guard(mixed, i))
			leaf(6);
		leaf(7);
	}
	return 0;
}
