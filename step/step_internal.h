/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the stepper share: threads, processes, and who calls whom. */
#pragma once

#include <signal.h>
#include <sys/queue.h>
#include <sys/user.h>
#include <time.h>

#include "common/base/insn.h"
#include "step/address_space.h"
#include "step/clock.h"
#include "step/code.h"
#include "step/insn_log.h"
#include "step/pt_encoder.h"
#include "step/sideband.h"
#include "step/step.h"

#define STEP_MAX_THREADS 4096u	/* alive */
#define STEP_MAX_STREAMS 65536u /* ever; in a ring, kept */
#define STEP_SWEEP_MIN 64u
#define STEP_HASH 1024u
#define STEP_FLAG_TRAP 0x100u

/*
 * The life of a thread:
 *
 *	NEW ----first stop----> RUNS <---> LISTENS (its group is stopped)
 *	COMMAND ----exec------>  |
 *	                         +--> LEAVES (exits, or is let go when it stops) --> forgotten
 */
enum step_thread_state {
	STEP_THREAD_NEW,	    /* its first stop is awaited */
	STEP_THREAD_COMMAND, /* it is us still, about to become the command; not stepped */
	STEP_THREAD_RUNS,
	STEP_THREAD_LISTENS,
	STEP_THREAD_LEAVES,
};

/* One AUXTRACE buffer. A thread that has become another by exec has a second one. */
struct step_stream {
	STAILQ_ENTRY(step_stream) in_step;
	pid_t pid, tid;
	struct pt_encoder_stream *pt; /* its store's */
	uint64_t ended;	   /* ticks; 0: not yet */
};

struct step_process {
	LIST_ENTRY(step_process) in_step;
	pid_t pid, ppid;
	unsigned int threads;
	struct address_space *space; /* owned */
};

struct step_thread {
	LIST_ENTRY(step_thread) in_hash;
	TAILQ_ENTRY(step_thread) in_turn;
	bool waits; /* in_turn: has stopped, by `status` */
	int status;
	pid_t tid;
	struct step_process *process;
	struct step_stream *stream; /* NULL before the first stop */
	enum step_thread_state state;

	/* In user mode: `ip` comes next, by `insn` where `known`. In the kernel: since the system call at `ip`. */
	bool in_kernel;
	bool on;       /* packets flow */
	bool known;
	bool is64;
	bool restarts; /* in the kernel: the system call may begin again */
	bool paused;   /* packets flow again after step_insn_resume() */
	bool own_tf;   /* the program has set the trap flag itself */
	bool refresh;  /* the kernel's idea of whose the trap flag is has to be put right, see trap_flag.c */
	bool trap_blocked; /* by the program; never really, see signal_mask.c */
	bool mask_unknown; /* it is looked at when the system call is over */
	uint64_t ip;
	struct insn insn;
	uint8_t code[INSN_MAX];

	int signal;	    /* to be delivered when it goes on */
	bool signal_sent;   /* was delivered: a handler may be entered */
	uint64_t resumed;   /* ticks */
	uint64_t epoch;	    /* of the space, when packets began */
	uint32_t since_time; /* instructions */
};

struct step {
	struct step_options options;
	struct step_clock clock;
	struct sideband *sideband;
	struct step_code code;
	struct pt_encoder_store *store;
	struct insn_log log;
	LIST_HEAD(, step_thread) threads[STEP_HASH];
	size_t n_threads;
	TAILQ_HEAD(, step_thread) turn;
	LIST_HEAD(, step_process) processes;
	STAILQ_HEAD(, step_stream) streams;
	size_t n_streams, sweep_at;
	struct step_stats stats;
	bool ending;
	bool timer_made;
	uint64_t deadline; /* io_now_ns(): max_seconds are over; 0: there is none */
	void (*on_wake)(void *arg);
	void *wake_arg;
	uint64_t wake_in; /* ns; 0: nobody waits for a stop */
	bool wake_set;	  /* the timer is */
};

/* ---- thread.c: the tables */

struct step_thread *step_thread_find(struct step *s, pid_t tid);
struct step_process *step_process_find(struct step *s, pid_t pid);
int step_process_add(struct step *s, pid_t pid, pid_t ppid, const struct address_space *from, struct step_process **ret)
	_must_check_;
int step_thread_add(struct step *s, struct step_process *process, pid_t tid, enum step_thread_state state,
		    struct step_thread **ret) _must_check_;
/* The last thread takes its process along. */
void step_thread_remove(struct step *s, struct step_thread *t);
void step_thread_rename(struct step *s, struct step_thread *t, pid_t tid);
int step_thread_begin_stream(struct step *s, struct step_thread *t) _must_check_;
void step_thread_end_stream(struct step *s, struct step_thread *t);
/* COMM of a thread as /proc has it. */
int step_thread_record_comm(struct step *s, const struct step_thread *t, bool exec) _must_check_;

/* ---- insn.c: instructions and packets */

/* What comes next; packets begin, or begin anew, where they must. */
int step_insn_prepare(struct step *s, struct step_thread *t) _must_check_;
/* The instruction at t->ip was executed and led to `regs`. */
int step_insn_executed(struct step *s, struct step_thread *t, const struct user_regs_struct *regs) _must_check_;
/* Packets end in front of t->ip. */
int step_insn_interrupt(struct step *s, struct step_thread *t) _must_check_;
/*
 * Packets end in front of what comes next, as they do at an interrupt, and after step_insn_resume() they begin there anew
 * with a PSB: what is recorded so far can be read, or forgotten.
 */
int step_insn_pause(struct step *s, struct step_thread *t) _must_check_;
int step_insn_resume(struct step *s, struct step_thread *t) _must_check_;
int step_insn_pause_all(struct step *s) _must_check_;
int step_insn_resume_all(struct step *s) _must_check_;
/* Whether what comes next is a system call, or looks like one. */
bool step_insn_enters_kernel(const struct step_thread *t);
/* The system call at t->ip began. */
int step_insn_enter_kernel(struct step *s, struct step_thread *t) _must_check_;
/* The kernel went back to the system call in front of `ip`, and it was executed once more. */
int step_insn_entered_again(struct step *s, struct step_thread *t, uint64_t ip) _must_check_;
/* It is over, and the thread goes on where `regs` are. */
int step_insn_leave_kernel(struct step *s, struct step_thread *t, const struct user_regs_struct *regs) _must_check_;
/* Whether the kernel has not decided yet if the system call is restarted. */
bool step_insn_restart_pending(const struct user_regs_struct *regs);
bool step_insn_is64(const struct user_regs_struct *regs);
/* The opcode of the instruction that comes next, prefixes skipped. */
uint8_t step_insn_opcode(const struct step_thread *t);

/* ---- trap_flag.c: the trap flag, ours and the program's */

/* An instruction was executed: what it may have done with the flag. */
void trap_flag_executed(struct step_thread *t, const struct user_regs_struct *regs);
void trap_flag_syscall(struct step_thread *t, const struct user_regs_struct *regs);
void trap_flag_handler(struct step_thread *t, const struct user_regs_struct *regs);
/* The registers have the program's flag, not ours; before it is left alone. */
void trap_flag_restore(const struct step_thread *t);

/* ---- signal_mask.c: SIGTRAP, blocked by the program */

/* The mask as it is, wherever the program may have got it from. */
void signal_mask_take(struct step_thread *t);
/* A system call that may have changed or shown the mask is over. */
void signal_mask_syscall(struct step_thread *t, const struct user_regs_struct *regs);
/* A handler is about to be entered: its frame holds the mask. */
void signal_mask_handler(struct step_thread *t, const struct user_regs_struct *regs);
/* As the program believes it to be. */
void signal_mask_restore(struct step_thread *t);

/* ---- stop.c: what a stop means */

/* A stop that waitpid() told, or an end. Failures end the recording. */
void step_stopped(struct step *s, pid_t tid, int status);
/* A new thread or process that has been seen at last. */
int step_meet_child(struct step *s, struct step_thread *parent, pid_t child) _must_check_;

/* ---- ring_trim.c: a ring forgets */

/* Between two stops. */
int ring_trim(struct step *s) _must_check_;

/* ---- run.c */

void step_end(struct step *s, enum step_end why, int error);
