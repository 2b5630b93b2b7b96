/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a task is: its numbers, its state, the system call that it is in, and what the descriptor of
 * that is. Included by sched.bpf.c, whose declarations it uses.
 */
#pragma once

#define FIELD(type, field) __builtin_preserve_field_info(((struct type *)0)->field, 0)
#define NS_LEVELS 4
#define MAX_RT_PRIO 100

static __attribute__((always_inline)) __u64 address_of(const void *pointer)
{
	const void *volatile slot = pointer;
	__u64 address = 0;

	bpf_probe_read_kernel(&address, sizeof(address), (void *)&slot);
	return address;
}

/*
 * The number that a thread, by its address, has in the daemon's pid namespace (a container's): what
 * /proc and the other records tell it. 0 if it has none there, or lost it by dying. Its own
 * namespace is the likely one, a few levels up are tried. A function of its own, which the verifier
 * checks once.
 */
__attribute__((noinline)) __u32 ns_number(__u64 task)
{
	__u64 pid = 0;
	__u32 level = 0;

	bpf_probe_read_kernel(&pid, sizeof(pid), (void *)(task + FIELD(task_struct, thread_pid)));
	if (!pid)
		return 0;
	bpf_probe_read_kernel(&level, sizeof(level), (void *)(pid + FIELD(pid, level)));
#pragma unroll
	for (__u32 i = 0; i < NS_LEVELS; i++) {
		struct upid number = {0};
		__u32 inum = 0;

		if (i > level)
			break;
		bpf_probe_read_kernel(&number, sizeof(number),
				      (void *)(pid + FIELD(pid, numbers) +
					       (__u64)(level - i) * sizeof(number)));
		bpf_probe_read_kernel(&inum, sizeof(inum),
				      (void *)((__u64)number.ns + FIELD(pid_namespace, ns.inum)));
		if (inum == constants.pidns)
			return (__u32)number.nr;
	}
	return 0;
}

static __attribute__((always_inline)) __u32 tid_of(const struct task_struct *task)
{
	return constants.pidns ? ns_number(address_of(task)) : (__u32)task->pid;
}

static __attribute__((always_inline)) __u32 tgid_of(const struct task_struct *task)
{
	return constants.pidns ? ns_number(address_of(task->group_leader)) : (__u32)task->tgid;
}

/* The number that it has for itself. */
static __attribute__((always_inline)) __u32 own_tid(const struct task_struct *task)
{
	struct upid number = {0};
	__u32 level = 0;
	__u64 pid = 0;

	bpf_probe_read_kernel(&pid, sizeof(pid), &task->thread_pid);
	if (!pid)
		return 0;
	bpf_probe_read_kernel(&level, sizeof(level), (void *)(pid + FIELD(pid, level)));
	bpf_probe_read_kernel(&number, sizeof(number),
			      (void *)(pid + FIELD(pid, numbers) + (__u64)level * sizeof(number)));
	return (__u32)number.nr;
}

/*
 * Whether the task, the current one or the one that leaves, is within an exec: its memory is the
 * new program's, which is being mapped, its registers are those with which the old one called. By
 * these a function of the new program would be where nobody is. The kernel notes where the code is
 * when it has mapped all, less than a microsecond before it sets the registers.
 */
static __attribute__((always_inline)) int is_in_exec(const struct task_struct *task)
{
	const struct mm_struct *mm = task->mm;

	return mm && !mm->end_code;
}

static __attribute__((always_inline)) __u32 state_abi(__u32 state)
{
	__u32 abi = state & 0x3fu;

	if (state & TASK_DEAD_BIT)
		abi |= SCHEDEV_STATE_DEAD;
	if (state & TASK_RTLOCK_WAIT_BIT)
		abi |= SCHEDEV_STATE_UNINTERRUPTIBLE;
	if (state & TASK_FROZEN_BIT)
		abi |= SCHEDEV_STATE_STOPPED;
	/* Whatever it is, it is not ready to run. */
	return state && !abi ? SCHEDEV_STATE_UNKNOWN : abi;
}

/* The same of a task; who is frozen by cgroup sleeps in no system call, but is stopped. */
static __attribute__((always_inline)) __u32 task_state_abi(const struct task_struct *task,
							   __u32 state)
{
	if ((state & SCHEDEV_STATE_INTERRUPTIBLE) && (task->jobctl & JOBCTL_TRAP_FREEZE_BIT))
		return SCHEDEV_STATE_STOPPED;
	return state_abi(state);
}

/*
 * Whether the task, which leaves though it could run on, may not: its cgroup, or one above, has
 * used up its CPU quota. The kernel holds up each task of it by itself, at its way back to its
 * program; before 6.18 all that are on a CPU, by what they wait in.
 */
static __attribute__((always_inline)) int is_throttled(const struct task_struct *task)
{
	const struct cfs_rq *rq;

	/* The quota is not for it; and who became realtime while it was held up keeps the mark. */
	if (task->prio < MAX_RT_PRIO)
		return 0;
	if (bpf_core_field_exists(task->throttled))
		return task->throttled;
	if (!bpf_core_field_exists(task->se.cfs_rq) ||
	    !bpf_core_field_exists(((struct cfs_rq *)0)->throttle_count))
		return 0;
	rq = task->se.cfs_rq;
	return rq && rq->throttle_count > 0;
}

/* What the task's descriptor is, as flags of a record. */
static __attribute__((always_inline)) __u16 file_kind(const struct task_struct *task, __u32 fd)
{
	struct fdtable *table;
	struct inode *inode = 0;
	struct file *file = 0;
	__u16 mode = 0;

	if (!task->files)
		return 0;
	table = task->files->fdt;
	if (fd >= table->max_fds)
		return 0;
	bpf_probe_read_kernel(&file, sizeof(file),
			      (void *)((__u64)table->fd + (__u64)fd * sizeof(file)));
	if (!file)
		return 0;
	bpf_probe_read_kernel(&inode, sizeof(inode), (void *)((__u64)file + FIELD(file, f_inode)));
	if (!inode || bpf_probe_read_kernel(&mode, sizeof(mode),
					    (void *)((__u64)inode + FIELD(inode, i_mode))) < 0)
		return 0;
	return SCHEDEV_FILE_KNOWN | (__u16)((mode >> 12 & SCHEDEV_FILE_MASK) << SCHEDEV_FILE_SHIFT);
}

/*
 * Of a task that goes to sleep, in whose saved registers the system call is. An exception has none,
 * nor has a kernel's thread.
 */
static __attribute__((always_inline)) __u32 call_of(struct task_struct *task)
{
#ifdef __TARGET_ARCH_x86
	struct pt_regs *regs;
	__u64 number, arg;

	if (task->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER))
		return 0;
	/* That of a 32-bit program has other numbers. */
	if (!bpf_core_field_exists(task->thread_info.status) ||
	    (task->thread_info.status & TS_COMPAT))
		return 0;
	regs = (struct pt_regs *)bpf_task_pt_regs((void *)task);
	number = regs->orig_ax;
	arg = regs->di;
	if (number == SCHEDEV_CALL_FUTEX)
		arg = SCHEDEV_FUTEX_KEY(arg);
	if (number >= SCHEDEV_CALL_MASK)
		return 0;
	return (__u32)(number + 1) |
	       (arg <= SCHEDEV_CALL_ARG_MAX ? (__u32)(arg + 1) << SCHEDEV_CALL_BITS : 0);
#else
	return 0;
#endif
}

static __attribute__((always_inline)) __u32 state_of(const struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return task->__state;
	return (__u32)((const struct task_struct___old *)task)->state;
}
