// SPDX-License-Identifier: Apache-2.0
/* Calls that are none, and returns that are jumps: by hand, as libraries for speed and loaders of code have them. */
#include "calllog.h"

void run_low(int x)
{
	low(x);
}

static void target(int x)
{
	high(x);
}

void by_push_and_ret(void (*f)(int), int x);
void by_push_and_jump(void (*f)(int), int x);
void inside_by_push_and_ret(int x);
void by_pop_and_jump(int x);
void by_call_and_pop(int x);
void without_its_caller(int x);

__asm__(".text\n"
	".type by_push_and_ret,@function\n"
	"by_push_and_ret: mov %rdi,%rax; mov %esi,%edi; push %rax; ret\n"
	".size by_push_and_ret,.-by_push_and_ret\n"
	".type by_push_and_jump,@function\n"
	"by_push_and_jump: push %rbx; mov %rdi,%rax; mov %esi,%ebx; mov %esi,%edi; lea 1f(%rip),%rcx; push %rcx; jmp *%rax\n"
	"1:	mov %ebx,%edi; call run_low; pop %rbx; ret\n"
	".size by_push_and_jump,.-by_push_and_jump\n"
	".type inside_by_push_and_ret,@function\n"
	"inside_by_push_and_ret: push %rbx; mov %edi,%ebx; call run_low; lea 1f(%rip),%rax; push %rax; ret\n"
	"	ud2\n"
	"1:	mov %ebx,%edi; call run_low; pop %rbx; ret\n"
	".size inside_by_push_and_ret,.-inside_by_push_and_ret\n"
	".type by_pop_and_jump,@function\n"
	"by_pop_and_jump: sub $8,%rsp; call run_low; add $8,%rsp; pop %rcx; jmp *%rcx\n"
	".size by_pop_and_jump,.-by_pop_and_jump\n"
	".type by_call_and_pop,@function\n"
	"by_call_and_pop: call 1f\n"
	"1:	pop %rax; sub $8,%rsp; call run_low; add $8,%rsp; ret\n"
	".size by_call_and_pop,.-by_call_and_pop\n"
	".type drop,@function\n"
	"drop:	call run_low; add $8,%rsp; ret\n"
	".size drop,.-drop\n"
	".type without_its_caller,@function\n"
	"without_its_caller: call drop; ud2\n"
	".size without_its_caller,.-without_its_caller\n");

static void nest(int depth)
{
	by_push_and_ret(target, depth);
	low(1);
	by_push_and_jump(target, depth);
	inside_by_push_and_ret(depth);
	by_pop_and_jump(depth);
	high(2);
	without_its_caller(depth);
	by_call_and_pop(depth);
	low(3);
	if (depth)
		nest(depth - 1);
	high(depth);
}

int main(void)
{
	for (int i = 0; i < 4; i++)
		nest(i);
	return 0;
}
