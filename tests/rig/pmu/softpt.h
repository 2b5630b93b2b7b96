/* SPDX-License-Identifier: GPL-2.0 */
/*
 * softpt: a PMU named "intel_pt" without the hardware. It single-steps the user code of the events'
 * tasks and writes the packets that a processor with Intel PT would have written.
 *
 *	pmu.c		the events: what perf calls
 *	caps.c		the description in sysfs, and which config it allows
 *	step.c		who runs and which instruction retired: EFLAGS.TF, #DB, returns to user mode
 *	trace.c		what a retired instruction means for the trace: PacketEn, filters, overflows
 *	branch.c	what kind of branch an instruction is
 *	packet.c	the bytes of each packet
 *	aux_ring.c	the pages that they go to
 *	retired.c	the log of retired instructions, to compare a decoder with
 *	asked.c		the attributes that events were opened with
 *
 * Calls go down this list only. Everything of a CPU is touched on that CPU only, by code that the
 * scheduler cannot preempt there: perf's callbacks, notifiers and tracepoints.
 */
#ifndef SOFTPT_H
#define SOFTPT_H

#include <linux/perf_event.h>
#include <linux/user-return-notifier.h>

#include "aux_ring.h"
#include "branch.h"
#include "packet.h"
#include "trace.h"

/* Where the stepped task is between two returns to user mode. */
enum step_at {
	STEP_NOWHERE,	/* no task is stepped */
	STEP_USER,	/* it executes the instruction at next_ip, or has entered the kernel by it */
	STEP_RETIRED,	/* the #DB came: next_ip is the instruction after it */
};

struct step {
	struct user_return_notifier on_return;
	bool listening;
	struct task_struct *task;
	enum step_at at;
	u64 next_ip;
	unsigned long ax;	/* before the instruction at next_ip */
	u8 code[16];		/* its bytes */
	unsigned int n_code;
};

struct softpt_counts {
	u64 steps, unfetched, strays, breakpoints, entries, interruptions, syscalls, overflows, truncations, bytes;
};

struct softpt_cpu {
	struct perf_event *event;	/* that runs here, or NULL */
	struct aux_ring ring;
	struct packets packets;
	struct trace trace;
	struct step step;
	struct softpt_counts counts;
};

DECLARE_PER_CPU(struct softpt_cpu, softpt_cpus);

/* pmu.c */
int softpt_pmu_register(void);
void softpt_pmu_unregister(void);

/* caps.c */
extern const struct attribute_group *softpt_attr_groups[];
bool caps_allow(u64 config);
unsigned int caps_ranges(void);
bool caps_scatter(void);

/* step.c */
int step_init(void);
void step_exit(void);
void step_begin(struct softpt_cpu *cpu);
void step_end(struct softpt_cpu *cpu);
void step_pause(struct softpt_cpu *cpu);

/* ptwrite.c */
struct ptwrite {
	u64 value;
	bool wide;	/* 8 bytes, not 4 */
	u8 length;	/* of the instruction */
};
bool ptwrite_decode(struct pt_regs *regs, struct ptwrite *ret);

#endif
