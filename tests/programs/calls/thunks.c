// SPDX-License-Identifier: Apache-2.0
/* Indirect branches of all kinds, for the compiler's options that make thunks of them: an interpreter, a table of functions, a switch. */
#include "calllog.h"

static int twice(int x)
{
	low(x);
	return 2 * x;
}

static int (*volatile const functions[])(int) = {twice, abs};

static int interpret(const char *code, int x)
{
	static const void *const labels[] = {&&add, &&triple, &&call, &&nest, &&end};

	goto *labels[*code - '0'];
add:
	high(x++);
	goto *labels[*++code - '0'];
triple:
	low(x);
	x *= 3;
	goto *labels[*++code - '0'];
call:
	x = functions[x & 1](x);
	goto *labels[*++code - '0'];
nest:
	x = interpret(code + 2, x);
	goto *labels[*++code - '0'];
end:
	return x;
}

/* Of itself, by a pointer. */
static int (*volatile self)(int);

static int down(int x)
{
	high(x);
	return x ? self(x - 1) + 1 : 0;
}

static void choose(int k)
{
	switch (k) {
	case 0:
		low(1);
		break;
	case 1:
		high(1);
		break;
	case 2:
		low(2);
		low(3);
		break;
	case 3:
		high(4);
		high(5);
		break;
	case 4:
		low(6);
		high(7);
		break;
	case 5:
		high(8);
		low(9);
		break;
	}
}

int main(void)
{
	self = down;
	for (int i = 0; i < 12; i++) {
		sink += interpret("0122302124" "4", i);
		choose(i % 6);
		sink += down(i % 4);
	}
	return 0;
}
