// SPDX-License-Identifier: Apache-2.0
/* Deep in calls, with frame pointers, and computing for ever: main, outer, middle, spin, which calls leaf and never returns. */
#pragma GCC optimize("no-omit-frame-pointer", "no-optimize-sibling-calls")

volatile unsigned int sum;

__attribute__((noinline)) void leaf(unsigned int n)
{
	sum += n;
}

__attribute__((noinline)) void spin(void)
{
	for (unsigned int n = 0; sum != 0xffffffffu; n++)
		leaf(n & 3);
}

__attribute__((noinline)) void middle(void)
{
	spin();
	sum++;
}

__attribute__((noinline)) void outer(void)
{
	middle();
	sum++;
}

int main(void)
{
	outer();
	return 0;
}
