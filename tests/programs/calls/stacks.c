// SPDX-License-Identifier: Apache-2.0
/*
 * Coroutines that go on in a random order: from main, from each other, again on the stack of one that has ended, out of recursions of
 * the same and of different depth. KIND says how stacks are switched, in the ways of libraries; each of THREADS threads has TASKS.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>

#ifndef TASKS
#define TASKS 6
#endif
#ifndef STEPS
#define STEPS 60
#endif
#ifndef THREADS
#define THREADS 1
#endif
#define STACK (64u << 10)
#define QUIET __attribute__((no_instrument_function))

#define POP_RET 0
#define JUMP 1
#define PUSHED 2
#define EXCHANGE 3
#define INLINED 4
#define UCONTEXT 5
#define SETJMP 6

struct task {
	void *sp, *ip; /* where it goes on */
	ucontext_t context;
	jmp_buf point;
	char *stack;
	int live, shape, started;
};

struct group { /* of one thread */
	struct task main, tasks[TASKS], *current;
	unsigned seed;
	int left;
};

static __thread struct group *mine;
static volatile int sink;

void calls_stack(void *low, size_t size);
static void start_task(void);

static QUIET unsigned draw(unsigned n)
{
	mine->seed = mine->seed * 1103515245u + 12345u;
	return (mine->seed >> 16) % n;
}

#define SAVE "push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15;"
#define LOAD "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp;"
#define FUNCTION(name, body) ".globl " name "; .type " name ",@function; " name ": " body " .size " name ",.-" name ";"

/* From *rdi to *rsi: (sp, ip). */
void swap_stacks(struct task *from, struct task *to);
#if KIND == POP_RET || KIND == UCONTEXT || KIND == SETJMP || KIND == INLINED
__asm__(FUNCTION("swap_stacks", SAVE "mov %rsp,(%rdi); mov (%rsi),%rsp;" LOAD "ret;"));
#elif KIND == JUMP
__asm__(FUNCTION("swap_stacks", "pop %rax; mov %rax,8(%rdi);" SAVE "mov %rsp,(%rdi); mov (%rsi),%rsp;" LOAD "jmp *8(%rsi);"));
#elif KIND == PUSHED
__asm__(FUNCTION("swap_stacks", "pop %rax; mov %rax,8(%rdi);" SAVE "mov %rsp,(%rdi); mov (%rsi),%rsp;" LOAD "push 8(%rsi); ret;"));
#elif KIND == EXCHANGE
__asm__(FUNCTION("swap_stacks", SAVE "mov (%rsi),%rax; xchg %rax,%rsp; mov %rax,(%rdi);" LOAD "ret;"));
#endif

static __attribute__((noinline)) void leaf(int v)
{
	sink += v;
}

#if KIND == INLINED
static inline __attribute__((always_inline)) QUIET void go_to(struct task *from, struct task *to)
{
	__asm__ volatile("lea -128(%%rsp),%%rsp; push %%rbp; push %%rbx; lea 1f(%%rip),%%rax; push %%rax; mov %%rsp,(%0); mov (%1),%%rsp;"
			 "pop %%rax; jmp *%%rax; 1: pop %%rbx; pop %%rbp; lea 128(%%rsp),%%rsp"
			 : "+D"(from), "+S"(to)
			 :
			 : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc");
}
#else
static QUIET void go_to(struct task *from, struct task *to)
{
#if KIND == UCONTEXT
	swapcontext(&from->context, &to->context);
#elif KIND == SETJMP
	if (_setjmp(from->point))
		return;
	if (to->started)
		_longjmp(to->point, 1);
	to->started = 1;
	swap_stacks(from, to);
#else
	swap_stacks(from, to);
#endif
}
#endif

/* The one function of all that wait. */
static __attribute__((noinline)) void transfer(struct task *to)
{
	struct task *from = mine->current;

	leaf(1);
	mine->current = to;
	go_to(from, to);
	leaf(2);
}

static void give(void)
{
	struct task *to = draw(3) ? &mine->main : &mine->tasks[draw(TASKS)];

	if (to->live && to != mine->current)
		transfer(to);
	else
		transfer(&mine->main);
	leaf(3);
}

static void walk(int depth)
{
	if (depth == 0) {
		give();
		return;
	}
	walk(depth - 1);
	if (draw(2))
		give();
}

static void once(int n)
{
	leaf(n);
	give();
	leaf(n);
}

static void often(int n)
{
	for (int i = 0; i < n; i++) {
		once(i);
		if (draw(2))
			walk(2);
	}
}

static void start_task(void)
{
	struct task *t = mine->current;

	switch (t->shape) {
	case 0:
		walk(3);
		break;
	case 1:
		once(4);
		walk(1);
		break;
	case 2:
		often(2);
		break;
	default:
		walk(1);
		often(1);
	}
	t->live = 0;
	transfer(&mine->main);
	abort();
}

static void make(struct task *t)
{
	void **top;

	if (!t->stack) {
		t->stack = aligned_alloc(4096, STACK);
		calls_stack(t->stack, STACK);
	}
	top = (void **)(t->stack + STACK - 64);
	t->shape = (int)draw(4);
	t->live = 1;
	t->started = 0;
	t->ip = (void *)start_task;
#if KIND == UCONTEXT
	getcontext(&t->context);
	t->context.uc_stack.ss_sp = t->stack;
	t->context.uc_stack.ss_size = STACK;
	makecontext(&t->context, start_task, 0);
#elif KIND == INLINED
	*--top = NULL;
	*--top = (void *)start_task;
	t->sp = top;
#elif KIND == JUMP || KIND == PUSHED
	t->sp = top - 7;
#else
	*--top = NULL;
	*--top = (void *)start_task;
	t->sp = top - 6;
#endif
}

static struct task *choose(void)
{
	struct task *t = &mine->tasks[draw(TASKS)];

	if (!t->live && mine->left > 0)
		make(t);
	return t->live ? t : NULL;
}

static void run(void)
{
	for (mine->left = STEPS; mine->left > 0; mine->left--) {
		struct task *t = choose();

		if (t)
			transfer(t);
		leaf(5);
	}
}

static void *thread(void *arg)
{
	struct group g = {.seed = (unsigned)(uintptr_t)arg * 77u + 5u};

	mine = &g;
	g.current = &g.main;
	g.main.live = g.main.started = 1;
	run();
	return NULL;
}

int main(void)
{
	pthread_t others[THREADS];

	for (uintptr_t i = 1; i < THREADS; i++)
		pthread_create(&others[i], NULL, thread, (void *)i);
	thread(NULL);
	for (uintptr_t i = 1; i < THREADS; i++)
		pthread_join(others[i], NULL);
	return 0;
}
