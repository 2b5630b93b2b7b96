/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Where a thread of a Go program keeps the goroutine that it runs, as the BPF program reads it
 * (daemon/backend/sample/bpf/goroutine.bpf.h) and tracerd-decode tells it of a file
 * (decode/object/go_object.c).
 */
#pragma once

#include "common/bundle/schedev.h"

#define GO_THREAD_POINTER_MAX (1u << 16)
#define GO_STRUCT_MAX 1024u

/*
 * Offsets in bytes. The thread's g is that of whatever runs: the scheduler's and a signal handler's
 * are not a user's goroutine.
 */
struct go_layout {
	schedev_u32 below; /* the thread pointer: there is the g */
	schedev_u16 m;	   /* in a g: the thread, as the runtime knows it */
	schedev_u16 status, goid; /* the same */
	schedev_u16 procid; /* in an m: the kernel's number of the thread */
	/* the same: the goroutine of a user that runs, whatever the thread does for it */
	schedev_u16 curg;
	schedev_u16 reserved;
};

/* How the search for a thread's goroutine ended. */
enum go_why {
	GO_FOUND,
	GO_NONE,      /* the thread runs none: the scheduler, or nothing */
	GO_NO_THREAD, /* the runtime does not know the thread: it is C's, or has just begun */
	GO_NO_READ,   /* memory that is not there */
	GO_WHYS,
};
