/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The payload (PERF_SAMPLE_RAW) of the "sched" event: what a BPF program saw at a context switch,
 * at a wake-up of a target's thread, or where that ran before a freeze. Little endian, fixed size; the BPF program that writes
 * it, the daemon that filters it and the decoder that reads it all include this file, so it
 * holds nothing but fixed-width fields.
 *
 * The record around it has PERF_SAMPLE_{IDENTIFIER,IP,TID,TIME,CPU,CALLCHAIN,RAW} (with dwarf
 * stacks also REGS_USER and STACK_USER). In a bundle its own TID is the thread whose user stack
 * the call chain is:
 *   switch-out  the thread that leaves the cpu: the stack of its wait
 *   switch-in   the thread that comes (the chain is meaningless and emptied)
 *   wakeup      the waker if it belongs to the target (WAKER_TARGET), else the thread that is
 *               woken, and the chain is emptied
 *   stack       the thread that runs: its stack, before a freeze of a processor's trace
 *   blocked     the thread that sleeps at the freeze, and of which the rings have nothing: the stack of its wait, which began
 *               before them (written by the daemon)
 *   sample      in the rings only: a tick of the sampling clock in the thread, whose stack was unwound in the kernel. The
 *               daemon makes an ordinary sample of it
 * With ADDRESSES, in the rings only, the addresses of the stack are behind the event, the innermost first, and the daemon makes
 * a call chain of them.
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
};

enum schedev_flag {
	SCHEDEV_PREEMPT = 1 << 0,      /* switch-out: preempted while runnable */
	SCHEDEV_IRQ_KNOWN = 1 << 1,    /* wakeup: the next flag means something */
	SCHEDEV_IN_IRQ = 1 << 2,       /* wakeup: from an interrupt, `other` just happened to run */
	SCHEDEV_WAKER_TARGET = 1 << 3, /* wakeup: the waker belongs to the target, its stack is here */
	SCHEDEV_OTHER_MASKED = 1 << 4, /* `other` may not be seen: ids 0xffffffff, comm "other" */
	SCHEDEV_ADDRESSES = 1 << 5,    /* the stack's addresses follow */
	SCHEDEV_IN_KERNEL = 1 << 6,    /* sample: the tick was in the kernel */
	SCHEDEV_FILE_KNOWN = 1 << 7,   /* switch-out: the system call's first argument is an open descriptor */
};

/* What kind of file that is: the upper four bits of its mode, see inode(7). */
#define SCHEDEV_FILE_SHIFT 8
#define SCHEDEV_FILE_MASK 0xfu

/* Bits of `state` (the kernel's task state at switch-out); 0 is runnable, that is preempted. */
#define SCHEDEV_STATE_INTERRUPTIBLE 0x1u
#define SCHEDEV_STATE_UNINTERRUPTIBLE 0x2u
#define SCHEDEV_STATE_STOPPED 0x4u
#define SCHEDEV_STATE_TRACED 0x8u
#define SCHEDEV_STATE_DEAD 0x10u
#define SCHEDEV_STATE_ZOMBIE 0x20u

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
	schedev_u32 state;     /* switch-out, blocked: the task state; else 0 */
	schedev_u32 call;      /* the same, not preempted: the system call it is in, see below; 0: none, or not known */
	schedev_u32 other_pid; /* next at out, previous at in, waker at wakeup; idle is tid 0 */
	schedev_u32 other_tid;
	schedev_u32 other_uid;
	schedev_u32 cpu; /* at wakeup: the waker's */
	char other_comm[16]; /* of a sample: the address where the tick was */
};

/*
 * `call` of a 64-bit program on x86-64: the number of the system call and its first argument, each plus one, so that 0 is
 * none. An argument that is no small number, and so no descriptor, is left out.
 */
#define SCHEDEV_CALL_BITS 12
#define SCHEDEV_CALL_MASK ((1u << SCHEDEV_CALL_BITS) - 1)
#define SCHEDEV_CALL_ARG_MAX ((1u << (32 - SCHEDEV_CALL_BITS)) - 2)
