// SPDX-License-Identifier: Apache-2.0
/*
 * The processor's trap flag makes it step. The program must not find it where it did not set it: in
 * what pushf stores, in r11 after a system call, in the frame of a signal, in the registers when we
 * have detached. A program that sets the flag itself gets the SIGTRAP that it asked for.
 *
 * The kernel remembers whether the flag is ours (TIF_FORCED_TF), and hides it then. Before a popf
 * or iret it forgets that, and it does not remember again while one step follows the other
 * (enable_single_step in arch/x86/kernel/step.c). So after each of these instructions we end the
 * stepping once, without executing anything ("refresh").
 */
#include <errno.h>
#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "step/step_internal.h"

/*
 * Where the flags are in the ucontext of a signal frame
 * (arch/x86/include/uapi/asm/{ucontext,sigcontext}.h).
 */
#define FRAME_FLAGS 176
#define FRAME_FLAGS_32 84
enum { PUSHF = 0x9c, POPF = 0x9d, IRET = 0xcf };

static void clear_in_memory(pid_t tid, uint64_t flags_at)
{
	uint8_t b;
	struct iovec local = {&b, 1}, remote = {(void *)(uintptr_t)(flags_at + 1), 1};

	if (process_vm_readv(tid, &local, 1, &remote, 1, 0) != 1 || !(b & (STEP_FLAG_TRAP >> 8)))
		return;
	b &= (uint8_t)~(STEP_FLAG_TRAP >> 8);
	(void)process_vm_writev(tid, &local, 1, &remote, 1, 0);
}

void trap_flag_executed(struct step_thread *t, const struct user_regs_struct *regs)
{
	if (t->insn.kind != INSN_OTHER && t->insn.kind != INSN_FAR_RET)
		return;
	switch (step_insn_opcode(t)) {
	case PUSHF:
		if (!t->own_tf)
			clear_in_memory(t->tid, regs->rsp);
		break;
	case POPF:
	case IRET:
		t->own_tf = regs->eflags & STEP_FLAG_TRAP;
		t->refresh = true;
		break;
	default:
		break;
	}
}

void trap_flag_syscall(struct step_thread *t, const struct user_regs_struct *regs)
{
	/* sigreturn: the number of the system call is gone. */
	if ((int32_t)regs->orig_rax == -1) {
		t->own_tf = regs->eflags & STEP_FLAG_TRAP;
		return;
	}
	/*
	 * A SYSCALL that was stepped, because of a signal that the program ignores, has stored the
	 * flags.
	 */
	if (t->is64 && !t->own_tf && regs->r11 & STEP_FLAG_TRAP)
		(void)ptrace(PTRACE_POKEUSER, t->tid, offsetof(struct user_regs_struct, r11),
			     regs->r11 & ~(unsigned long long)STEP_FLAG_TRAP);
}

void trap_flag_handler(struct step_thread *t, const struct user_regs_struct *regs)
{
	if (!t->own_tf)
		clear_in_memory(t->tid, step_insn_is64(regs) ? regs->rdx + FRAME_FLAGS
							     : regs->rcx + FRAME_FLAGS_32);
	t->own_tf = t->refresh = false;
}

void trap_flag_restore(const struct step_thread *t)
{
	struct user_regs_struct regs;

	if (t->own_tf || ptrace(PTRACE_GETREGS, t->tid, NULL, &regs) < 0 ||
	    !(regs.eflags & STEP_FLAG_TRAP))
		return;
	regs.eflags &= ~(unsigned long long)STEP_FLAG_TRAP;
	(void)ptrace(PTRACE_SETREGS, t->tid, NULL, &regs);
}
