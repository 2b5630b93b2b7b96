/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOFTPT_TRACE_H
#define SOFTPT_TRACE_H

#include <linux/types.h>

struct pt_regs;
struct softpt_cpu;

#define TRACE_MAX_RANGES 4
#define TRACE_MAX_RETURNS 64

/* Of an event: where packets are enabled. None: everywhere. */
struct trace_filters {
	unsigned int n;
	struct {
		unsigned long first, last;
	} range[TRACE_MAX_RANGES];
};

struct trace {
	const struct trace_filters *filters;
	bool paused;		/* by perf's aux-action */
	bool enabled;		/* PacketEn */
	u64 returns[TRACE_MAX_RETURNS];
	unsigned int returns_top, n_returns;
	u64 until_overflow;	/* instructions */
	u64 losing;		/* instructions that an overflow still loses */
};

void trace_begin(struct softpt_cpu *cpu, const struct trace_filters *filters, bool paused);
void trace_continue(struct softpt_cpu *cpu, u64 ip);
void trace_retired(struct softpt_cpu *cpu, u64 ip, const struct pt_regs *after);
void trace_syscall(struct softpt_cpu *cpu, u64 ip);
void trace_interrupted(struct softpt_cpu *cpu, u64 ip);
void trace_ptwrite(struct softpt_cpu *cpu, u64 ip, u64 next_ip, u64 value, bool wide);
void trace_break(struct softpt_cpu *cpu);

#endif
