// SPDX-License-Identifier: Apache-2.0
/*
 * Coroutines that go on in a random order, by each way in which code can put another stack into the stack pointer: by sums, conditional
 * moves, the frame pointer, a register that was given, a helper, iret. Around them, what gets a function's own frame back: arrays of a
 * size of their own, and stacks that are aligned.
 */
#define TASKS 5
#define STACK (64u << 10)
#define SEED 11

#include "handmade.h"

/* Each saves what swap_stacks() does. */
#define SWAP(name, load)                                                                                                           \
	QUIET void name(void **from, void *to);                                                                                   \
	__asm__(".globl " #name "; .type " #name ",@function; " #name ": push %rbp; push %rbx; push %r12; push %r13; push %r14;"   \
		"push %r15; mov %rsp,(%rdi);" load "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp; ret;"              \
		".size " #name ",.-" #name)

SWAP(by_lea, "lea 8(%rsi),%rax; lea -8(%rax),%rsp;");
SWAP(by_index, "xor %eax,%eax; lea (%rsi,%rax,8),%rsp;");
SWAP(by_difference, "sub %rsp,%rsi; add %rsi,%rsp;");
SWAP(by_condition, "test %rsi,%rsi; cmovne %rsi,%rsp;");
SWAP(by_frame_pointer, "mov %rsi,%rbp; mov %rbp,%rsp;");
SWAP(by_leave, "lea -8(%rsi),%rbp; leave;");
SWAP(by_prefix, "mov %rsi,-8(%rsi); .byte 0x3e; mov -8(%rsi),%rsp;");
SWAP(by_iret, "mov %ss,%eax; mov %cs,%ecx; push %rax; push %rsi; pushf; push %rcx; lea 1f(%rip),%rax; push %rax; iretq; 1:");
SWAP(by_helper, "call load_for_caller;");
__asm__(".type load_for_caller,@function; load_for_caller: pop %rax; mov %rsi,%rsp; jmp *%rax; .size load_for_caller,.-load_for_caller");
/* The inner one is given it, in a register that each function leaves as it was. */
SWAP(swap_given, "mov %rbx,%rsp;");
QUIET void by_given(void **from, void *to);
__asm__(".type by_given,@function; by_given: push %rbx; mov %rsi,%rbx; call swap_given; pop %rbx; ret; .size by_given,.-by_given");

static void (*const ways[])(void **from, void *to) = {
	by_lea, by_index, by_difference, by_condition, by_frame_pointer, by_leave, by_prefix, by_iret, by_helper, by_given, swap_stacks};

static void *tasks[TASKS]; /* the first is main */
static int current;

/* Each waits at a place of its own, so that it is known who goes on. */
#define TRANSFER(n)                                                                        \
	static void transfer##n(unsigned way, int to)                                      \
	{                                                                                  \
		leaf(1);                                                                   \
		current = to;                                                              \
		ways[way](&tasks[n], tasks[to]);                                           \
		leaf(2);                                                                   \
	}
TRANSFER(0)
TRANSFER(1)
TRANSFER(2)
TRANSFER(3)
TRANSFER(4)
static void (*const transfers[TASKS])(unsigned, int) = {transfer0, transfer1, transfer2, transfer3, transfer4};

static void give(void)
{
	const int to = (int)draw(TASKS);

	if (to != current)
		transfers[current](draw(sizeof(ways) / sizeof(*ways)), to);
}

static void dig(int n);

static void aligned(int n)
{
	volatile char room[n + 1] __attribute__((aligned(64)));

	room[n] = 1;
	give();
	dig(n - 1);
	leaf(room[n]);
}

static void array(int n)
{
	for (int i = 1; i < 3; i++) {
		volatile char room[i * n];

		room[0] = 1;
		give();
		leaf(room[0]);
	}
	dig(n - 1);
}

static void dig(int n)
{
	leaf(n);
	give();
	if (n > 0)
		(draw(2) ? aligned : array)(n);
	leaf(3);
}

static void forever(void)
{
	for (;;)
		dig(3);
}

int main(void)
{
	for (int i = 1; i < TASKS; i++)
		tasks[i] = first_frame(new_stack(), forever);
	for (int i = 0; i < 8; i++)
		dig(i % 4);
	return 0;
}
