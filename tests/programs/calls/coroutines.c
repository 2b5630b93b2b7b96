// SPDX-License-Identifier: Apache-2.0
/* Coroutines by swapcontext: two generators that main asks in turn, then three that go on to each other. */
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#define STACK (1 << 20)
#define RING 3

static ucontext_t main_context, generators[2], ring[RING];
static int values[2], turns;

static void give(int who, int value)
{
	values[who] = value;
	swapcontext(&generators[who], &main_context);
}

static void walk(int who, int depth)
{
	if (depth == 0)
		return;
	walk(who, depth - 1);
	give(who, depth);
	walk(who, depth - 1);
}

static void generate(int who)
{
	walk(who, 3);
	values[who] = -1;
}

static int ask(int who)
{
	swapcontext(&main_context, &generators[who]);
	return values[who];
}

static void pass(int who)
{
	turns++;
	swapcontext(&ring[who], &ring[(who + 1) % RING]);
}

static void go_round(int who)
{
	for (int i = 0; i < 4; i++)
		pass(who);
	swapcontext(&ring[who], who == RING - 1 ? &main_context : &ring[who + 1]);
}

/* of who logs calls */
void calls_stack(void *low, size_t size) __attribute__((weak));

static void make(ucontext_t *c, void (*start)(int), int who)
{
	getcontext(c);
	c->uc_stack.ss_sp = aligned_alloc(STACK, STACK);
	c->uc_stack.ss_size = STACK;
	if (calls_stack)
		calls_stack(c->uc_stack.ss_sp, STACK);
	c->uc_link = &main_context;
	makecontext(c, (void (*)(void))start, 1, who);
}

int main(void)
{
	int sum = 0, live = 2;

	make(&generators[0], generate, 0);
	make(&generators[1], generate, 1);
	while (live) {
		live = 0;
		for (int i = 0; i < 2; i++)
			if (values[i] != -1 && ask(i) != -1) {
				sum += values[i];
				live++;
			}
	}
	for (int i = 0; i < RING; i++)
		make(&ring[i], go_round, i);
	swapcontext(&main_context, &ring[0]);
	printf("%d %d\n", sum, turns);
	return 0;
}
