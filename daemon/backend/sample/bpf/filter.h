/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The maps that the BPF programs (daemon/backend/sample/bpf/sched.bpf.c) share with the daemon
 * (filter.c).
 */
#pragma once

#include "common/bundle/schedev.h"

/*
 * A thread group (or, in the map of single threads, a thread) that somebody records. A process may
 * belong to several targets whose records go to different groups of events.
 */
#define FILTER_ENTRY_GROUPS 4
#define FILTER_NO_GROUP 0xffffu

/*
 * Groups of events that can take switches: each has an index below this. The period of a
 * machine-wide clock, in nanoseconds, has its group's index in its lowest bits: that is all that a
 * program can ask a tick for its event.
 */
#define FILTER_MAX_GROUPS 32
#define FILTER_CLOCK_PERIOD(ns, group) (((ns) & ~(FILTER_MAX_GROUPS - 1u)) | (group))
#define FILTER_CLOCK_GROUP(period) ((unsigned int)((period) & (FILTER_MAX_GROUPS - 1u)))

enum filter_flag {
	FILTER_INHERIT = 1 << 0, /* a unit: processes that it forks belong to it at once */
	FILTER_STACKS = 1 << 1,	 /* a freeze takes its stack where it runs */
};

/*
 * What most daemons never have: a program looks for none, in a map that is dear to ask, as long as
 * it is not in use.
 */
enum filter_use {
	FILTER_USE_THREADS, /* entries of single threads */
	FILTER_USE_PYTHON,
	FILTER_USE_GO,
	FILTER_USES,
};

struct filter_entry {
	/* groups that take switches and wake-ups of it; also read as one word */
	schedev_u16 waits[FILTER_ENTRY_GROUPS];
	schedev_u16 flags;
	/* bit i: of waits[i], stacks are unwound here where that can be done */
	schedev_u16 unwind;
	schedev_u16 no_stacks; /* bit i: waits[i] takes them without stacks */
	/* bit i: waits[i] is machine-wide, and takes the ticks of its clock */
	schedev_u16 clocks;
	/* bit i: waits[i] takes the stack of a wait at its end, if it was as long as wait_min_us */
	schedev_u16 later;
	schedev_u16 copies;    /* bit i: waits[i] copies stacks */
	/*
	 * bit i: waits[i] takes the kernel's part of the stack of a wait, too, where it takes it at
	 * its end
	 */
	schedev_u16 kernel;
	schedev_u16 reserved;
	schedev_u32 wait_min_us;
};

/*
 * One for each cpu, written by the program on that cpu and read by the daemon (memory mapped).
 * `want_wake` is set by the daemon when it has stopped the clocks of the cpu.
 */
struct filter_cpu {
	schedev_u64 last_ns; /* CLOCK_MONOTONIC when a target last left the cpu */
	schedev_u64 drops;   /* records that found no room or no event */
	schedev_u32 running; /* a target is on the cpu now */
	schedev_u32 want_wake;
	schedev_u64 reserved[5]; /* a cache line for each cpu */
};

/*
 * A thread that sleeps, as the iterator tells it: with its registers in the order of struct pt_regs
 * of x86-64, which is an ABI (ptrace).
 */
#define FILTER_TASK_REGS 21
/* of what has a thread wait; the outermost are the system call's, and less worth */
#define FILTER_KERNEL_FRAMES 20
struct filter_task {
	schedev_u32 pid, tid;
	schedev_u32 state, call; /* as in struct tracerd_sched_event */
	schedev_u16 flags;
	schedev_u16 n_kernel;
	schedev_u16 reserved[2];
	schedev_u64 switches; /* how often it has left a CPU */
	schedev_u64 regs[FILTER_TASK_REGS];
	/* the kernel's part of its stack, the innermost first, if somebody wants it */
	schedev_u64 kernel[FILTER_KERNEL_FRAMES];
};

/*
 * The stack of a thread's last wait, until it is known how long that is. Written by the CPUs on
 * which the thread leaves and comes, never by two at a time; whoever else reads it from the first
 * byte to the last has all of one wait if `done` equals `begun`.
 */
#define FILTER_KEPT_MAX 4096u
/* threads whose stack is kept from when they last ended a wait of another one */
#define FILTER_WOKE_MAX 1024u
#define FILTER_KEPT_FRAMES 127u
#define FILTER_KEPT_NOTHING 0xffffffffu
#define FILTER_KEPT_WORDS 64u
struct filter_kept {
	schedev_u32 done;
	schedev_u32 n;	      /* addresses; FILTER_KEPT_NOTHING: its stack is on record */
	schedev_u64 out_ns;   /* CLOCK_MONOTONIC; 0: it has ended */
	schedev_u64 switches; /* how often the thread had left a CPU, this time included */
	/* the switch-out, and behind it the addresses, as they are put out */
	struct tracerd_sched_event ev;
	schedev_u64 addrs[FILTER_KEPT_FRAMES];
	/* bit i: waits[i] of the thread's entry, of then, is to have the stack at the end */
	schedev_u32 later;
	schedev_u32 begun;
	/* By what the addresses were found. As long as all of that is the same, so are they. */
	schedev_u32 generation; /* of the list of mappings; 0: by more than this */
	schedev_u16 n_words;
	schedev_u16 why; /* enum unwind_why */
	schedev_u32 span; /* of the stack in which the words are, in words from sp */
	schedev_u32 reserved;
	schedev_u64 pc, sp, bp;
	schedev_u16 word_at[FILTER_KEPT_WORDS]; /* in words from sp */
	schedev_u64 words[FILTER_KEPT_WORDS];
};

/*
 * A group's ring on one CPU, for what has no stack: a tenth of the cost of perf's. Written by the
 * programs on that CPU, never by two at a time, and read by the daemon (memory mapped), which must
 * expect that what it reads is being overwritten. A group has them in one map, first a struct
 * filter_ring for each possible CPU, then the records. The oldest record is the next to be
 * overwritten.
 */
struct filter_record {
	schedev_u64 time; /* CLOCK_MONOTONIC */
	struct tracerd_sched_event ev;
};
struct filter_ring {
	schedev_u64 written;	/* records, ever */
	schedev_u32 first;	/* entry of the map; 0: this CPU has no ring */
	schedev_u32 next, size; /* from there on: the next one to be written, of so many */
	schedev_u32 reserved[11]; /* as large as a record */
};

/* Set before the programs are loaded. */
struct filter_constants {
	schedev_u32 have_prev_state; /* the tracepoint has the previous task's state (5.18) */
	schedev_u32 n_cpus;          /* possible ones: the stride of the array of outputs */
	schedev_u32 unwind;          /* stacks can be unwound: unwind.bpf.h */
	/* so can the frames of Python's functions be found: python.bpf.h */
	schedev_u32 python;
	schedev_u32 goroutines;	     /* which goroutine a thread runs is read: goroutine.bpf.h */
	schedev_u32 rings;	     /* there may be such for what has no stack */
	schedev_u32 pidns;           /* inode of the daemon's pid namespace; 0: the machine's own */
};

/* Index into the array of output events: for each group, with and without stack, one a cpu. */
#define FILTER_OUTPUTS_PER_GROUP 2
#define FILTER_OUTPUT_STACK 0
#define FILTER_OUTPUT_PLAIN 1
