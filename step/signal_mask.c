// SPDX-License-Identifier: Apache-2.0
/*
 * SIGTRAP in a thread's signal mask. After each instruction the kernel forces SIGTRAP on a stepped
 * thread. If the thread blocked it, the kernel would unblock it and reset its handler to the
 * default, and the program's next SIGTRAP would kill it. So SIGTRAP is never blocked while we step.
 * Where the program blocks it, we remember that, show it when the program reads its mask, and block
 * it when we detach. Programs that block all signals do this without knowing (pthread_create,
 * raise, any handler with a full mask).
 */
#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "step/step_internal.h"

#define TRAP_BIT (UINT64_C(1) << (SIGTRAP - 1))
/* Where the mask is in the ucontext of a signal frame (arch/x86/include/uapi/asm/ucontext.h). */
#define FRAME_MASK 296
enum { I386_SIGPROCMASK = 126, I386_RT_SIGPROCMASK = 175 };

/* Returns whether it was blocked. */
static bool unblock(struct step_thread *t)
{
	uint64_t mask;

	if (ptrace(PTRACE_GETSIGMASK, t->tid, (void *)sizeof(mask), &mask) < 0 ||
	    !(mask & TRAP_BIT))
		return false;
	mask &= ~TRAP_BIT;
	(void)ptrace(PTRACE_SETSIGMASK, t->tid, (void *)sizeof(mask), &mask);
	return true;
}

/* The byte of a mask in the program's memory that has the bit. */
static bool mask_byte(pid_t tid, uint64_t address, uint8_t *b)
{
	struct iovec local = {b, 1}, remote = {(void *)(uintptr_t)address, 1};

	return address && process_vm_readv(tid, &local, 1, &remote, 1, 0) == 1;
}

static void show(pid_t tid, uint64_t address)
{
	uint8_t b;
	struct iovec local = {&b, 1}, remote = {(void *)(uintptr_t)address, 1};

	if (!mask_byte(tid, address, &b))
		return;
	b |= TRAP_BIT;
	(void)process_vm_writev(tid, &local, 1, &remote, 1, 0);
}

void signal_mask_take(struct step_thread *t)
{
	t->mask_unknown = false;
	t->trap_blocked |= unblock(t);
}

static void after_sigprocmask(struct step_thread *t, uint64_t how, uint64_t set, uint64_t old)
{
	const bool before = t->trap_blocked;
	uint8_t b;

	switch (how) {
	case SIG_BLOCK:
		t->trap_blocked |= unblock(t);
		break;
	case SIG_UNBLOCK:
		if (mask_byte(t->tid, set, &b) && b & TRAP_BIT)
			t->trap_blocked = false;
		break;
	default:
		if (set)
			t->trap_blocked = unblock(t);
	}
	if (before)
		show(t->tid, old);
}

void signal_mask_syscall(struct step_thread *t, const struct user_regs_struct *regs)
{
	if (t->mask_unknown)
		signal_mask_take(t);
	if (!t->is64) {
		switch ((uint32_t)regs->orig_rax) {
		case I386_SIGPROCMASK:
		case I386_RT_SIGPROCMASK:
			if ((int32_t)regs->rax == 0)
				after_sigprocmask(t, (uint32_t)regs->rbx, (uint32_t)regs->rcx,
						  (uint32_t)regs->rdx);
			return;
		default:
			break;
		}
	} else if (regs->orig_rax == SYS_rt_sigprocmask) {
		if (regs->rax == 0)
			after_sigprocmask(t, regs->rdi, regs->rsi, regs->rdx);
		return;
	}
	/* sigreturn, whose number is gone: the mask is that of the signal frame. */
	if ((int32_t)regs->orig_rax == -1)
		t->trap_blocked = unblock(t);
}

void signal_mask_handler(struct step_thread *t, const struct user_regs_struct *regs)
{
	if (t->trap_blocked && step_insn_is64(regs))
		show(t->tid, regs->rdx + FRAME_MASK);
	t->mask_unknown = false;
	t->trap_blocked |= unblock(t);
}

void signal_mask_restore(struct step_thread *t)
{
	uint64_t mask;

	if (!t->trap_blocked || ptrace(PTRACE_GETSIGMASK, t->tid, (void *)sizeof(mask), &mask) < 0)
		return;
	mask |= TRAP_BIT;
	(void)ptrace(PTRACE_SETSIGMASK, t->tid, (void *)sizeof(mask), &mask);
}
