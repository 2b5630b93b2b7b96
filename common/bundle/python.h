/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The functions that a CPython interpreter runs, as the BPF program finds them in its memory
 * (daemon/backend/sample/bpf/python.bpf.h), the daemon keeps them (daemon/backend/sample/python.c)
 * and tracerd-decode names them (decode/stack/python.c). Little endian, fixed-width fields.
 *
 * A function is written down once, with a number that no other one has; a stack has the numbers.
 */
#pragma once

#include "common/bundle/schedev.h"

/*
 * Where the interpreter has what: offsets in its structures, in bytes. What is read of each is
 * bounded by these.
 */
#define PYTHON_THREAD_BYTES 192u
#define PYTHON_FRAME_BYTES 80u
#define PYTHON_CODE_AT 64u /* of a code object these bytes are read */
#define PYTHON_CODE_BYTES 96u
#define PYTHON_NONE 0xffffu /* it has no such field */
#define PYTHON_RUNTIME_BYTES (1u << 20)

#ifdef __bpf__
typedef unsigned char python_u8;
#else
typedef uint8_t python_u8;
#endif

struct python_layout {
	schedev_u32 interpreters; /* in the runtime: the first interpreter */
	schedev_u32 next_interpreter, threads; /* in an interpreter */
	schedev_u16 prev, next, interpreter, native_id; /* in a thread's state */
	schedev_u16 frame;	 /* the same: the innermost frame, or what has it: */
	schedev_u16 frame_within; /* PYTHON_NONE, or where that has it */
	schedev_u16 code, previous, owner; /* in a frame */
	schedev_u16 is_entry;	 /* PYTHON_NONE: a frame of its own is at the border */
	/*
	 * -1 while it runs, else how much is on its stack; PYTHON_NONE: that is not told, but its
	 * caller is there before it is
	 */
	schedev_u16 top;
	schedev_u16 file, name, line; /* in a code object */
	/* PYTHON_NONE: there is nothing that tells a code object from another at its place */
	schedev_u16 version;
	schedev_u16 ascii, other; /* where the bytes of a string are, by what it is of */
};

/*
 * Words of a stack, behind its addresses: a head, then frames, the innermost first. The head is no
 * address of a program. A frame has the number of its function, 0 if that could not be read.
 */
#define PYTHON_HEAD 0xfeed000000000000ULL
#define PYTHON_HEAD_MASK 0xffff000000000000ULL
#define PYTHON_HEAD_WORD(why, n) (PYTHON_HEAD | (schedev_u64)(why) << 16 | (n))
#define PYTHON_NATIVE_CUT (1ULL << 24) /* in the head: of the addresses the outermost are missing */
/*
 * The same: the innermost function is not one that runs. It is being called, or has been returned
 * to, and if the loop itself is at work then what it has written is not yet, or not any more, a
 * list of who has called whom.
 */
#define PYTHON_STOPPED (1ULL << 25)
/*
 * The same: the innermost function is known to run. So no call of the loop has just begun, or is
 * about to return, without a frame.
 */
#define PYTHON_RUNS (1ULL << 26)
#define PYTHON_WHY(head) ((schedev_u32)((head) >> 16) & 0xffu)
#define PYTHON_COUNT(head) ((schedev_u32)(head) & 0xffffu)
/*
 * the outermost frame of a call of the interpreter's loop, or, without a function, its border alone
 */
#define PYTHON_ENTRY (1ULL << 63)
#define PYTHON_BORDER (1ULL << 62) /* no function: see PYTHON_ENTRY */
#define PYTHON_ID_MASK ((1ULL << 40) - 1)
#define PYTHON_CPU_BITS 28 /* a number is one of a CPU */

#define PYTHON_FRAMES_MAX 128u

/* How the search for a thread's frames ended. */
enum python_why {
	PYTHON_COMPLETE, /* also of a thread that runs nothing of Python now */
	PYTHON_DEEP,	 /* as many frames as may be */
	PYTHON_NO_THREAD, /* the interpreter does not know the thread */
	PYTHON_NO_READ,	 /* memory that is not there */
	/* there are several interpreters: which one a thread is in is not told */
	PYTHON_SUBINTERPRETERS,
	/* more threads than are looked through at once: it may be found the next time */
	PYTHON_CROWDED,
	PYTHON_BETWEEN,	 /* the interpreter is between two functions: its frames lead nowhere */
	PYTHON_WHYS,
};

/* In front of the words where the record is not a "sched" event: there they are behind that. */
#define PYTHON_MAGIC 0x01595054u

/* Text as the interpreter has it: characters of `kind` bytes each, in [0, 0x10ffff]. */
#define PYTHON_NAME_BYTES 256u
#define PYTHON_FILE_BYTES 512u

/*
 * A function, as the program writes it down. In a bundle it is behind a "sched" event of its own
 * kind.
 */
struct python_function {
	schedev_u64 id;
	schedev_u64 code;	/* where it is */
	schedev_u32 pid, generation;
	schedev_u32 line;	/* of its first line */
	schedev_u16 name_bytes, file_bytes;
	python_u8 name_kind, file_kind;
	python_u8 name_cut, file_cut; /* the end of the name is missing, the begin of the path */
	schedev_u32 reserved;
	python_u8 name[PYTHON_NAME_BYTES];
	python_u8 file[PYTHON_FILE_BYTES];
};
