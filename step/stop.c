// SPDX-License-Identifier: Apache-2.0
/*
 * What each stop of a thread means, and how the thread continues.
 *
 * In user mode we step a thread. Before and in a system call it runs from one PTRACE_SYSCALL stop
 * to the next: those are no signals, while SIGTRAP at the end of a stepped system call would reset
 * a handler of SIGTRAP that the call has just blocked. A step ends in one of these ways (ptrace(2),
 * arch/x86/kernel of Linux 6.x; SIGTRAP's si_code in parentheses):
 *
 *	SIGTRAP (TRAP_TRACE)	the thread has executed an instruction, or one round of a rep
 *	SIGTRAP (SIGTRAP)	the thread is about to enter the handler of a signal that we have delivered
 *	SIGTRAP (TRAP_BRKPT)	a stepped system call is over, after a signal that the program ignores
 *	SIGTRAP (anything else)	a signal for the program, int3 included
 *	another signal		for the program; the thread has executed nothing since the last stop
 *	an event		in the middle of a system call, or without any instruction
 *
 * An event says nothing about the step. If one comes between an instruction and its SIGTRAP, the
 * SIGTRAP follows.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "common/base/io.h"
#include "common/base/procfs.h"
#include "step/step_internal.h"

#define PEEK_MAX 8

/* Whether the signal is pending for this thread alone; in doubt it is not. */
static bool is_pending(pid_t tid, int signal)
{
	struct __ptrace_peeksiginfo_args args = {.nr = PEEK_MAX};
	siginfo_t infos[PEEK_MAX];
	long n;

	while ((n = ptrace(PTRACE_PEEKSIGINFO, tid, &args, infos)) > 0) {
		for (long i = 0; i < n; i++)
			if (infos[i].si_signo == signal)
				return true;
		args.off += (uint64_t)n;
	}
	return false;
}

/* ---- continuing */

static void detach(struct step *s, struct step_thread *t)
{
	const pid_t tid = t->tid;
	const int signal = t->signal;

	if (step_insn_interrupt(s, t) < 0)
		s->stats.error = -EIO;
	trap_flag_restore(t);
	signal_mask_restore(t);
	step_thread_remove(s, t);
	/* Fails if the thread was killed; waitpid() then reports the end of an unknown thread. */
	(void)ptrace(PTRACE_DETACH, tid, NULL, signal);
}

static enum step_end limit_reached(const struct step *s)
{
	if (s->options.max_insns && s->stats.insns >= s->options.max_insns)
		return STEP_END_INSNS;
	return pt_encoder_store_full(s->store) ? STEP_END_BYTES : STEP_END_NONE;
}

static int take_signal(struct step_thread *t)
{
	const int signal = t->signal;

	t->signal = 0;
	return signal;
}

/* From any stop but a group stop. */
static int go_on(struct step *s, struct step_thread *t)
{
	int r;

	if (!s->ending && limit_reached(s))
		step_end(s, limit_reached(s), 0);
	if (s->ending) {
		detach(s, t);
		return 0;
	}
	/* It has not had its first stop: it may be anywhere. */
	if (!t->stream)
		return ptrace(PTRACE_CONT, t->tid, NULL, take_signal(t)) < 0 && errno != ESRCH
			       ? -errno
			       : 0;
	if (!t->in_kernel) {
		r = step_insn_prepare(s, t);
		if (r < 0)
			return r;
	}
	t->signal_sent = t->signal != 0;
	t->resumed = step_clock_now(&s->clock);
	t->state = STEP_THREAD_RUNS;
	if (t->refresh && !t->signal_sent) {
		/*
		 * PTRACE_CONT ends the kernel's stepping; the interrupt stops the thread before any
		 * instruction.
		 */
		t->refresh = false;
		(void)ptrace(PTRACE_INTERRUPT, t->tid, NULL, 0);
		return ptrace(PTRACE_CONT, t->tid, NULL, 0) < 0 && errno != ESRCH ? -errno : 0;
	}
	/* Only a step stops at the handler of the signal that we deliver. */
	if (!t->signal_sent && (t->in_kernel || step_insn_enters_kernel(t)))
		r = (int)ptrace(PTRACE_SYSCALL, t->tid, NULL, 0);
	else
		r = (int)ptrace(PTRACE_SINGLESTEP, t->tid, NULL, take_signal(t));
	/* ESRCH: it was killed meanwhile, and waitpid() reports that next. */
	return r < 0 && errno != ESRCH ? -errno : 0;
}

/* ---- SIGTRAP */

/* A system call begins, or is over, or is over for now and may be restarted. */
static int syscall_stop(struct step *s, struct step_thread *t)
{
	struct __ptrace_syscall_info info = {0};
	struct user_regs_struct regs;
	int r = 0;

	if (ptrace(PTRACE_GETREGS, t->tid, NULL, &regs) < 0 ||
	    ptrace(PTRACE_GET_SYSCALL_INFO, t->tid, (void *)sizeof(info), &info) < 0)
		return errno == ESRCH ? 0 : -errno;
	if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
		r = t->in_kernel ? step_insn_entered_again(s, t, regs.rip)
				 : step_insn_enter_kernel(s, t);
	} else {
		t->restarts = step_insn_restart_pending(&regs);
		if (!t->restarts)
			r = step_insn_leave_kernel(s, t, &regs);
	}
	return r < 0 ? r : go_on(s, t);
}

static int handler_entered(struct step *s, struct step_thread *t,
			   const struct user_regs_struct *regs)
{
	int r;

	s->stats.signals++;
	trap_flag_handler(t, regs);
	signal_mask_handler(t, regs);
	if (t->in_kernel)
		return step_insn_leave_kernel(s, t, regs);
	r = step_insn_interrupt(s, t);
	t->ip = regs->rip;
	t->regs = *regs;
	t->is64 = step_insn_is64(regs);
	return r;
}

static int trapped(struct step *s, struct step_thread *t)
{
	struct user_regs_struct regs;
	siginfo_t info = {.si_code = TRAP_TRACE};
	int r = 0;

	if (ptrace(PTRACE_GETREGS, t->tid, NULL, &regs) < 0)
		return errno == ESRCH ? 0 : -errno;
	/* All other cases can only be an executed instruction: save the system call. */
	if ((t->in_kernel || t->signal_sent || !t->known || regs.rip == t->ip ||
	     t->insn.kind == INSN_FAR_CALL) &&
	    ptrace(PTRACE_GETSIGINFO, t->tid, NULL, &info) < 0)
		return errno == ESRCH ? 0 : -errno;

	switch (info.si_code) {
	case SIGTRAP:
		r = handler_entered(s, t, &regs);
		break;
	case TRAP_BRKPT:
		if (t->in_kernel) {
			r = t->restarts ? step_insn_entered_again(s, t, regs.rip) : 0;
			/* Undecided: the next stop shows it. */
			t->restarts = step_insn_restart_pending(&regs);
			if (r == 0 && !t->restarts)
				r = step_insn_leave_kernel(s, t, &regs);
		} else if (regs.rip != t->ip) {
			r = step_insn_executed(s, t, &regs);
		}
		break;
	case TRAP_TRACE:
		if (t->in_kernel)
			r = step_insn_leave_kernel(s, t, &regs);
		else if (regs.rip != t->ip || (t->known && insn_is_branch(&t->insn)))
			r = step_insn_executed(s, t, &regs);
		break;
	default: /* the program's own; an int3 has been passed */
		if (!t->in_kernel && regs.rip != t->ip) {
			r = step_insn_interrupt(s, t);
			t->ip = regs.rip;
		}
		t->signal = SIGTRAP;
	}
	return r < 0 ? r : go_on(s, t);
}

/* ---- other signals */

static int signalled(struct step *s, struct step_thread *t, int signal)
{
	struct user_regs_struct regs;
	int r = 0;

	if (ptrace(PTRACE_GETREGS, t->tid, NULL, &regs) < 0)
		return errno == ESRCH ? 0 : -errno;
	/*
	 * seccomp answers a system call with a signal: the call's own SIGTRAP comes later, in the
	 * handler.
	 */
	if (!t->in_kernel && t->known && t->insn.is_syscall && regs.rip == t->ip + t->insn.length)
		r = step_insn_enter_kernel(s, t);
	if (r < 0)
		return r;
	t->signal = signal;
	return go_on(s, t);
}

/* ---- events */

/* A thread stops that we have not stepped before: begin where it is. */
static int first_stop(struct step *s, struct step_thread *t)
{
	struct user_regs_struct regs;
	int r;

	if (ptrace(PTRACE_GETREGS, t->tid, NULL, &regs) < 0)
		return errno == ESRCH ? 0 : -errno;
	r = step_thread_begin_stream(s, t);
	if (r < 0)
		return r;
	t->ip = regs.rip;
	t->regs = regs;
	t->is64 = step_insn_is64(&regs);
	t->own_tf = regs.eflags & STEP_FLAG_TRAP;
	t->in_kernel = t->restarts = t->mask_unknown = step_insn_restart_pending(&regs);
	if (!t->in_kernel)
		signal_mask_take(t);
	t->state = STEP_THREAD_RUNS;
	return 0;
}

/*
 * Adds a thread, and its process if that is new, as /proc has them. *ret is NULL if the thread is
 * gone already.
 */
static int meet(struct step *s, pid_t tid, struct step_thread *parent, struct step_thread **ret)
{
	struct proc_status status;
	struct step_process *process, *from = parent ? parent->process : NULL;
	_cleanup_close_ int dirfd = -1;
	struct step_thread *t;
	struct proc_stat stat;
	char path[32];
	pid_t ptid;
	int r;

	*ret = NULL;
	(void)snprintf(path, sizeof(path), "/proc/%d", (int)tid);
	dirfd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0)
		return errno == ENOENT ? 0 : -errno;
	r = proc_status_read(dirfd, &status);
	if (r == 0)
		r = proc_stat_read(dirfd, &stat);
	if (r < 0)
		return r == -ENOENT || r == -ESRCH ? 0 : r;
	process = step_process_find(s, status.tgid);
	if (!process) {
		if (!from)
			from = step_process_find(s, stat.ppid);
		r = step_process_add(s, status.tgid, from ? from->pid : stat.ppid,
				     from ? from->space : NULL, &process);
		if (r < 0)
			return r;
	}
	ptid = parent ? parent->tid : status.tgid == tid ? process->ppid : status.tgid;
	r = step_thread_add(s, process, tid, STEP_THREAD_NEW, &t);
	if (r == 0 && parent)
		t->trap_blocked = parent->trap_blocked;
	if (r == 0)
		r = sideband_fork(s->sideband, step_clock_now(&s->clock), process->pid,
				  status.tgid == tid ? process->ppid : process->pid, tid, ptid);
	if (r == 0)
		*ret = t;
	return r;
}

/* A thread or process that `parent` has created; its own first stop may have come before. */
static int meet_child(struct step *s, struct step_thread *parent, pid_t child)
{
	struct step_thread *t = step_thread_find(s, child);

	if (!t)
		return meet(s, child, parent, &t);
	t->trap_blocked |= parent->trap_blocked; /* unknown when its own stop came first */
	return 0;
}

/*
 * The process executes another program now. If a thread other than the leader called exec, it has
 * the leader's tid from here on, and the kernel does not report the leader's end.
 */
static int became(struct step *s, pid_t tid, struct step_thread **ret)
{
	struct step_thread *t = step_thread_find(s, tid), *former;
	unsigned long number = 0;
	int r = 0;

	if (ptrace(PTRACE_GETEVENTMSG, tid, NULL, &number) < 0)
		return errno == ESRCH ? 0 : -errno;
	former = number && (pid_t)number != tid ? step_thread_find(s, (pid_t)number) : NULL;
	if (former) {
		r = former->in_kernel ? 0 : step_insn_enter_kernel(s, former);
		if (t) {
			if (r == 0)
				r = step_insn_interrupt(s, t);
			step_thread_remove(s, t);
		}
		if (r == 0)
			r = sideband_exit(s->sideband, step_clock_now(&s->clock),
					  former->process->pid, former->process->ppid, former->tid,
					  former->tid);
		step_thread_end_stream(s, former);
		step_thread_rename(s, former, tid);
		t = former;
	} else if (t && t->stream && !t->in_kernel) {
		r = step_insn_enter_kernel(s, t);
	}
	if (!t || r < 0)
		return r;
	t->in_kernel = t->mask_unknown = true;
	t->restarts = t->known = t->own_tf = t->refresh = false;
	t->regs = (struct user_regs_struct){0};
	address_space_clear(t->process->space);
	r = step_thread_record_comm(s, t, true);
	if (r == 0)
		r = address_space_reread(t->process->space, tid);
	if (r == 0 && !t->stream)
		r = step_thread_begin_stream(s, t);
	*ret = t;
	return r;
}

static int forked(struct step *s, struct step_thread *t)
{
	unsigned long child = 0;
	int r = t->in_kernel || !t->stream ? 0 : step_insn_enter_kernel(s, t);

	if (r < 0)
		return r;
	if (ptrace(PTRACE_GETEVENTMSG, t->tid, NULL, &child) < 0)
		return errno == ESRCH ? 0 : -errno;
	return meet_child(s, t, (pid_t)child);
}

static int exiting(struct step *s, struct step_thread *t)
{
	struct user_regs_struct regs;
	int r = 0;

	/*
	 * A killed thread may have executed one more instruction; exit() is a system call that has
	 * begun.
	 */
	if (t->stream && !t->in_kernel && t->known &&
	    ptrace(PTRACE_GETREGS, t->tid, NULL, &regs) == 0 && regs.rip != t->ip) {
		if (t->insn.kind == INSN_FAR_CALL)
			r = step_insn_enter_kernel(s, t);
		else
			r = step_insn_executed(s, t, &regs);
	}
	if (r == 0)
		r = step_insn_interrupt(s, t);
	step_thread_end_stream(s, t);
	t->state = STEP_THREAD_LEAVES;
	(void)ptrace(PTRACE_CONT, t->tid, NULL, 0);
	return r;
}

static bool is_stop_signal(int signal)
{
	return signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

static int event_stop(struct step *s, struct step_thread *t, int signal)
{
	int r = 0;

	if (t->state == STEP_THREAD_COMMAND)
		return go_on(s, t); /* before exec */
	if (t->state == STEP_THREAD_NEW)
		r = first_stop(s, t);
	if (r < 0)
		return r;
	if (s->ending && is_pending(t->tid, SIGTRAP)) {
		/*
		 * SIGTRAP of the last step, which would kill the program if we detached now. It
		 * stops the thread before it executes anything.
		 */
		return ptrace(PTRACE_CONT, t->tid, NULL, 0) < 0 && errno != ESRCH ? -errno : 0;
	}
	if (is_stop_signal(signal) && !s->ending) {
		t->state = STEP_THREAD_LISTENS;
		return ptrace(PTRACE_LISTEN, t->tid, NULL, 0) < 0 && errno != ESRCH ? -errno : 0;
	}
	return go_on(s, t);
}

static int event(struct step *s, struct step_thread *t, int number, int signal)
{
	int r;

	switch (number) {
	case PTRACE_EVENT_STOP:
		return event_stop(s, t, signal);
	case PTRACE_EVENT_FORK:
	case PTRACE_EVENT_VFORK:
	case PTRACE_EVENT_CLONE:
		r = forked(s, t);
		break;
	case PTRACE_EVENT_EXEC:
		r = became(s, t->tid, &t);
		break;
	case PTRACE_EVENT_EXIT:
		return exiting(s, t);
	default:
		r = 0;
	}
	return r < 0 ? r : go_on(s, t);
}

/* ---- */

static int gone(struct step *s, struct step_thread *t)
{
	struct step_process *p = t->process;
	int r = step_insn_interrupt(s, t);

	if (r == 0)
		r = sideband_exit(s->sideband, step_clock_now(&s->clock), p->pid, p->ppid, t->tid,
				  t->tid);
	step_thread_remove(s, t);
	return r;
}

static int stopped(struct step *s, pid_t tid, int status)
{
	const int number = status >> 16 & 0xff, signal = WSTOPSIG(status);
	struct step_thread *t = step_thread_find(s, tid);
	int r;

	if (!WIFSTOPPED(status))
		return t ? gone(s, t) : 0;
	if (!t && number == PTRACE_EVENT_EXEC) {
		r = became(s, tid, &t); /* the leader had exited before */
		return r < 0 || !t ? r : go_on(s, t);
	}
	if (!t) {
		r = meet(s, tid, NULL, &t);
		if (r < 0)
			return r;
	}
	/* There are too many threads, or /proc does not have this one: it runs on freely. */
	if (!t || s->n_threads > STEP_MAX_THREADS) {
		s->stats.threads_not_recorded++;
		if (t)
			step_thread_remove(s, t);
		(void)ptrace(PTRACE_DETACH, tid, NULL, number ? 0 : signal);
		return 0;
	}
	if (t->state == STEP_THREAD_LEAVES) {
		(void)ptrace(PTRACE_CONT, tid, NULL, 0);
		return 0;
	}
	if (number)
		return event(s, t, number, signal);
	if (t->state == STEP_THREAD_COMMAND || t->state == STEP_THREAD_NEW) {
		t->signal = signal;
		return go_on(s, t);
	}
	if (signal == (SIGTRAP | 0x80))
		return syscall_stop(s, t);
	return signal == SIGTRAP ? trapped(s, t) : signalled(s, t, signal);
}

void step_stop_handle(struct step *s, pid_t tid, int status)
{
	int r = stopped(s, tid, status);

	if (r == 0) {
		/* The thread runs already; it detaches at its next stop. */
		r = s->options.ring ? ring_trim(s) : 0;
		if (r < 0)
			step_end(s, r == -EFBIG ? STEP_END_LIMIT : STEP_END_ERROR, r);
		return;
	}
	step_end(s, r == -EFBIG || r == -E2BIG ? STEP_END_LIMIT : STEP_END_ERROR, r);
	/* Whatever failed, the thread must not stay stopped. */
	if (WIFSTOPPED(status)) {
		struct step_thread *t = step_thread_find(s, tid);

		if (t && t->state != STEP_THREAD_LEAVES) {
			t->signal = 0;
			detach(s, t);
		}
	}
}
