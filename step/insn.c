// SPDX-License-Identifier: Apache-2.0
/*
 * What a thread executes, as packets: the next instruction, where it led, and the ways into and out
 * of the kernel.
 */
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>

#include "step/step_internal.h"

#define USER_CS32 0x23
#define FLAG_CARRY 0x1u
#define FLAG_PARITY 0x4u
#define FLAG_ZERO 0x40u
#define FLAG_SIGN 0x80u
#define FLAG_OVERFLOW 0x800u
/*
 * What a system call returns inside the kernel when it may begin again (include/linux/errno.h
 * there).
 */
#define ERESTARTSYS 512
#define ENOIOCTLCMD 515
#define ERESTART_RESTARTBLOCK 516
/* syscall, int 0x80 and sysenter */
#define SYSCALL_BYTES 2

bool step_insn_is64(const struct user_regs_struct *regs)
{
	return regs->cs != USER_CS32;
}

bool step_insn_restart_pending(const struct user_regs_struct *regs)
{
	const bool is64 = step_insn_is64(regs);
	const int64_t nr = is64 ? (int64_t)regs->orig_rax : (int32_t)regs->orig_rax;
	const int64_t result = is64 ? (int64_t)regs->rax : (int32_t)regs->rax;

	return nr >= 0 && result <= -ERESTARTSYS && result >= -ERESTART_RESTARTBLOCK &&
	       result != -ENOIOCTLCMD;
}

/* ---- bytes of an instruction; struct insn does not have these details */

static bool is_prefix(uint8_t b, bool is64)
{
	switch (b) {
	case 0x26:
	case 0x2e:
	case 0x36:
	case 0x3e:
	case 0x64:
	case 0x65:
	case 0x66:
	case 0x67:
	case 0xf0:
	case 0xf2:
	case 0xf3:
		return true;
	default:
		return is64 && (b & 0xf0) == 0x40;
	}
}

static unsigned int opcode_at(const struct step_thread *t)
{
	unsigned int i = 0;

	while (i + 1u < t->insn.length && is_prefix(t->code[i], t->is64))
		i++;
	return i;
}

/* A far call in user mode; the other INSN_FAR_CALL are int, syscall, vmcall. */
static bool is_far_branch(const struct step_thread *t)
{
	const uint8_t opcode = t->code[opcode_at(t)];

	return opcode == 0xff || opcode == 0x9a;
}

bool step_insn_enters_kernel(const struct step_thread *t)
{
	return t->known && t->insn.kind == INSN_FAR_CALL && !is_far_branch(t) &&
	       (t->insn.is_syscall || t->code[opcode_at(t)] == 0xcd);
}

static bool flag_condition(uint8_t code, uint64_t flags)
{
	const bool less = !(flags & FLAG_SIGN) != !(flags & FLAG_OVERFLOW);
	bool holds = false;

	switch (code >> 1 & 7) {
	case 0:
		holds = flags & FLAG_OVERFLOW;
		break;
	case 1:
		holds = flags & FLAG_CARRY;
		break;
	case 2:
		holds = flags & FLAG_ZERO;
		break;
	case 3:
		holds = flags & (FLAG_CARRY | FLAG_ZERO);
		break;
	case 4:
		holds = flags & FLAG_SIGN;
		break;
	case 5:
		holds = flags & FLAG_PARITY;
		break;
	case 6:
		holds = less;
		break;
	default:
		holds = less || flags & FLAG_ZERO;
	}
	return holds != (code & 1);
}

/*
 * Whether a conditional branch was taken, by flags and count; for branches whose both ways lead to
 * the same place.
 */
static bool was_taken(const struct step_thread *t, const struct user_regs_struct *regs)
{
	const unsigned int at = opcode_at(t);
	const uint8_t opcode = t->code[at] == 0x0f ? t->code[at + 1] : t->code[at];
	uint64_t count = regs->rcx;

	if (opcode < 0xe0 || opcode > 0xe3)
		return flag_condition(opcode, regs->eflags);
	for (unsigned int i = 0; i < at; i++)
		if (t->code[i] == 0x67)
			count &= t->is64 ? UINT32_MAX : UINT16_MAX;
	if (!t->is64)
		count &= UINT32_MAX;
	switch (opcode) {
	case 0xe0:
		return count != 0 && !(regs->eflags & FLAG_ZERO);
	case 0xe1:
		return count != 0 && regs->eflags & FLAG_ZERO;
	case 0xe2:
		return count != 0;
	default:
		return count == 0;
	}
}

uint8_t step_insn_opcode(const struct step_thread *t)
{
	return t->code[opcode_at(t)];
}

/* ---- packets */

static int note(struct step *s, struct step_thread *t)
{
	s->stats.insns++;
	t->since_time++;
	return insn_log_add(&s->log, t->tid, t->ip);
}

static int begin(struct step_thread *t, uint64_t ticks)
{
	int r = pt_encoder_begin(t->stream->pt, ticks, t->ip, t->is64);

	t->on = true;
	t->epoch = address_space_epoch(t->process->space);
	t->since_time = 0;
	return r;
}

int step_insn_interrupt(struct step *s, struct step_thread *t)
{
	if (!t->on)
		return 0;
	t->on = false;
	return pt_encoder_interrupt(t->stream->pt, t->ip);
}

int step_insn_pause(struct step *s, struct step_thread *t)
{
	int r = 0;

	t->paused = t->on;
	if (t->on)
		r = pt_encoder_time(t->stream->pt, t->resumed);
	if (r == 0)
		r = step_insn_interrupt(s, t);
	if (t->stream)
		pt_encoder_renew(t->stream->pt);
	return r;
}

int step_insn_resume(struct step *s, struct step_thread *t)
{
	if (!t->paused)
		return 0;
	t->paused = false;
	t->resumed = step_clock_now(&s->clock);
	return begin(t, t->resumed);
}

int step_insn_pause_all(struct step *s)
{
	struct step_thread *t;
	int r = 0;

	for (size_t i = 0; i < STEP_HASH; i++)
		LIST_FOREACH(t, &s->threads[i], in_hash)
			if (r == 0)
				r = step_insn_pause(s, t);
	return r;
}

int step_insn_resume_all(struct step *s)
{
	struct step_thread *t;
	int r = 0;

	for (size_t i = 0; i < STEP_HASH; i++)
		LIST_FOREACH(t, &s->threads[i], in_hash)
			if (r == 0)
				r = step_insn_resume(s, t);
	return r;
}

int step_insn_prepare(struct step *s, struct step_thread *t)
{
	int r = address_space_fetch(t->process->space, t->tid, t->ip, t->is64, t->code, &t->insn);

	if (r < 0)
		return r;
	t->known = r == 0;
	if (!t->known)
		return step_insn_interrupt(s, t);
	/*
	 * Some thread has mapped code: packets that run it must begin after the record of the
	 * mapping.
	 */
	if (t->on && t->epoch != address_space_epoch(t->process->space)) {
		r = step_insn_interrupt(s, t);
		if (r < 0)
			return r;
	}
	if (!t->on)
		return begin(t, step_clock_now(&s->clock));
	if (pt_encoder_sync_due(t->stream->pt)) {
		t->since_time = 0;
		return pt_encoder_sync(t->stream->pt, step_clock_now(&s->clock), t->ip);
	}
	if (t->since_time >= s->options.time_insns) {
		t->since_time = 0;
		return pt_encoder_time(t->stream->pt, step_clock_now(&s->clock));
	}
	return 0;
}

int step_insn_enter_kernel(struct step *s, struct step_thread *t)
{
	int r = 0;

	t->in_kernel = true;
	t->restarts = false;
	s->stats.syscalls++;
	if (!t->on)
		return 0;
	if (!t->insn.is_syscall) /* int 0x80 is an interrupt: the trace ends before it */
		return step_insn_interrupt(s, t);
	r = note(s, t);
	if (r == 0)
		r = pt_encoder_time(t->stream->pt, t->resumed);
	if (r == 0)
		r = pt_encoder_end(t->stream->pt);
	t->on = false;
	return r;
}

/* System calls that may map code, or rename the thread. */
static int after_syscall(struct step *s, struct step_thread *t, const struct user_regs_struct *regs)
{
	bool maps = false;

	if (step_insn_is64(regs)) {
		switch (regs->orig_rax) {
		case SYS_mmap:
		case SYS_mprotect:
		case SYS_pkey_mprotect:
			maps = regs->rdx & 4; /* PROT_EXEC */
			break;
		case SYS_mremap:
		case SYS_shmat:
		case SYS_remap_file_pages:
			maps = true;
			break;
		case SYS_prctl:
			if (regs->rdi == 15) /* PR_SET_NAME */
				return step_thread_record_comm(s, t, false);
			break;
		default:
			break;
		}
	} else {
		switch ((uint32_t)regs->orig_rax) {
		case 125: /* mprotect */
		case 192: /* mmap2 */
		case 380: /* pkey_mprotect */
			maps = regs->rdx & 4;
			break;
		case 90:  /* mmap */
		case 117: /* ipc */
		case 163: /* mremap */
		case 257: /* remap_file_pages */
		case 397: /* shmat */
			maps = true;
			break;
		case 172: /* prctl */
			if ((uint32_t)regs->rbx == 15)
				return step_thread_record_comm(s, t, false);
			break;
		default:
			break;
		}
	}
	return maps ? address_space_reread(t->process->space, t->tid) : 0;
}

int step_insn_entered_again(struct step *s, struct step_thread *t, uint64_t ip)
{
	int r;

	t->ip = ip - SYSCALL_BYTES;
	r = address_space_fetch(t->process->space, t->tid, t->ip, t->is64, t->code, &t->insn);
	t->known = r == 0;
	if (r != 0 || t->insn.kind != INSN_FAR_CALL)
		return r < 0 ? r : 0;
	r = begin(t, t->resumed);
	return r < 0 ? r : step_insn_enter_kernel(s, t);
}

int step_insn_leave_kernel(struct step *s, struct step_thread *t,
			   const struct user_regs_struct *regs)
{
	trap_flag_syscall(t, regs);
	signal_mask_syscall(t, regs);
	t->in_kernel = t->restarts = false;
	t->ip = regs->rip;
	t->regs = *regs;
	t->is64 = step_insn_is64(regs);
	return after_syscall(s, t, regs);
}

/* An instruction led to where it cannot lead: interrupt the trace, and begin again there. */
static int went_elsewhere(struct step *s, struct step_thread *t)
{
	int r = 0;

	s->stats.unexpected_jumps++;
	if (t->insn.kind == INSN_OTHER) {
		r = note(s, t);
		t->ip += t->insn.length;
	}
	return r < 0 ? r : step_insn_interrupt(s, t);
}

/*
 * "mov ..., %ss" and "pop %ss": the processor executes the instruction behind it, too, before it
 * traps, so that both may load the stack.
 */
static bool holds_trap(const struct step_thread *t)
{
	const unsigned int at = opcode_at(t);

	if (!t->known || t->insn.kind != INSN_OTHER)
		return false;
	return (t->code[at] == 0x8e && (t->code[at + 1] >> 3 & 7) == 2) ||
	       (!t->is64 && t->code[at] == 0x17);
}

/*
 * The first of two instructions that were executed at once. The second one was not looked at
 * before.
 */
static int executed_first(struct step *s, struct step_thread *t)
{
	int r = pt_encoder_retire(t->stream->pt, &t->insn, t->ip, t->ip + t->insn.length, false,
				  t->is64);

	if (r == 0)
		r = note(s, t);
	if (r < 0)
		return r;
	t->ip += t->insn.length;
	r = address_space_fetch(t->process->space, t->tid, t->ip, t->is64, t->code, &t->insn);
	t->known = r == 0;
	return r > 0 ? step_insn_interrupt(s, t) : r;
}

int step_insn_executed(struct step *s, struct step_thread *t, const struct user_regs_struct *regs)
{
	int r = 0;

	if (holds_trap(t) && regs->rip != t->ip + t->insn.length)
		r = executed_first(s, t);
	if (r < 0)
		return r;
	if (!t->known) {
		r = 0;
	} else if (t->insn.kind == INSN_FAR_CALL && !is_far_branch(t)) {
		r = step_insn_enter_kernel(s, t);
		if (r < 0)
			return r;
		t->restarts = step_insn_restart_pending(regs);
		return t->restarts ? 0 : step_insn_leave_kernel(s, t, regs);
	} else {
		const bool taken = t->insn.kind == INSN_COND && t->insn.offset == 0 &&
				   was_taken(t, regs);

		r = pt_encoder_retire(t->stream->pt, &t->insn, t->ip, regs->rip, taken,
				      step_insn_is64(regs));
		if (r == PT_ENCODER_E_UNEXPECTED)
			r = went_elsewhere(s, t);
		else if (r == 0)
			r = note(s, t);
		/* The program has set the trap flag: this SIGTRAP is for the program, too. */
		if (t->own_tf)
			t->signal = SIGTRAP;
		trap_flag_executed(t, regs);
	}
	t->ip = regs->rip;
	t->regs = *regs;
	t->is64 = step_insn_is64(regs);
	return r;
}
