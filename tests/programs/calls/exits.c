// SPDX-License-Identifier: Apache-2.0
/*
 * An interpreter that runs generated code, as a JIT makes it: it jumps there, and the code jumps back into its middle, by itself or by an
 * exit that puts the stack pointer back. Interpreters call C functions that run interpreters.
 */
#include <string.h>
#include <sys/mman.h>

#include "calllog.h"

void interpret(int depth, int n);
void leave(void);
extern char again[];

void *generated;
void *frames[16];
long n_frames;

void host(int depth, int n)
{
	low(n);
	if (depth)
		interpret(depth - 1, 3);
	high(n);
}

void after(int n)
{
	high(n);
}

void on_exit_of_code(void)
{
	low(9);
}

static void helper(void)
{
	high(4);
}

__asm__(".text\n"
	".type interpret,@function\n"
	"interpret: push %rbx; push %r12; sub $8,%rsp\n"
	"	mov n_frames(%rip),%rax; mov %rsp,frames(,%rax,8); incq n_frames(%rip)\n"
	"	mov %edi,%r12d; mov %esi,%ebx\n"
	"1:	test %ebx,%ebx; je 2f\n"
	"	dec %ebx; mov %r12d,%edi; mov %ebx,%esi; call host\n"
	"	jmp *generated(%rip)\n"
	"again:	mov %ebx,%edi; call after; jmp 1b\n"
	"2:	decq n_frames(%rip); add $8,%rsp; pop %r12; pop %rbx; ret\n"
	".size interpret,.-interpret\n"
	".type leave,@function\n"
	"leave:	push %rax; push %rcx; call on_exit_of_code\n"
	"	mov n_frames(%rip),%rax; mov frames-8(,%rax,8),%rsp; jmp again\n"
	".size leave,.-leave\n");

/* Calls the helper with that much on the stack, and jumps. */
static unsigned char *generate(unsigned char *p, unsigned char room, void *to)
{
	void *h = (void *)helper;

	memcpy(p, "\x48\x83\xec", 3), p[3] = room, p += 4;	/* sub $room,%rsp */
	memcpy(p, "\x48\xb8", 2), memcpy(p + 2, &h, 8), p += 10; /* mov $helper,%rax */
	memcpy(p, "\xff\xd0", 2), p += 2;			/* call *%rax */
	memcpy(p, "\x48\xb8", 2), memcpy(p + 2, &to, 8), p += 10;
	memcpy(p, "\xff\xe0", 2);				/* jmp *%rax */
	return p + 2;
}

int main(void)
{
	unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *other;

	if (code == MAP_FAILED)
		return 1;
	other = generate(code, 32, (void *)leave);
	generate(other, 0, again);
	for (int i = 0; i < 3; i++) {
		generated = i & 1 ? other : code;
		interpret(i, 3);
		low(i);
	}
	return 0;
}
