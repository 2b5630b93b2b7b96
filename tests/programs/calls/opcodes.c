// SPDX-License-Identifier: Apache-2.0
/*
 * An interpreter that has one function for each opcode: it goes on by a jump through a table to that of the next one, which is the same again
 * where an opcode follows itself. What goes on so has no exit in the log: the next entry has its frame.
 */
#define SEED 5
#define STACK 4096

#include "handmade.h"

void __cyg_profile_func_enter(void *function, void *site);

/* Without the instrumentation, which would be there to return to. */
#define OPCODE(name) static QUIET __attribute__((noinline)) long name(long v, const unsigned char *code)
#define ENTER(name) __cyg_profile_func_enter((void *)(name), NULL)
#define NEXT(v) return table[*code](v, code + 1)

typedef long (*opcode)(long v, const unsigned char *code);
static const opcode table[];
static const unsigned char inner[] = {0, 0, 1, 1, 1, 2, 0, 3};

OPCODE(op_add)
{
	ENTER(op_add);
	leaf(v);
	NEXT(v + 1);
}

OPCODE(op_twice)
{
	ENTER(op_twice);
	NEXT(v * 2);
}

OPCODE(op_sub)
{
	ENTER(op_sub);
	leaf(v);
	leaf(2);
	NEXT(v - 1);
}

OPCODE(op_end)
{
	ENTER(op_end);
	(void)code;
	return v;
}

static __attribute__((noinline)) long run(const unsigned char *code)
{
	const long v = table[*code](1, code + 1);

	leaf(3);
	return v;
}

OPCODE(op_call)
{
	ENTER(op_call);
	v += run(inner);
	NEXT(v);
}

static const opcode table[] = {op_add, op_twice, op_sub, op_end, op_call};

int main(void)
{
	unsigned char code[128];

	for (unsigned i = 0; i < sizeof(code); i++) {
		code[i] = (unsigned char)draw(4);
		code[i] = code[i] == 3 ? 4 : code[i];
	}
	code[sizeof(code) - 1] = 3;
	return run(code) == 0;
}
