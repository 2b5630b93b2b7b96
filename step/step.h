/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stepped recording: all threads of a process, or of a command and what it starts, execute one
 * instruction at a time under ptrace. The recording keeps what they execute as Intel PT packets,
 * with the side-band that a decoder needs. It is exact and slow.
 *
 * The recorded programs should notice nothing but the time: their text stays as it is, signals, job
 * control and restarted system calls work as usual, and when the recording ends the programs run on
 * freely. What they may notice all the same is in the NOTES of tracerd-step(8). One thing harms
 * them: if SIGKILL kills the tracer, the kernel leaves the trap flag set in the threads, and
 * SIGTRAP kills them. So the tracer is a process of its own that nobody has a reason to kill
 * (main.c), and it detaches in order when its parent ends.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "common/bundle/perfdata_write.h"
#include "common/control/stepabi.h"

struct step_options {
	/* the perf.data, which names the code files. NULL: all in memory, for step_freeze() */
	const char *output;
	int log_fd;		/* receives "tid ip" for each instruction; -1: none; not owned */
	uint64_t max_insns;	/* this and the next two: 0 is no limit */
	uint64_t max_seconds;
	uint64_t max_bytes;	/* of packets; `ring` needs this limit */
	bool ring;		/* overwrite the oldest packets instead of ending at max_bytes */
	bool plain_returns;	/* do not compress returns */
	uint32_t time_insns;	/* at most so many instructions between two time stamps */
	uint32_t psb_bytes;
};

const char *step_end_name(enum step_end why);

struct step_stats {
	uint64_t insns, syscalls, signals, threads, processes, bytes, overwritten;
	uint64_t unexpected_jumps;     /* instructions that went where they cannot go */
	uint64_t threads_not_recorded; /* there were too many */
	uint64_t stacks_not_written;   /* there was no room left in the file */
	enum step_end end;
	int error;	   /* negative errno, with STEP_END_ERROR and STEP_END_LIMIT */
};

struct step;
int step_new(const struct step_options *options, struct step **ret) _must_check_;
struct step *step_free(struct step *s);
DEFINE_CLEANUP(struct step *, step_free)

/* Attaches to all threads of a process. -ESRCH, -EPERM ... */
int step_attach(struct step *s, pid_t pid) _must_check_;
/*
 * Starts a command and stops it at its first instruction. The error of exec if it cannot be
 * started.
 */
int step_start(struct step *s, char **argv) _must_check_;

/*
 * Steps until a limit is reached, all threads have exited, or step_ask_end() was called. Then
 * detaches from all threads, and returns when that is done or after a while, when some could not be
 * stopped yet: step_has_tail().
 */
void step_run(struct step *s);
bool step_has_tail(const struct step *s);
/*
 * Must be called if there is a tail, since abandoned threads die. Returns when it has detached from
 * all.
 */
void step_run_tail(struct step *s);

/*
 * step_ask_end() and step_wake() may be called in signal handlers. The first makes the recording
 * end soon; step_asks() counts its calls. The second makes step_run() call the function of
 * step_on_wake() soon, between two stops; it also calls that once at its start.
 */
void step_ask_end(void);
int step_asks(void);
void step_wake(void);
void step_on_wake(struct step *s, void (*fn)(void *arg), void *arg);
/* Calls that function in `ns`; without `without_stop` only if some thread has stopped by then. */
void step_wake_in(struct step *s, uint64_t ns, bool without_stop);

const struct step_stats *step_stats(struct step *s);
size_t step_alive(const struct step *s);
uint64_t step_max_bytes(const struct step *s);
/* CLOCK_MONOTONIC_RAW; all packets since then are kept. 0: there are none. */
uint64_t step_oldest_raw_ns(struct step *s);

/*
 * Writes the perf.data, after step_run(). -EFBIG if it is larger than max_bytes (0: no limit).
 * `stacks`: with those of all threads that live, as far as there is room, which are around what the
 * recording has of their calls.
 */
int step_write(struct step *s, int fd, uint64_t max_bytes, bool stacks) _must_check_;

/* A copy of the recording, in sealed memfds; -1 for those that would be empty. */
struct step_files {
	int perfdata, code, vdso;
	uint64_t raw_ns; /* it holds everything before */
};
#define STEP_FILES_INIT {.perfdata = -1, .code = -1, .vdso = -1}
void step_files_fini(struct step_files *f);

/*
 * Copies the recording, at any time and any number of times; the stepped threads wait meanwhile.
 * -EFBIG if the files together are larger than max_bytes.
 */
int step_freeze(struct step *s, uint64_t max_bytes, struct step_files *ret) _must_check_;
