/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stepped recording: every thread of a process, or of a command and all that it starts, executes one
 * instruction at a time under ptrace, and what it executed is kept as Intel PT packets with the side-band that
 * a decoder needs. Exact and slow.
 *
 * The recorded programs must not notice but for the time: no text is changed, signals, job control and
 * restarted system calls are as without us, and they go on when the recording ends. The one thing that cannot
 * be helped: the kernel leaves the trap flag set in threads whose tracer is killed by SIGKILL, and they die of
 * SIGTRAP. So the tracer is a process of its own that nobody has a reason to kill (main.c), and ends in
 * order when its parent goes.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "common/bundle/perfdata_write.h"
#include "common/control/stepabi.h"

struct step_options {
	const char *output;	/* names the code files; absolute or relative. NULL: for step_freeze() */
	int log_fd;		/* -1, or where "tid ip" goes for each instruction; not owned */
	uint64_t max_insns;	/* these three: 0 is no limit */
	uint64_t max_seconds;
	uint64_t max_bytes;	/* of packets; one must be given with `ring` */
	bool ring;		/* keep the last max_bytes instead of ending there */
	bool plain_returns;	/* no compression of returns */
	uint32_t time_insns;	/* a time stamp after so many instructions without one */
	uint32_t psb_bytes;
};

const char *step_end_name(enum step_end why);

struct step_stats {
	uint64_t insns, syscalls, signals, threads, processes, bytes, overwritten;
	uint64_t unexpected_jumps;     /* instructions that went where they cannot go */
	uint64_t threads_not_recorded; /* there were too many */
	enum step_end end;
	int error;	   /* negative errno, with STEP_END_ERROR and STEP_END_LIMIT */
};

struct step;
int step_new(const struct step_options *options, struct step **ret) _must_check_;
struct step *step_free(struct step *s);
DEFINE_CLEANUP(struct step *, step_free)

/* Begins with all threads of a process. -ESRCH, -EPERM ... */
int step_attach(struct step *s, pid_t pid) _must_check_;
/* Begins with a command, from its first instruction. What exec said if it cannot be started. */
int step_start(struct step *s, char **argv) _must_check_;

/*
 * Steps until a limit is reached, everything has ended, or step_ask_end() was called, and lets all threads go
 * on. Answers when they are, or after a while: then step_run_tail() waits for those that could not be stopped
 * yet.
 */
void step_run(struct step *s);
bool step_has_tail(const struct step *s);
/* Must be called if there is a tail: threads that are left alone would die. Returns when all have gone on. */
void step_run_tail(struct step *s);

/*
 * From a signal handler: the recording ends soon; and how often that was asked for. The other one: step_run() calls
 * what step_on_wake() named soon, between two stops, and once at its start.
 */
void step_ask_end(void);
int step_asks(void);
void step_wake(void);
void step_on_wake(struct step *s, void (*fn)(void *arg), void *arg);
/* Calls it in so many nanoseconds: if a thread stops until then, or even if none does. */
void step_wake_in(struct step *s, uint64_t ns, bool without_stop);

const struct step_stats *step_stats(struct step *s);
size_t step_alive(const struct step *s);
uint64_t step_max_bytes(const struct step *s);
/* CLOCK_MONOTONIC_RAW since when all packets are kept; 0: there are none. */
uint64_t step_oldest_raw_ns(struct step *s);

/* Writes the perf.data, after step_run(). At most max_bytes (0: as many as it takes), or -EFBIG. */
int step_write(struct step *s, int fd, uint64_t max_bytes) _must_check_;

/* The recording as it is now, in memfds that nobody can write; -1 for those that would be empty. */
struct step_files {
	int perfdata, code, vdso;
	uint64_t raw_ns; /* what happened before is in it */
};
#define STEP_FILES_INIT {.perfdata = -1, .code = -1, .vdso = -1}
void step_files_fini(struct step_files *f);

/*
 * Copies what is recorded, at any time and as often as one likes; threads that are stepped wait meanwhile. -EFBIG if
 * the files together would have more than max_bytes.
 */
int step_freeze(struct step *s, uint64_t max_bytes, struct step_files *ret) _must_check_;
