// SPDX-License-Identifier: Apache-2.0
/* For step-perf.sh: three coroutines that switch to each other from different depths of their stacks. */
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#define STACK 65536

static ucontext_t first, contexts[3];
static int switches[3];

static int deep(int levels, int i)
{
	if (levels > 0)
		return deep(levels - 1, i) + 1;
	swapcontext(&contexts[i], &contexts[(i + 1) % 3]);
	switches[i]++;
	return 1;
}

static void run(int i)
{
	for (int levels = 0; levels < 10; levels++)
		deep(levels, i);
}

int main(void)
{
	for (int i = 0; i < 3; i++) {
		getcontext(&contexts[i]);
		contexts[i].uc_stack.ss_sp = malloc(STACK);
		contexts[i].uc_stack.ss_size = STACK;
		contexts[i].uc_link = &first;
		makecontext(&contexts[i], (void (*)(void))run, 1, i);
	}
	swapcontext(&first, &contexts[0]);
	(void)printf("%d %d %d\n", switches[0], switches[1], switches[2]);
	return 0;
}
