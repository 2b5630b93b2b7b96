/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records made from /proc: what the kernel would have reported of a process that was watched from
 * its start. COMM and FORK of each thread, NAMESPACES, MMAP2 of each executable mapping, all with
 * one time stamp. Does not know who gets them.
 */
#pragma once

#include <linux/perf_event.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "common/base/procfs.h"

/* Gets each record; the memory is valid during the call. A negative answer ends the work. */
typedef int (*proc_records_fn)(void *arg, const struct perf_event_header *record);

enum proc_records_what {
	PROC_RECORDS_THREADS = 1 << 0,
	PROC_RECORDS_MAPS = 1 << 1,
	PROC_RECORDS_NAMESPACES = 1 << 2,
	PROC_RECORDS_ALL = 7,
};

/* `tid`: that thread and the leader only; 0: all. 0, PROC_E_GONE, -errno. */
int proc_records_read(int proc_dirfd, pid_t pid, pid_t tid, uint64_t time_ns, unsigned int what,
		      proc_records_fn fn, void *arg) _must_check_;
