// SPDX-License-Identifier: Apache-2.0
/* Stacks in pieces (-fsplit-stack): what finds too little room for itself goes on on a piece of its own, from where its caller gets it back. */
#include "calllog.h"

static int large(int n)
{
	volatile char room[6000];

	room[0] = (char)n;
	low(n);
	if (n > 0)
		sink += large(n - 1);
	high(n);
	return room[0];
}

static int mixed(int n)
{
	volatile char room[3000];

	room[n] = 1;
	low(n);
	if (n > 0 && n % 3 == 0)
		sink += large(3);
	if (n > 0)
		sink += mixed(n - 1);
	low(n);
	return room[n];
}

int main(void)
{
	for (int i = 0; i < 1; i++) {
		large(20);
		mixed(16);
		high(i);
	}
	return 0;
}
