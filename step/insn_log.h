/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text log of executed instructions, one "tid ip" in a line. A decoder of the recording must
 * find the same.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"

struct insn_log {
	int fd; /* -1: no log; not owned */
	size_t used;
	char buf[1 << 16];
};

/* Buffered. 0 or -errno of write(). */
int insn_log_add(struct insn_log *l, pid_t tid, uint64_t ip) _must_check_;
int insn_log_flush(struct insn_log *l) _must_check_;
