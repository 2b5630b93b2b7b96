/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's types, with the few fields that are used, and its constants: CO-RE finds where the
 * fields are. Included by sched.bpf.c.
 */
#pragma once

/* From the kernel's ABI (linux/bpf.h), which not every build machine has in clang's path. */
#define MAP_TYPE_HASH 1
#define MAP_TYPE_ARRAY 2
#define MAP_TYPE_PERF_EVENT_ARRAY 4
#define MAP_TYPE_PERCPU_ARRAY 6
#define MAP_TYPE_ARRAY_OF_MAPS 12
#define MAP_TYPE_RINGBUF 27
#define MAP_F_MMAPABLE (1U << 10)
#define MAP_F_INNER_MAP (1U << 12)
#define UPDATE_ANY 0

#define PF_KTHREAD 0x00200000u
#define PF_IO_WORKER 0x00000010u
#define PF_USER_WORKER 0x00004000u
#define TS_COMPAT 0x0002u
#define TASK_DEAD_BIT 0x80u /* the kernel's TASK_DEAD: the last switch of a thread */
#define TASK_RTLOCK_WAIT_BIT 0x1000u
#define TASK_FROZEN_BIT 0x8000u
/* by the freezer of cgroups: it sleeps instead of going back to its program */
#define JOBCTL_TRAP_FREEZE_BIT (1u << 23)

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct kuid {
	unsigned int val;
};
struct cred {
	struct kuid uid;
};
struct ns_common {
	unsigned int inum;
};
struct pid_namespace {
	struct ns_common ns;
};
struct upid {
	int nr;
	struct pid_namespace *ns;
};
struct pid {
	unsigned int level;
	struct upid numbers[1];
};
struct inode {
	unsigned short i_mode;
};
struct file {
	struct inode *f_inode;
};
struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};
struct files_struct {
	struct fdtable *fdt;
};
struct thread_info {
	unsigned int status;
};
struct mm_struct {
	unsigned long end_code;
};
struct cfs_rq {
	int throttle_count; /* only with CONFIG_CFS_BANDWIDTH */
};
struct sched_entity {
	struct cfs_rq *cfs_rq; /* only with CONFIG_FAIR_GROUP_SCHED */
};
struct thread_struct {
	unsigned long fsbase; /* x86-64 */
};
struct task_struct {
	struct thread_info thread_info;
	int pid;
	int tgid;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	unsigned int flags;
	unsigned int __state;
	int prio;        /* below 100: realtime, by itself or for who waits for it */
	_Bool throttled; /* only with CONFIG_CFS_BANDWIDTH, 6.18 on */
	struct sched_entity se;
	void *stack;
	struct mm_struct *mm;
	const struct cred *cred;
	struct files_struct *files;
	unsigned long jobctl;
	unsigned long nvcsw;
	unsigned long nivcsw;
	char comm[16];
	struct thread_struct thread;
};
struct pt_regs {
	unsigned long bp;
	unsigned long di;
	unsigned long orig_ax;
	unsigned long ip;
	unsigned long cs;
	unsigned long sp;
};
struct seq_file {
	unsigned long count;
};
struct bpf_iter_meta {
	struct seq_file *seq;
};
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};
#pragma clang attribute pop

/*
 * A tick of a clock as its program sees it: an ABI (linux/bpf_perf_event.h), and no kernel's type
 * to be found. The registers are struct pt_regs of x86-64, struct user_pt_regs of arm64; only where
 * stacks are unwound, on x86-64, are they looked at.
 */
#ifdef __TARGET_ARCH_arm64
#define TICK_REGS 34
#else
#define TICK_REGS 21
#endif
struct clock_tick {
	__u64 regs[TICK_REGS];
	__u64 sample_period;
};
#define TICK_IP 16
#define TICK_CS 17

/* Kernels before 5.14 call it `state`. */
struct task_struct___old {
	long state;
} __attribute__((preserve_access_index));
