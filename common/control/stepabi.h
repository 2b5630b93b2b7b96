/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol between tracerd and tracerd-step: packets on a SOCK_SEQPACKET pair, each of them one
 * of these structs in native byte order, none longer than STEPABI_MAX.
 *
 *	tracectl			starts tracerd-step --control FD -p PID, as the user of the target
 *	tracerd-step -> tracectl	struct stepabi_hello, once: it has attached, or why it cannot
 *	tracectl -> tracerd		passes its end of the pair with "target.arm" (descriptor "step")
 *	tracerd-step -> tracerd		struct stepabi_stats, at most two a second, when something has changed
 *	tracerd -> tracerd-step		struct stepabi_freeze with one descriptor, a SOCK_SEQPACKET socket
 *	tracerd-step -> that socket	struct stepabi_frozen with the files of the recording, once
 *
 * Closing the connection ends the recording: the stepper detaches, and all threads run on freely.
 * Until then tracerd-step stays, even when its program has ended, so that the program's last
 * moments can still be requested.
 *
 * A stepper is the user's process, so tracerd trusts nothing of this. It refuses files that are not
 * memfds with the seals STEPABI_SEALS.
 */
#pragma once

#include <fcntl.h>
#include <stdint.h>

#define STEPABI_VERSION 2u
#define STEPABI_MAX 512u
#define STEPABI_TEXT 200u
/* The content of a file that has them is final. */
#define STEPABI_SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/*
 * The file that MMAP2 records name for code that exists in no file. It is relative to images/ of a
 * bundle, or to a tree for `perf script --symfs`.
 */
#define STEPABI_CODE_PATH "/tracerd-step.code"

/*
 * The command that perf.data files of stepped programs name as their recorder. By it a decoder
 * knows that times in them are the stepper's, and not what the program would have taken.
 */
#define STEPABI_COMMAND "tracerd-step"

enum stepabi_type {
	STEPABI_HELLO = 1,
	STEPABI_STATS = 2,
	STEPABI_FREEZE = 3,
	STEPABI_FROZEN = 4,
};

struct stepabi_hello {
	uint32_t type, version;
	int32_t pid;		 /* of the process that it steps */
	int32_t error;		 /* 0, or a negative errno: the stepper ends now */
	char why[STEPABI_TEXT];	 /* the error as a sentence, terminated */
};

/* Why a recording ended. */
enum step_end {
	STEP_END_NONE,
	STEP_END_EXITED, /* all threads have exited */
	STEP_END_ASKED,
	STEP_END_INSNS,
	STEP_END_SECONDS,
	STEP_END_BYTES,
	STEP_END_LIMIT, /* of threads, side-band or code pages, which programs should not reach */
	STEP_END_ERROR,
};

/* All but the last three count since the recording began. */
struct stepabi_stats {
	uint32_t type;
	uint32_t ended;		 /* enum step_end; 0: not yet */
	int32_t error;		 /* why it ended, or 0 */
	uint32_t threads;	 /* alive and stepped */
	uint64_t insns, syscalls, signals;
	uint64_t threads_all, processes_all;
	uint64_t unexpected_jumps;	/* instructions that went where they cannot go */
	uint64_t threads_not_recorded;	/* there were too many */
	/* of threads, at a freeze: there was no room left in the file */
	uint64_t stacks_not_written;
	uint64_t overwritten;	 /* bytes of packets */
	uint64_t bytes;		 /* of packets in memory */
	uint64_t max_bytes;	 /* their limit */
	/* CLOCK_MONOTONIC_RAW; all packets since then are in memory. 0: there are none */
	uint64_t oldest_raw_ns;
};

struct stepabi_freeze {
	uint32_t type, reserved;
	uint64_t max_bytes;	 /* of all files; the reply for a larger recording is -EFBIG */
};

enum stepabi_file {
	STEPABI_FILE_PERFDATA = 1u << 0, /* a perf.data on CLOCK_MONOTONIC_RAW */
	STEPABI_FILE_CODE = 1u << 1,	 /* an ELF image of pages, see step/code.h */
	STEPABI_FILE_VDSO = 1u << 2,	 /* an ELF image */
};

struct stepabi_frozen {
	uint32_t type;
	/* enum stepabi_file; the descriptors come in this order, lowest bit first */
	uint32_t files;
	int32_t error;		 /* 0, or a negative errno and no files */
	uint32_t reserved;
	uint64_t raw_ns;	 /* CLOCK_MONOTONIC_RAW; the recording holds everything before */
	struct stepabi_stats stats;
};
