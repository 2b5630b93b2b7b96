/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the stepper share: its threads, processes and streams, and the functions of
 * each file.
 */
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
#define STEP_MAX_STREAMS 65536u /* in all; of a ring, at a time */
#define STEP_SWEEP_MIN 64u
#define STEP_HASH 1024u
#define STEP_FLAG_TRAP 0x100u

/*
 * The life of a thread:
 *
 *	NEW ----first stop----> RUNS <---> LISTENS (its group is stopped)
 *	COMMAND ----exec------>  |
 *	                         +--> LEAVES (it exits) --> removed; or removed at once, when we detach
 */
enum step_thread_state {
	STEP_THREAD_NEW,     /* it has not stopped yet */
	STEP_THREAD_COMMAND, /* our child before exec; not stepped */
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
	bool waits; /* it has stopped with `status`, and is in s->turn */
	int status;
	pid_t tid;
	struct step_process *process;
	struct step_stream *stream; /* NULL before the first stop */
	enum step_thread_state state;

	/*
	 * `ip`: of the next instruction, which is `insn` where `known`; in the kernel, of the
	 * system call.
	 */
	bool in_kernel;
	bool on;       /* packets flow */
	bool known;
	bool is64;
	bool restarts; /* in the kernel: the system call may begin again */
	bool paused;   /* step_insn_resume() makes packets flow again */
	bool own_tf;   /* the program has set the trap flag itself */
	/* the kernel is to learn again that the trap flag is ours, see trap_flag.c */
	bool refresh;
	bool trap_blocked; /* the program has blocked SIGTRAP, or believes so, see signal_mask.c */
	bool mask_unknown; /* read the signal mask when the system call is over */
	uint64_t ip;
	struct insn insn;
	uint8_t code[INSN_MAX];
	struct user_regs_struct regs; /* as they were at `ip`, where they were read there */

	int signal;	    /* to deliver when the thread continues */
	bool signal_sent;   /* delivered; the next stop may be at its handler */
	uint64_t resumed;   /* ticks */
	uint64_t epoch;	    /* of the address space, when packets began */
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
	uint64_t wake_in; /* ns after the next stop; 0: not wanted */
	bool wake_set;	  /* the timer is armed for it */
};

/* ---- thread.c: the tables */

struct step_thread *step_thread_find(struct step *s, pid_t tid);
struct step_process *step_process_find(struct step *s, pid_t pid);
int step_process_add(struct step *s, pid_t pid, pid_t ppid, const struct address_space *from,
		     struct step_process **ret) _must_check_;
int step_thread_add(struct step *s, struct step_process *process, pid_t tid,
		    enum step_thread_state state, struct step_thread **ret) _must_check_;
/* With its last thread a process goes, too. */
void step_thread_remove(struct step *s, struct step_thread *t);
void step_thread_rename(struct step *s, struct step_thread *t, pid_t tid);
int step_thread_begin_stream(struct step *s, struct step_thread *t) _must_check_;
void step_thread_end_stream(struct step *s, struct step_thread *t);
/* Records the name that /proc has for the thread. */
int step_thread_record_comm(struct step *s, const struct step_thread *t, bool exec) _must_check_;

/* ---- insn.c: instructions and packets */

/* Fetches the next instruction; starts packets, or restarts them, where that is due. */
int step_insn_prepare(struct step *s, struct step_thread *t) _must_check_;
/* The instruction at t->ip was executed and led to `regs`. */
int step_insn_executed(struct step *s, struct step_thread *t,
		       const struct user_regs_struct *regs) _must_check_;
/* Packets end before t->ip. */
int step_insn_interrupt(struct step *s, struct step_thread *t) _must_check_;
/*
 * Packets end before the next instruction, as at an interrupt, and step_insn_resume() restarts them
 * there with a PSB. In between the recording so far can be read or dropped.
 */
int step_insn_pause(struct step *s, struct step_thread *t) _must_check_;
int step_insn_resume(struct step *s, struct step_thread *t) _must_check_;
int step_insn_pause_all(struct step *s) _must_check_;
int step_insn_resume_all(struct step *s) _must_check_;
/* Whether the next instruction is a system call, or may be one (INT n). */
bool step_insn_enters_kernel(const struct step_thread *t);
/* The system call at t->ip began. */
int step_insn_enter_kernel(struct step *s, struct step_thread *t) _must_check_;
/* The kernel restarted the system call before `ip`. */
int step_insn_entered_again(struct step *s, struct step_thread *t, uint64_t ip) _must_check_;
/* The system call is over, and the thread continues at `regs`. */
int step_insn_leave_kernel(struct step *s, struct step_thread *t,
			   const struct user_regs_struct *regs) _must_check_;
/* Whether the kernel may still restart the system call. */
bool step_insn_restart_pending(const struct user_regs_struct *regs);
bool step_insn_is64(const struct user_regs_struct *regs);
/* The opcode of the next instruction, after its prefixes. */
uint8_t step_insn_opcode(const struct step_thread *t);

/* ---- trap_flag.c: the trap flag, ours and the program's */

/* Follows what the executed instruction may have done with the flag. */
void trap_flag_executed(struct step_thread *t, const struct user_regs_struct *regs);
void trap_flag_syscall(struct step_thread *t, const struct user_regs_struct *regs);
void trap_flag_handler(struct step_thread *t, const struct user_regs_struct *regs);
/* Before we detach: the registers get the program's flag instead of ours. */
void trap_flag_restore(const struct step_thread *t);

/* ---- signal_mask.c: SIGTRAP, blocked by the program */

/* Reads the mask, and unblocks SIGTRAP in it. */
void signal_mask_take(struct step_thread *t);
/* A system call is over that may have changed the mask or read it. */
void signal_mask_syscall(struct step_thread *t, const struct user_regs_struct *regs);
/* A handler is about to be entered: its frame holds the mask. */
void signal_mask_handler(struct step_thread *t, const struct user_regs_struct *regs);
/* Before we detach: blocks SIGTRAP where the program believes that it is blocked. */
void signal_mask_restore(struct step_thread *t);

/* ---- stop.c: what a stop means */

/* Handles a stop or an end that waitpid() reported. Failures end the recording. */
void step_stop_handle(struct step *s, pid_t tid, int status);

/* ---- ring_trim.c */

/* Between two stops: drops what the packets in the ring do not need any more. */
int ring_trim(struct step *s) _must_check_;

/* ---- run.c */

void step_end(struct step *s, enum step_end why, int error);
