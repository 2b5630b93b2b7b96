// SPDX-License-Identifier: Apache-2.0
/* An inlined longjmp: a function loads the stack pointer and jumps within itself, to an outer call of it, or to the same one. */
#define SEED 9
#define STACK 4096

#include "handmade.h"

static void *saved_sp, *saved_bp;

#define OTHERS "rbx", "r12", "r13", "r14", "r15"

static void deep(int n, int target)
{
	leaf(1);
	if (n == target)
		__asm__ goto("mov %%rsp,%0; mov %%rbp,%1" : : "m"(saved_sp), "m"(saved_bp) : "memory", OTHERS : out);
	if (n == 0) {
		leaf(2);
		__asm__ goto("mov %1,%%rbp; mov %0,%%rsp; lea %l[out](%%rip),%%rax; jmp *%%rax"
			     :
			     : "m"(saved_sp), "m"(saved_bp)
			     : "memory", "rax", OTHERS
			     : out);
	}
	deep(n - 1, target);
	leaf(3);
	return;
out:
	leaf(4);
	leaf(5);
}

static void around(int n)
{
	leaf(n);
	deep(n, (int)draw((unsigned)n + 1));
	leaf(n);
}

int main(void)
{
	for (int i = 0; i < 8; i++)
		around(i % 6);
	return 0;
}
