// SPDX-License-Identifier: GPL-2.0
/*
 * What a retired instruction, an entry to the kernel and a return from it mean for the trace: whether
 * packets are enabled (PacketEn), which packet a branch gets, which returns are compressed, and when
 * the processor pretends to lose packets. Each instruction that retires while packets are enabled goes
 * to the log, so the log checks packets against instructions, but not PacketEn itself.
 */
#include <linux/module.h>
#include <linux/ptrace.h>
#include <linux/uaccess.h>

#include "retired.h"
#include "softpt.h"

static unsigned long overflow_every;
module_param(overflow_every, ulong, 0644);
MODULE_PARM_DESC(overflow_every, "lose packets after each so many instructions on a CPU; 0: never");

static unsigned long overflow_length = 100;
module_param(overflow_length, ulong, 0644);
MODULE_PARM_DESC(overflow_length, "how many instructions each overflow loses");

/* How often a long stretch of code looks for MTC packets that are due. */
#define TIMER_STEPS 64

void trace_begin(struct softpt_cpu *cpu, const struct trace_filters *filters, bool paused)
{
	struct trace *t = &cpu->trace;
	u64 until_overflow = t->until_overflow;

	memset(t, 0, sizeof(*t));
	t->filters = filters;
	t->paused = paused;
	t->until_overflow = until_overflow;
}

static bool wanted(const struct trace *t, u64 ip)
{
	unsigned int i;

	if (!t->filters || !t->filters->n)
		return true;
	for (i = 0; i < t->filters->n; i++)
		if (ip >= t->filters->range[i].first && ip <= t->filters->range[i].last)
			return true;
	return false;
}

/* What was not written never will be; the next packets begin with a PSB. */
void trace_break(struct softpt_cpu *cpu)
{
	cpu->trace.enabled = false;
	cpu->trace.losing = 0;
	packets_init(&cpu->packets, &cpu->ring, cpu->packets.config);
}

static void returns_push(struct trace *t, u64 ip)
{
	t->returns[t->returns_top++ % TRACE_MAX_RETURNS] = ip;
	if (t->n_returns < TRACE_MAX_RETURNS)
		t->n_returns++;
}

static bool returns_pop(struct trace *t, u64 *ret)
{
	if (!t->n_returns)
		return false;
	t->n_returns--;
	*ret = t->returns[--t->returns_top % TRACE_MAX_RETURNS];
	return true;
}

/* The packets are no longer enabled. True: an overflow is still lost, and its packet is all that there is to say. */
static bool disable(struct softpt_cpu *cpu)
{
	struct trace *t = &cpu->trace;

	t->enabled = false;
	if (!t->losing)
		return false;
	t->losing = 0;
	packet_overflow(&cpu->packets, NULL);
	return true;
}

/* The instruction at IP never retired: an interrupt or a fault came before it. */
void trace_interrupted(struct softpt_cpu *cpu, u64 ip)
{
	if (!cpu->trace.enabled || disable(cpu))
		return;
	packet_interrupt(&cpu->packets, ip);
	cpu->counts.interruptions++;
}

/*
 * Lets the reader have what is due, by what is the interrupt of a full region on a processor: the program at NEXT_IP does not notice,
 * but the trace has it. False: there is no room.
 */
static bool room(struct softpt_cpu *cpu, u64 next_ip)
{
	if (!aux_ring_is_open(&cpu->ring))
		return false;
	if (!aux_ring_due(&cpu->ring))
		return true;
	trace_interrupted(cpu, next_ip);
	aux_ring_close(&cpu->ring);
	switch (aux_ring_open(&cpu->ring, cpu->event)) {
	case AUX_OPENED:
		return true;
	case AUX_FULL:
		cpu->counts.truncations++;
		break;
	case AUX_NONE:
		break;
	}
	/* as the driver of the hardware: until perf starts the event again */
	cpu->event->hw.state = PERF_HES_STOPPED;
	trace_break(cpu);
	return false;
}

/* User code goes on at IP. */
void trace_continue(struct softpt_cpu *cpu, u64 ip)
{
	struct trace *t = &cpu->trace;

	if (t->enabled || t->paused || !wanted(t, ip) || !room(cpu, ip))
		return;
	packets_clock(&cpu->packets);
	if (packets_psb_due(&cpu->packets))
		packet_psb(&cpu->packets, NULL);
	packet_enable(&cpu->packets, ip);
	t->enabled = true;
	t->n_returns = 0;
	cpu->counts.entries++;
}

void trace_syscall(struct softpt_cpu *cpu, u64 ip)
{
	if (!cpu->trace.enabled)
		return;
	retired_log(ip, cpu->trace.losing);
	cpu->counts.syscalls++;
	if (!disable(cpu))
		packet_disable(&cpu->packets);
}

/* Whether the packets of the instruction that retires now are lost. */
static bool overflows(struct softpt_cpu *cpu)
{
	struct trace *t = &cpu->trace;
	u64 every = READ_ONCE(overflow_every), length = READ_ONCE(overflow_length);

	if (t->losing || !every || !length)
		return t->losing;
	if (!t->until_overflow || t->until_overflow > every)
		t->until_overflow = every;
	if (--t->until_overflow)
		return false;
	packets_flush(&cpu->packets);
	t->losing = length;
	cpu->counts.overflows++;
	return true;
}

/* One instruction of an overflow, which may be its last. */
static void overflow_step(struct softpt_cpu *cpu, u64 next_ip)
{
	struct trace *t = &cpu->trace;

	t->n_returns = 0;
	if (!wanted(t, next_ip))
		disable(cpu);
	else if (!--t->losing)
		packet_overflow(&cpu->packets, &next_ip);
}

/* The branch goes to where packets are not enabled. */
static void leave_filter(struct softpt_cpu *cpu, const struct branch *branch, u64 ip, u64 next_ip)
{
	/* a branch that was not taken is not the one that left */
	if (branch->kind == BRANCH_CONDITIONAL && next_ip == ip + branch->length)
		packet_tnt(&cpu->packets, false);
	packet_disable_to(&cpu->packets, next_ip);
	cpu->trace.enabled = false;
}

static void trace_branch(struct softpt_cpu *cpu, const struct branch *branch, u64 ip, const struct pt_regs *after)
{
	struct packets *p = &cpu->packets;
	struct trace *t = &cpu->trace;
	u64 back;

	switch (branch->kind) {
	case BRANCH_CONDITIONAL:
	case BRANCH_LOOP:
		packet_tnt(p, branch_taken(branch, after));
		break;
	case BRANCH_CALL:
		/* a call of the next instruction only wants to know where it is: no return follows */
		if (after->ip != ip + branch->length)
			returns_push(t, ip + branch->length);
		break;
	case BRANCH_INDIRECT_CALL:
		packet_tip(p, after->ip, true);
		if (!copy_from_user_nofault(&back, (void __user *)after->sp, sizeof(back)))
			returns_push(t, back);
		else
			t->n_returns = 0;
		break;
	case BRANCH_INDIRECT_JUMP:
		packet_tip(p, after->ip, true);
		break;
	case BRANCH_RETURN:
		if (returns_pop(t, &back) && back == after->ip && !(p->config & PT_NO_RETCOMP))
			packet_tnt(p, true);
		else
			packet_tip(p, after->ip, false);
		break;
	case BRANCH_FAR:
		packet_tip(p, after->ip, false);
		break;
	case BRANCH_NONE:
	case BRANCH_JUMP:
	case BRANCH_SYSCALL:	/* has left user mode: trace_syscall() */
	case BRANCH_INTERRUPT:	/* has left user mode: trace_interrupted() */
		break;
	}
}

/* The instruction at IP has retired, AFTER are the registers after it. */
void trace_retired(struct softpt_cpu *cpu, u64 ip, const struct pt_regs *after)
{
	const struct step *step = &cpu->step;
	struct branch branch;

	if (!cpu->trace.enabled)
		return;
	packets_clock(&cpu->packets);
	/* one round of a string instruction: it retires after the last */
	if (after->ip == ip && insn_repeats(step->code, step->n_code))
		return;
	if (overflows(cpu)) {
		retired_log(ip, true);
		overflow_step(cpu, after->ip);
		return;
	}
	retired_log(ip, false);
	branch = branch_classify(step->code, step->n_code);
	if (!wanted(&cpu->trace, after->ip)) {
		leave_filter(cpu, &branch, ip, after->ip);
		return;
	}
	trace_branch(cpu, &branch, ip, after);
	if (packets_psb_due(&cpu->packets)) {
		u64 next = after->ip;

		packet_psb(&cpu->packets, &next);
		cpu->trace.n_returns = 0;
	} else if (cpu->counts.steps % TIMER_STEPS == 0) {
		packet_timer(&cpu->packets);
	}
	(void)room(cpu, after->ip);
}

/* PTWRITE at IP has retired. */
void trace_ptwrite(struct softpt_cpu *cpu, u64 ip, u64 next_ip, u64 value, bool wide)
{
	if (!cpu->trace.enabled)
		return;
	packets_clock(&cpu->packets);
	retired_log(ip, cpu->trace.losing);
	if (!cpu->trace.losing)
		packet_ptwrite(&cpu->packets, value, wide, ip);
	(void)room(cpu, next_ip);
}
