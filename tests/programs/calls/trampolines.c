// SPDX-License-Identifier: Apache-2.0
/*
 * Calls in ways that no compiler makes: by trampolines, which keep the address to return to in a register, go over data behind the call, or leave
 * their caller's frame, too; by tables of addresses that end in each other; by functions that the compiler makes on the stack.
 */
#include <stdint.h>

#define QUIET __attribute__((no_instrument_function))
#define FUNCTION(name, body) ".globl " name "; .type " name ",@function; " name ": " body " .size " name ",.-" name ";"

typedef void work(long);

void by_register(work *f, long n), by_data(long n), by_tail(work *f, long n), by_two(work *f, long n), by_pushes(work *f, work *g, long n);
void by_exchange(work *f, long n), by_chain(work **table, long n), out_of_both(long n), skipping(long n), by_frame(work *f, long n);
void deep_out(long n), by_leaves(work *f, long n), go_back(void);

static volatile long sink;

__attribute__((noinline)) void leaf(long v)
{
	sink += v;
}

__asm__(".text\n"
	/* the address to return to is in a register meanwhile */
	FUNCTION("by_register", "pop %rax; push %r12; push %r13; mov %rax,%r12; mov %rdi,%rax; mov %rsi,%rdi; call *%rax;"
				"mov %r12,%rax; pop %r13; pop %r12; jmp *%rax;")
	/* with data behind the call, over which the callee returns */
	FUNCTION("skipper", "push %rdi; call leaf; pop %rdi; addq $8,(%rsp); ret;")
	FUNCTION("by_data", "push %rdi; call skipper; .quad 0x1122334455667788; call leaf_of_data; pop %rdi; jmp leaf;")
	FUNCTION("leaf_of_data", "mov $3,%edi; jmp leaf;")
	FUNCTION("by_tail", "mov %rdi,%rax; mov %rsi,%rdi; jmp *%rax;")
	/* calls that twice, the second time as its tail */
	FUNCTION("by_two", "push %rdi; push %rsi; sub $8,%rsp; mov %rdi,%rax; mov %rsi,%rdi; call *%rax; add $8,%rsp; pop %rdi; pop %rax; jmp *%rax;")
	/* f returns to g, and g to the caller */
	FUNCTION("by_pushes", "mov %rdx,%rax; push %rsi; push %rdi; mov %rdx,%rdi; ret;")
	FUNCTION("by_exchange", "xchg %rdi,(%rsp); push %rdi; mov %rsi,%rdi; mov 8(%rsp),%rax; call *%rax; pop %rax; add $8,%rsp; jmp *%rax;")
	/* each returns to the next one of the table */
	FUNCTION("by_chain", "push %rbx; push %r12; push %r13; mov %rdi,%rbx; mov %rsi,%r12;"
			     "1: mov (%rbx),%rax; add $8,%rbx; test %rax,%rax; je 2f; lea 1b(%rip),%rcx; mov %r12,%rdi; push %rcx; jmp *%rax;"
			     "2: pop %r13; pop %r12; pop %rbx; ret;")
	/* to the caller of its caller */
	FUNCTION("out_of_both", "add $8,%rsp; ret;")
	FUNCTION("inner_out", "call leaf; jmp out_of_both;")
	FUNCTION("skipping", "call inner_out; ud2;")
	/* leaves a whole chain of them by the frame pointer */
	FUNCTION("by_frame", "push %rbp; mov %rsp,%rbp; mov %rdi,%rax; mov %rsi,%rdi; call *%rax; leave; ret;")
	FUNCTION("dig_out", "test %rdi,%rdi; je 1f; dec %rdi; call dig_out; ud2; 1: mov $5,%edi; sub $8,%rsp; call leaf; add $8,%rsp; jmp go_back;")
	FUNCTION("go_back", "leave; ret;")
	FUNCTION("deep_out", "push %rbp; mov %rsp,%rbp; call dig_out; ud2;")
	/* the stack is another one meanwhile: an array */
	FUNCTION("by_leaves", "push %rbx; mov %rsp,%rbx; lea area+4032(%rip),%rsp; mov %rdi,%rax; mov %rsi,%rdi; call *%rax; mov %rbx,%rsp; pop %rbx; ret;"));
__attribute__((aligned(64), used)) char area[4096];

static void one(long n)
{
	leaf(n);
}

static void two(long n)
{
	leaf(n);
	one(n + 1);
}

static void three(long n)
{
	if (n > 0)
		by_tail(three, n - 1);
	else
		by_two(two, 3);
	leaf(7);
}

static void again(long n)
{
	if (n > 0)
		by_register(again, n - 1);
	by_data(n);
	leaf(8);
}

static void exchange(long n)
{
	if (n > 0)
		by_exchange(exchange, n - 1);
	one(n);
}

static void skips(long n)
{
	skipping(n);
	leaf(9);
	if (n > 0)
		skips(n - 1);
	deep_out(n);
	two(n);
}

static void framed(long n)
{
	if (n > 0)
		by_frame(framed, n - 1);
	skips(1);
}

static void on_area(long n)
{
	two(n);
	by_tail(one, n);
	leaf(1);
}

/* Functions on the stack, which know their caller's variables. */
static void nest(long n)
{
	long sum = 0;
	auto void inner(long v);

	void inner(long v)
	{
		sum += v;
		leaf(sum);
		if (v > 0)
			by_tail(inner, v - 1);
	}

	by_two(inner, n);
	by_pushes(inner, one, n);
	leaf(sum);
}

int main(void)
{
	work *const table[] = {one, two, three, one, 0};

	for (long i = 0; i < 3; i++) {
		three(i);
		again(i);
		exchange(i);
		by_pushes(one, two, i);
		by_pushes(three, one, i);
		by_chain((work **)table, i);
		skips(i);
		framed(i);
		by_leaves(on_area, i);
		nest(i);
		leaf(100);
	}
	return 0;
}
