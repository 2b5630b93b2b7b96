// SPDX-License-Identifier: Apache-2.0
/*
 * A library, and with OTHER another one of the same size: what the one has at an address is something else in the other. No data of its
 * own, so that its code runs wherever the file is mapped.
 */
unsigned int work(unsigned int n);

#ifdef OTHER
__attribute__((noinline)) static unsigned int down(unsigned int n)
{
	return n ? down(n - 1) + n : 0;
}

unsigned int work(unsigned int n)
{
	return n % 2 ? down(n) : down(n + 2) + down(1);
}
#else
__attribute__((noinline)) static unsigned int up(unsigned int n)
{
	volatile unsigned int sum = 0;

	for (unsigned int i = 0; i < n; i++)
		sum += i;
	return sum;
}

unsigned int work(unsigned int n)
{
	return up(n) + up(n + 1);
}
#endif
