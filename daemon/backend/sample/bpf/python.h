/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The maps by which the programs find the frames of Python's functions (python.bpf.h), shared with
 * the daemon (python.c).
 */
#pragma once

#include "common/bundle/python.h"

#define PYTHON_PROCESSES 1024u
#define PYTHON_THREADS 8192u
#define PYTHON_CODES 32768u
#define PYTHON_WRITES_MAX 4096u /* functions of a process that are written down in a second */
#define PYTHON_SWITCH_FRAMES 62u /* with its addresses and a head they are FILTER_KEPT_FRAMES */
#define PYTHON_RING_BYTES (512u << 10)

/* Of a thread group, in the numbers of the daemon's namespace. */
struct python_process {
	schedev_u64 runtime; /* where the interpreter's state is */
	/* of the program in it: what was found in another one's memory is not believed */
	schedev_u32 generation;
	schedev_u32 unnamed; /* frames whose function could not be read, or found no room */
	schedev_u32 whys[PYTHON_WHYS];
	schedev_u64 second;	/* of the last function that was written down */
	schedev_u32 written;	/* so many in it */
	schedev_u32 reserved;
	struct python_layout layout;
};

/* A function that has been written down, by where its code is. */
struct python_code_key {
	schedev_u32 pid, generation;
	schedev_u64 code;
};
struct python_code_seen {
	schedev_u64 id;
	schedev_u64 print; /* what tells it from another one that was at its place */
	schedev_u64 used;  /* it has been seen again since the daemon last looked */
};
