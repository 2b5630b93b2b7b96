// SPDX-License-Identifier: Apache-2.0
/*
 * Coroutines that go on in a random order, each of which remembers places in its own calls by setjmp, in several calls of one function, and
 * comes back to one of them by longjmp, after others have done the same.
 */
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#define TASKS 4
#define LEVELS 6
#define STACK (64u << 10)
#define QUIET __attribute__((no_instrument_function))

void calls_stack(void *low, size_t size);
void swap_stacks(void **from, void *to);
__asm__(".globl swap_stacks; .type swap_stacks,@function; swap_stacks: push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15;"
	"mov %rsp,(%rdi); mov %rsi,%rsp; pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp; ret; .size swap_stacks,.-swap_stacks");

static struct task {
	void *sp;
	jmp_buf points[LEVELS];
	int set[LEVELS];
} tasks[TASKS]; /* the first is main */
static int current;
static volatile int sink;
static unsigned seed = 3;

static QUIET unsigned draw(unsigned n)
{
	seed = seed * 1103515245u + 12345u;
	return (seed >> 16) % n;
}

static __attribute__((noinline)) void leaf(int v)
{
	sink += v;
}

/* Each waits at a place of its own, so that it is known who goes on. */
#define TRANSFER(n)                                         \
	static void transfer##n(int to)                     \
	{                                                   \
		leaf(1);                                    \
		current = to;                               \
		swap_stacks(&tasks[n].sp, tasks[to].sp);    \
		leaf(2);                                    \
	}
TRANSFER(0)
TRANSFER(1)
TRANSFER(2)
TRANSFER(3)
static void (*const transfers[TASKS])(int) = {transfer0, transfer1, transfer2, transfer3};

static void give(void)
{
	const int to = (int)draw(TASKS);

	if (to != current)
		transfers[current](to);
}

static QUIET void go_back(int level)
{
	struct task *t = &tasks[current];
	const int to = (int)draw((unsigned)level + 1);

	if (t->set[to])
		_longjmp(t->points[to], 1);
}

static void dig(int level)
{
	struct task *t = &tasks[current];

	leaf(level);
	t->set[level] = 0;
	if (draw(2)) {
		t->set[level] = 1;
		if (_setjmp(t->points[level])) {
			t = &tasks[current];
			t->set[level] = 0;
			leaf(3);
		}
	}
	give();
	if (level + 1 < LEVELS && draw(5))
		dig(level + 1);
	if (draw(2))
		go_back(level);
	leaf(4);
	tasks[current].set[level] = 0;
}

static void forever(void)
{
	for (;;)
		dig(0);
}

static void other(int n)
{
	leaf(n);
	dig(0);
}

static QUIET void make(struct task *t)
{
	char *stack = aligned_alloc(4096, STACK);
	void **top = (void **)(stack + STACK - 64);

	calls_stack(stack, STACK);
	*--top = NULL;
	*--top = (void *)forever;
	t->sp = top - 6;
	memset(t->sp, 0, 48);
}

int main(void)
{
	for (int i = 1; i < TASKS; i++)
		make(&tasks[i]);
	for (int i = 0; i < 9; i++) {
		dig(0);
		other(i);
	}
	return 0;
}
