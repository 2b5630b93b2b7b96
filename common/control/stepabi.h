/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tracerd and tracerd-step say to each other: packets of a SOCK_SEQPACKET pair, each one of the structs here
 * in native byte order, none of them longer than STEPABI_MAX.
 *
 *	whoever starts it (tracectl)	tracerd-step --control FD -p PID, as the user of the target
 *	tracerd-step -> holder		struct stepabi_hello, once: it steps, or why not
 *	tracectl -> tracerd		the holder's end goes along with "target.arm" (descriptor "step")
 *	tracerd-step -> tracerd		struct stepabi_stats, at most two a second, when something has changed
 *	tracerd -> tracerd-step		struct stepabi_freeze with one descriptor, a SOCK_SEQPACKET socket
 *	tracerd-step -> that socket	struct stepabi_frozen with the files of the recording, once
 *
 * The end of the connection is the end of the recording: all threads go on by themselves. tracerd-step outlives
 * what it stepped until then, so that the last moments of a program that has died can be had.
 *
 * tracerd believes none of it: a stepper is the user's process. The files are memfds with the seals STEPABI_SEALS, or
 * refused.
 */
#pragma once

#include <fcntl.h>
#include <stdint.h>

#define STEPABI_VERSION 1u
#define STEPABI_MAX 512u
#define STEPABI_TEXT 200u
/* Nobody can change what was passed on. */
#define STEPABI_SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/*
 * Where MMAP2 records of the recording say that code is which exists in no file: below images/ of a bundle, and
 * below a tree that `perf script --symfs` reads.
 */
#define STEPABI_CODE_PATH "/tracerd-step.code"

/*
 * The command that perf.data files of stepped programs name as their recorder. By it a decoder knows that times in them
 * are the stepper's, and not what the program would have taken.
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
	int32_t pid;		 /* what is stepped */
	int32_t error;		 /* 0, or a negative errno: it ends now */
	char why[STEPABI_TEXT];	 /* the sentence to it, with its 0 */
};

/* Why a recording ended. */
enum step_end {
	STEP_END_NONE,
	STEP_END_EXITED, /* nothing is left to record */
	STEP_END_ASKED,
	STEP_END_INSNS,
	STEP_END_SECONDS,
	STEP_END_BYTES,
	STEP_END_LIMIT, /* threads, side-band, code pages: bounds that nobody should meet */
	STEP_END_ERROR,
};

/* Of the whole recording but for the last three. */
struct stepabi_stats {
	uint32_t type;
	uint32_t ended;		 /* enum step_end: 0 while it goes on */
	int32_t error;		 /* that ended it, or 0 */
	uint32_t threads;	 /* alive and stepped */
	uint64_t insns, syscalls, signals;
	uint64_t threads_all, processes_all;
	uint64_t unexpected_jumps;	/* instructions that went where they cannot go */
	uint64_t threads_not_recorded;	/* there were too many */
	uint64_t overwritten;	 /* bytes of packets */
	uint64_t bytes;		 /* of packets, kept now */
	uint64_t max_bytes;	 /* at most that many */
	uint64_t oldest_raw_ns;	 /* CLOCK_MONOTONIC_RAW since when all packets are kept; 0: there are none */
};

struct stepabi_freeze {
	uint32_t type, reserved;
	uint64_t max_bytes;	 /* of all files; a larger recording is answered with -EFBIG */
};

enum stepabi_file {
	STEPABI_FILE_PERFDATA = 1u << 0, /* a perf.data; its times are of CLOCK_MONOTONIC_RAW, and it says so */
	STEPABI_FILE_CODE = 1u << 1,	 /* an ELF image of pages, see step/code.h */
	STEPABI_FILE_VDSO = 1u << 2,	 /* an ELF image */
};

struct stepabi_frozen {
	uint32_t type;
	uint32_t files;		 /* enum stepabi_file: what the descriptors are, lowest bit first */
	int32_t error;		 /* 0 or a negative errno; then no files */
	uint32_t reserved;
	uint64_t raw_ns;	 /* CLOCK_MONOTONIC_RAW: what happened before is in it */
	struct stepabi_stats stats;
};
