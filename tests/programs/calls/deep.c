// SPDX-License-Identifier: Apache-2.0
/* Recursion, 6,000 calls deep, left by returns and by longjmp; and what comes after is in main(). */
#include <setjmp.h>

#define DEEP 6000

static jmp_buf out;

__attribute__((noinline)) static int dig(volatile int n, int leave)
{
	if (n == 0 && leave)
		longjmp(out, 1);
	return n ? dig(n - 1, leave) + 1 : 0;
}

__attribute__((noinline)) static void after(int k)
{
	__asm__ volatile("" ::"r"(k));
}

__attribute__((noinline)) static void plain(void)
{
	after(dig(DEEP, 0));
}

__attribute__((noinline)) static void jumps(void)
{
	if (!setjmp(out))
		dig(DEEP, 1);
	after(1);
}

int main(void)
{
	plain();
	jumps();
	after(2);
	plain();
	after(3);
	return 0;
}
