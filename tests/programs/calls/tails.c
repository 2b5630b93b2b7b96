// SPDX-License-Identifier: Apache-2.0
/*
 * Coroutines that go on in a random order, and whose switch is a tail call: nothing waits in what has called it. It is called directly, through
 * a pointer, by what was itself called so, and in a cold part.
 */
#define TASKS 5
#define STACK (64u << 10)
#define SEED 31

#include "handmade.h"

#define TAIL static QUIET __attribute__((noinline)) void

static void *tasks[TASKS]; /* the first is main */
static int current;
static void (*volatile by_pointer)(void **, void *) = swap_stacks;

TAIL directly(int from, int to)
{
	sink++;
	swap_stacks(&tasks[from], tasks[to]);
}

TAIL through_pointer(int from, int to)
{
	sink++;
	by_pointer(&tasks[from], tasks[to]);
}

TAIL again(int from, int to)
{
	sink += 2;
	directly(from, to);
}

TAIL rarely(int from, int to)
{
	if (__builtin_expect(to > 2, 0)) {
		sink += 7;
		by_pointer(&tasks[from], tasks[to]);
		return;
	}
	sink++;
	again(from, to);
}

static void (*const ways[])(int, int) = {directly, through_pointer, again, rarely};

TAIL give(void)
{
	const int from = current, to = (int)draw(TASKS);

	if (to == from)
		return;
	current = to;
	ways[draw(4)](from, to);
}

static void once(int n)
{
	leaf(n);
	give();
	leaf(n);
}

static void walk(int n)
{
	if (n > 0)
		walk(n - 1);
	if (draw(2))
		give();
	leaf(4);
	give();
}

TAIL go_for_walk(int n)
{
	sink++;
	walk(n);
}

static void odd(int n)
{
	leaf(5);
	go_for_walk(n);
	give();
}

static void start(void)
{
	for (;;) {
		switch (current) {
		case 1:
			walk(3);
			break;
		case 2:
			odd(2);
			break;
		case 3:
			once(1);
			break;
		default:
			odd(0);
			once(2);
		}
	}
}

int main(void)
{
	for (int i = 1; i < TASKS; i++)
		tasks[i] = first_frame(new_stack(), start);
	for (int i = 0; i < 14; i++) {
		walk(i % 3);
		odd(1);
		once(3);
	}
	return 0;
}
