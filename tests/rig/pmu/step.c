// SPDX-License-Identifier: GPL-2.0
/*
 * Which instruction of which task retires. The notifier of a return to user mode runs last, after
 * signals, so it knows the instruction that comes next: it keeps its address and its bytes, and sets
 * EFLAGS.TF. If #DB is the next entry to the kernel the instruction has retired. If anything else is,
 * it has not, except for SYSCALL, which masks TF. The registers and stacks of the task must not show
 * that TF is set, and those who step it themselves (ptrace, uprobes) go first.
 */
#include <linux/kdebug.h>
#include <linux/module.h>
#include <linux/ptrace.h>
#include <linux/sched/task_stack.h>
#include <linux/tracepoint.h>
#include <linux/uaccess.h>
#include <linux/uprobes.h>
#include <asm/debugreg.h>
#include <asm/syscall.h>
#include <asm/trapnr.h>

#include "softpt.h"

static struct tracepoint *sched_switch;

static char spare[TASK_COMM_LEN];
module_param_string(spare, spare, sizeof(spare), 0644);
MODULE_PARM_DESC(spare, "do not step processes whose name begins like this; empty: step all");

/* Whoever traces a whole machine would otherwise be traced while it reads the trace, a thousand times as slow as it is. */
static bool is_spared(const struct task_struct *task)
{
	size_t n = strcspn(spare, "\n");

	return n && !strncmp(task->group_leader->comm, spare, n);
}

/* A uprobe steps a copy of its instruction: TF and #DB are its own until that is done. */
static bool uprobe_steps(const struct task_struct *task)
{
	return task->utask && task->utask->active_uprobe;
}

static void clear_trap_flag(struct task_struct *task)
{
	if (!uprobe_steps(task))
		task_pt_regs(task)->flags &= ~X86_EFLAGS_TF;
}

static void forget_task(struct step *step)
{
	step->task = NULL;
	step->at = STEP_NOWHERE;
}

/* The task has entered the kernel by the instruction at next_ip, and not by #DB. */
static bool entered_by_syscall(const struct step *step, const struct pt_regs *regs)
{
	if (branch_classify(step->code, step->n_code).kind != BRANCH_SYSCALL)
		return false;
	/* -1: by an interrupt or a fault; rt_sigreturn leaves it too */
	return (long)regs->orig_ax != -1 || step->ax == __NR_rt_sigreturn;
}

/* The user code of TASK does not go on at next_ip for now: something else happened. */
static void stretch_end(struct softpt_cpu *cpu, struct task_struct *task)
{
	struct step *step = &cpu->step;

	if (step->at == STEP_USER && entered_by_syscall(step, task_pt_regs(task))) {
		cpu->counts.steps++;
		trace_syscall(cpu, step->next_ip);
	} else if (step->at != STEP_NOWHERE) {
		trace_interrupted(cpu, step->next_ip);
	}
	forget_task(step);
}

/* The bytes at the instruction; fewer where the next page is not there. */
static void fetch_code(struct softpt_cpu *cpu, u64 ip)
{
	struct step *step = &cpu->step;
	unsigned int in_page = min_t(u64, PAGE_SIZE - (ip & ~PAGE_MASK), sizeof(step->code));

	step->n_code = 0;
	if (copy_from_user_nofault(step->code, (void __user *)ip, in_page)) {
		cpu->counts.unfetched++;
		return;
	}
	step->n_code = in_page;
	if (in_page < sizeof(step->code) && !copy_from_user_nofault(step->code + in_page,
				(void __user *)(ip + in_page), sizeof(step->code) - in_page))
		step->n_code = sizeof(step->code);
}

static void on_user_return(struct user_return_notifier *notifier)
{
	struct softpt_cpu *cpu = container_of(notifier, struct softpt_cpu, step.on_return);
	struct pt_regs *regs = task_pt_regs(current);
	struct step *step = &cpu->step;

	if (!cpu->event || (current->flags & PF_KTHREAD) || !user_64bit_mode(regs))
		return;
	if (is_spared(current)) {
		step_pause(cpu);
		return;
	}
	if (WARN_ONCE(step->task && step->task != current, "softpt: a switch went unseen\n")) {
		trace_break(cpu);
		forget_task(step);
	}
	if (step->at != STEP_RETIRED || regs->ip != step->next_ip || uprobe_steps(current))
		stretch_end(cpu, current);
	trace_continue(cpu, regs->ip);
	if (!aux_ring_is_open(&cpu->ring)) {
		clear_trap_flag(current);
		forget_task(step);
		return;
	}
	step->task = current;
	step->at = STEP_USER;
	step->next_ip = regs->ip;
	step->ax = regs->ax;
	fetch_code(cpu, regs->ip);
	if (!uprobe_steps(current))
		regs->flags |= X86_EFLAGS_TF;
}

/* PUSHF has just shown TF to the task. */
static void hide_pushed_flag(const struct pt_regs *regs)
{
	u64 flags;

	if (copy_from_user_nofault(&flags, (void __user *)regs->sp, sizeof(flags)))
		return;
	flags &= ~X86_EFLAGS_TF;
	if (copy_to_user_nofault((void __user *)regs->sp, &flags, sizeof(flags)))
		return;
}

static void insn_retired(struct softpt_cpu *cpu, struct pt_regs *regs)
{
	struct step *step = &cpu->step;

	cpu->counts.steps++;
	if (insn_pushes_flags(step->code, step->n_code))
		hide_pushed_flag(regs);
	trace_retired(cpu, step->next_ip, regs);
	step->at = STEP_RETIRED;
	step->next_ip = regs->ip;
	regs->flags &= ~X86_EFLAGS_TF;
}

static bool is_stepped(const struct softpt_cpu *cpu)
{
	return cpu->event && cpu->step.task == current;
}

static int on_debug(struct softpt_cpu *cpu, struct pt_regs *regs, unsigned long *dr6)
{
	if (!(*dr6 & DR_STEP) || uprobe_steps(current))
		return NOTIFY_DONE;
	if (is_stepped(cpu) && cpu->step.at == STEP_USER) {
		insn_retired(cpu, regs);
		if (test_thread_flag(TIF_SINGLESTEP))
			return NOTIFY_DONE;
	} else {
		if (test_thread_flag(TIF_SINGLESTEP))
			return NOTIFY_DONE;
		cpu->counts.strays++;
		regs->flags &= ~X86_EFLAGS_TF;
	}
	/*
	 * The step is ours. hw_breakpoint has run already: it is done with data breakpoints, and one on
	 * execution that came together with the step faults again by itself.
	 */
	*dr6 &= ~(DR_STEP | DR_TRAP_BITS);
	current->thread.virtual_dr6 &= ~DR_STEP;
	*dr6 |= current->thread.virtual_dr6 & DR_TRAP_BITS;
	return *dr6 & DR_TRAP_BITS ? NOTIFY_DONE : NOTIFY_STOP;
}

static int on_invalid_opcode(struct softpt_cpu *cpu, struct pt_regs *regs)
{
	struct step *step = &cpu->step;
	struct ptwrite ptwrite;
	u64 ip = regs->ip;

	if (!ptwrite_decode(regs, &ptwrite))
		return NOTIFY_DONE;
	regs->ip += ptwrite.length;
	if (is_stepped(cpu) && step->at == STEP_USER) {
		cpu->counts.steps++;
		trace_ptwrite(cpu, ip, regs->ip, ptwrite.value, ptwrite.wide);
		step->at = STEP_RETIRED;
		step->next_ip = regs->ip;
	}
	return NOTIFY_STOP;
}

static int on_die(struct notifier_block *block, unsigned long what, void *data)
{
	struct softpt_cpu *cpu = this_cpu_ptr(&softpt_cpus);
	struct die_args *args = data;

	if (!user_mode(args->regs))
		return NOTIFY_DONE;
	switch (what) {
	case DIE_INT3:
		/* uprobes sends SIGTRAP to a task whose TF it sees */
		if (is_stepped(cpu)) {
			args->regs->flags &= ~X86_EFLAGS_TF;
			cpu->counts.breakpoints++;
		}
		return NOTIFY_DONE;
	case DIE_TRAP:
		return args->trapnr == X86_TRAP_UD ? on_invalid_opcode(cpu, args->regs) : NOTIFY_DONE;
	case DIE_DEBUG:
		return on_debug(cpu, args->regs, (unsigned long *)args->err);
	}
	return NOTIFY_DONE;
}

/* Before uprobes; after hw_breakpoint, which has the same priority and registered first. */
static struct notifier_block die_block = { .notifier_call = on_die, .priority = INT_MAX };

/* While PREV's memory is still there. perf swaps inherited contexts without stopping their events. */
static void on_sched_switch(void *data, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct softpt_cpu *cpu = this_cpu_ptr(&softpt_cpus);

	if (cpu->event && cpu->step.task == prev) {
		stretch_end(cpu, prev);
		clear_trap_flag(prev);
	}
}

/* An event runs on this CPU from here on. */
void step_begin(struct softpt_cpu *cpu)
{
	struct step *step = &cpu->step;

	forget_task(step);
	if (step->listening)
		return;
	step->on_return.on_user_return = on_user_return;
	user_return_notifier_register(&step->on_return);
	step->listening = true;
}

/* It pauses or ends: whoever runs is not stepped until he returns to user mode again. */
void step_pause(struct softpt_cpu *cpu)
{
	if (cpu->step.task != current)
		return;
	stretch_end(cpu, current);
	clear_trap_flag(current);
}

void step_end(struct softpt_cpu *cpu)
{
	step_pause(cpu);
	if (!cpu->step.listening)
		return;
	user_return_notifier_unregister(&cpu->step.on_return);
	cpu->step.listening = false;
}

static void find_sched_switch(struct tracepoint *tp, void *data)
{
	if (!strcmp(tp->name, "sched_switch"))
		sched_switch = tp;
}

int step_init(void)
{
	int r;

	for_each_kernel_tracepoint(find_sched_switch, NULL);
	if (!sched_switch)
		return -ENOENT;
	r = register_die_notifier(&die_block);
	if (r)
		return r;
	r = tracepoint_probe_register(sched_switch, on_sched_switch, NULL);
	if (r)
		unregister_die_notifier(&die_block);
	return r;
}

void step_exit(void)
{
	tracepoint_probe_unregister(sched_switch, on_sched_switch, NULL);
	tracepoint_synchronize_unregister();
	unregister_die_notifier(&die_block);
}
