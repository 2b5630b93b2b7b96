// SPDX-License-Identifier: Apache-2.0
/*
 * Functions in two parts: what is rarely run lies elsewhere, with a frame of its own function, with none yet (shrink-wrapped), or with more; it
 * calls, goes back into the middle, returns by itself, or ends in another function.
 */
#include <stdlib.h>

#define RARELY(x) __builtin_expect(!!(x), 0)

static volatile long sink;

__attribute__((noinline)) void leaf(long v)
{
	sink += v;
}

__attribute__((noinline, cold)) void rare(long v)
{
	leaf(v);
	leaf(v + 1);
}

__attribute__((noinline, cold)) long last(long v)
{
	sink += 3;
	return sink + v;
}

/* Nothing is saved before it is known that it goes the rare way. */
__attribute__((noinline)) long wrapped(long v)
{
	if (RARELY(v % 3 == 0)) {
		rare(v);
		leaf(5);
		return sink + v;
	}
	return v * 3;
}

/* And comes back. */
__attribute__((noinline)) long back(long v)
{
	long sum = v;

	if (RARELY(v & 1)) {
		rare(v);
		sum += sink;
	}
	leaf(sum);
	return sum + 1;
}

/* Ends in the rare function, with nothing saved. */
__attribute__((noinline)) long ends(long v)
{
	if (RARELY(v > 4)) {
		sink++;
		return last(v);
	}
	return v + sink;
}

__attribute__((noinline)) long many(long *p, long n)
{
	long sum = 0;

	for (long i = 0; i < n; i++) {
		sum += p[i] * 3 + wrapped(i);
		if (RARELY(p[i] == 7)) {
			rare(sum);
			if (sum & 1)
				continue;
			sum += back(i);
		}
		if (RARELY(p[i] == 11)) {
			rare(i);
			return sum + ends(i);
		}
		leaf(sum);
	}
	return sum;
}

__attribute__((noinline)) long again(long n)
{
	long sum = 1;

	if (RARELY(n % 4 == 1)) {
		rare(n);
		sum += n > 0 ? again(n - 1) : 0;
		leaf(sum);
	}
	return (n > 0 ? again(n - 1) : 1) + sum;
}

__attribute__((noinline)) int compare(const void *a, const void *b)
{
	const long x = *(const long *)a, y = *(const long *)b;

	if (RARELY(x == y)) {
		rare(x);
		leaf(1);
		return 0;
	}
	return x < y ? -1 : 1;
}

int main(void)
{
	long v[12];

	for (long i = 0; i < 12; i++)
		v[i] = i * 7 % 12;
	for (long i = 0; i < 6; i++) {
		sink += many(v, 12) + again(i) + ends(i) + back(i);
		v[i] = 7;
		qsort(v, 12, sizeof(*v), compare);
	}
	return 0;
}
