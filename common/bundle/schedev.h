/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The payload (PERF_SAMPLE_RAW) of the "sched" event: what a BPF program saw at a context switch,
 * at a wake-up of a target's thread, or where that ran before a freeze. Little endian, fixed size;
 * the BPF program that writes it, the daemon that filters it and the decoder that reads it all
 * include this file, so it holds nothing but fixed-width fields.
 *
 * The record around it has PERF_SAMPLE_{IDENTIFIER,IP,TID,TIME,CPU,CALLCHAIN,RAW} (with dwarf
 * stacks also REGS_USER and STACK_USER). In a bundle its own TID is the thread whose user stack
 * the call chain is:
 *   switch-out  the thread that leaves the cpu: the stack of its wait. With STACK_LATER the chain
 *               is emptied: if the wait is a long one its stack is in the switch-in that ends it,
 *               or in a blocked
 *   switch-in   the thread that comes; with WAITED its stack is that of the wait which ends (else
 *               the chain is emptied)
 *   wakeup      the waker if it belongs to the target (WAKER_TARGET), else the thread that is
 *               woken, and the chain is emptied
 *   stack       the thread that runs: its stack, before a freeze of a processor's trace
 *   blocked     the thread that sleeps at the freeze: the stack of its wait, of which the rings
 *               have nothing, or no stack (written by the daemon)
 *   sample      in the rings only: a tick of the sampling clock in the thread, whose stack was
 *               unwound in the kernel. The daemon makes an ordinary sample of it
 *   goroutine   the thread that is in a sample, a switch-out or a blocked of the same time, the
 *               next record: which one it runs then, of a Go program; no stack
 *   function    nobody: behind the event is a Python function (common/bundle/python.h) that stacks
 *               have the number of (written by the daemon)
 * With ADDRESSES, in the rings only, the addresses of the stack are behind the event, the innermost
 * first, and the daemon makes a call chain of them. Behind them, and then with PYTHON behind the
 * event, may be words for the functions that CPython ran; samples have these as their payload.
 * Behind all these may be the kernel's part of the stack, see SCHEDEV_KERNEL_HEAD.
 * The subject of the event is always `pid`, `tid`.
 */
#pragma once

/* "TSE" and the version; another version is another layout. */
#define SCHEDEV_MAGIC 0x01455354u

enum schedev_kind {
	SCHEDEV_OUT = 1,
	SCHEDEV_IN = 2,
	SCHEDEV_WAKEUP = 3,
	SCHEDEV_STACK = 4,
	SCHEDEV_BLOCKED = 5,
	SCHEDEV_SAMPLE = 6,
	SCHEDEV_FUNCTION = 7,
	SCHEDEV_GOROUTINE = 8,
};

enum schedev_flag {
	SCHEDEV_PREEMPT = 1 << 0,      /* switch-out: preempted while runnable */
	SCHEDEV_IRQ_KNOWN = 1 << 1,    /* wakeup: the next flag means something */
	SCHEDEV_IN_IRQ = 1 << 2,       /* wakeup: from an interrupt, `other` just happened to run */
	/* wakeup: the waker belongs to the target, its stack is here */
	SCHEDEV_WAKER_TARGET = 1 << 3,
	SCHEDEV_OTHER_MASKED = 1 << 4, /* `other` may not be seen: ids 0xffffffff, comm "other" */
	SCHEDEV_ADDRESSES = 1 << 5,    /* the stack's addresses follow */
	SCHEDEV_IN_KERNEL = 1 << 6,    /* sample: the tick was in the kernel */
	/* switch-out: the system call's first argument is an open descriptor */
	SCHEDEV_FILE_KNOWN = 1 << 7,
	/* bits 8 to 11: what kind of file that is, the upper four bits of its mode, see inode(7) */
	/* switch-out: the stack is kept, and comes if the wait is long */
	SCHEDEV_STACK_LATER = 1 << 12,
	/* switch-in: the wait that ends was a long one, its stack is here */
	SCHEDEV_WAITED = 1 << 13,
	/* behind the event is the part of the stack that is Python's */
	SCHEDEV_PYTHON = 1 << 14,
	/* switch-out, preempted: its cgroup, or one above, has used up its CPU quota */
	SCHEDEV_THROTTLED = 1 << 15,
};

/*
 * In the rings only, behind addresses and Python's words: a head, which is no address, and so many
 * addresses, the innermost first.
 */
#define SCHEDEV_KERNEL_HEAD 0xfeec000000000000ULL
#define SCHEDEV_KERNEL_HEAD_MASK 0xffff000000000000ULL
#define SCHEDEV_KERNEL_COUNT(head) ((schedev_u32)(head) & 0xffffu)

#define SCHEDEV_FILE_SHIFT 8
#define SCHEDEV_FILE_MASK 0xfu

/* Bits of `state` (the kernel's task state at switch-out); 0 is runnable, that is preempted. */
#define SCHEDEV_STATE_INTERRUPTIBLE 0x1u
#define SCHEDEV_STATE_UNINTERRUPTIBLE 0x2u
#define SCHEDEV_STATE_STOPPED 0x4u
#define SCHEDEV_STATE_TRACED 0x8u
#define SCHEDEV_STATE_DEAD 0x10u
#define SCHEDEV_STATE_ZOMBIE 0x20u
#define SCHEDEV_STATE_UNKNOWN 0x80000000u /* a state, but not known which */

#define SCHEDEV_MASKED_ID 0xffffffffu

#ifdef __bpf__
typedef unsigned short schedev_u16;
typedef unsigned int schedev_u32;
typedef unsigned long long schedev_u64;
#else
#include <stdint.h>
typedef uint16_t schedev_u16;
typedef uint32_t schedev_u32;
typedef uint64_t schedev_u64;
#endif

struct tracerd_sched_event {
	schedev_u32 magic;
	schedev_u16 kind;
	schedev_u16 flags;
	schedev_u32 pid; /* thread group of the subject, host numbers */
	schedev_u32 tid;
	/*
	 * switch-out, blocked: the task state. WAITED: how long the wait was, in ns, the upper
	 * half; goroutine: its number, likewise; else 0
	 */
	schedev_u32 state;
	/*
	 * the same, not preempted: the system call it is in, see below; 0: none, or not known.
	 * WAITED, goroutine: the lower half. wakeup, not from an interrupt: that of the waker
	 */
	schedev_u32 call;
	schedev_u32 other_pid; /* next at out, previous at in, waker at wakeup; idle is tid 0 */
	schedev_u32 other_tid;
	schedev_u32 other_uid;
	schedev_u32 cpu; /* at wakeup: the waker's */
	char other_comm[16]; /* of a sample: the address where the tick was */
};

/* The length of a wait. */
#define SCHEDEV_WAITED_NS(ev) ((schedev_u64)(ev)->state << 32 | (ev)->call)

/* The number of a goroutine, as its program prints it. */
#define SCHEDEV_GOROUTINE_ID(ev) SCHEDEV_WAITED_NS(ev)

/*
 * `call` of a 64-bit program on x86-64: the number of the system call and its first argument, each
 * plus one, so that 0 is none. An argument that is no small number, and so no descriptor, is left
 * out. Of futex() it is a number made of the address, which tells one lock from another.
 */
#define SCHEDEV_CALL_BITS 12
#define SCHEDEV_CALL_MASK ((1u << SCHEDEV_CALL_BITS) - 1)
#define SCHEDEV_CALL_ARG_MAX ((1u << (32 - SCHEDEV_CALL_BITS)) - 2)
#define SCHEDEV_CALL_FUTEX 202u
#define SCHEDEV_FUTEX_KEY(address) ((schedev_u64)(address) * 0x9e3779b97f4a7c15ull >> 45)
#define SCHEDEV_CALL_HAS_FD(call) \
	((call) >> SCHEDEV_CALL_BITS && ((call) & SCHEDEV_CALL_MASK) != SCHEDEV_CALL_FUTEX + 1)
