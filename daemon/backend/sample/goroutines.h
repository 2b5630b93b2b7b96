/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processes run a Go program of which the programs in the kernel can read what goroutine a
 * thread runs, and where they find it.
 *
 * Does not know what is mapped (daemon/backend/sample/unwind.c), nor targets.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "daemon/backend/sample/bpf/goroutine.h"

struct filter;
struct json_object;

/* The Go program that a file is, if it is one. */
struct go_object {
	enum { GO_ABSENT, GO_KNOWN, GO_REFUSED } is;
	unsigned int minor; /* of 1.x; 0: it does not say */
	char refused[128];  /* why goroutines are not read */
	struct go_layout layout;
};
/* By what tracerd-decode says of the file; NULL: nothing. */
void go_object_parse(struct json_object *o, struct go_object *ret);

/* Of a process: how often it was read, by how that ended; of programs that it ran before, too. */
struct go_counts {
	uint64_t whys[GO_WHYS];
};

/*
 * The process runs this program from now on; nothing changes if it already does. 0, -errno: its
 * goroutines are not read.
 */
int goroutines_put(const struct filter *filter, pid_t pid,
		   const struct go_layout *layout) _must_check_;
/* It runs another program, has ended, or nobody records it. What was counted is added to *sum. */
void goroutines_drop(const struct filter *filter, pid_t pid, struct go_counts *sum);
void goroutines_count(const struct filter *filter, pid_t pid, struct go_counts *sum);
/* In words. NULL on allocation failure. */
struct json_object *goroutines_describe(pid_t pid, const struct go_object *object,
					const struct go_counts *counts);
