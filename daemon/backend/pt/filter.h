/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Address filters: the code that alone is traced, as places in files. The kernel knows where each
 * process has a file mapped, also after it has executed another program, and limits the processor
 * to that.
 *
 * Who asks for one says which file it is by device and inode; here the target's own mapping of it
 * is found, and the kernel gets that very file by a descriptor. No name is looked up that could be
 * another file in the target's mount namespace, and no byte of it is read. A file of a file system
 * that a program serves (FUSE) is refused before it is touched.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "daemon/target/target.h"

#define PT_FILTER_NAME_MAX 256

struct pt_range {
	uint32_t maj, min; /* as the kernel names the file in /proc/PID/maps */
	uint64_t ino, offset, size;
	char name[PT_FILTER_NAME_MAX + 1]; /* how the user calls it */
	/* once it is found */
	char *path; /* as mapped */
	int fd;	    /* O_PATH; -1: not found yet */
};

struct closer;

struct pt_filter {
	unsigned int refs; /* the loop's */
	struct closer *closer; /* not owned */
	size_t n;
	struct pt_range v[TARGET_FILTERS_MAX];
};

/* "MAJOR:MINOR:INODE:OFFSET:SIZE:NAME", as the protocol has it. 0, -EINVAL. */
int pt_range_parse(const char *text, struct pt_range *ret) _must_check_;

/* Of 1 to TARGET_FILTERS_MAX texts. The closer closes the files. 0, -EINVAL, -ENOMEM. */
int pt_filter_new(const char *const *texts, size_t n, struct closer *closer,
		  struct pt_filter **ret) _must_check_;
struct pt_filter *pt_filter_ref(struct pt_filter *f);
struct pt_filter *pt_filter_put(struct pt_filter *f);
DEFINE_CLEANUP(struct pt_filter *, pt_filter_put)

/*
 * Finds the files, on a thread, in the process of `proc_dirfd`. 0, also if they were found before;
 * -errno; TARGET_E_*: `why` is a sentence.
 */
int pt_filter_find(struct pt_filter *f, int proc_dirfd, char *why, size_t size) _must_check_;

#define PT_FILTER_KERNEL_MAX (TARGET_FILTERS_MAX * 96)
/* What PERF_EVENT_IOC_SET_FILTER takes, as long as the descriptors are open. */
void pt_filter_kernel_text(const struct pt_filter *f, char ret[PT_FILTER_KERNEL_MAX]);
/*
 * The same with the paths, as perf.data has it; NULL: perf could not read a path in it, or no
 * memory.
 */
char *pt_filter_perf_text(const struct pt_filter *f);
