/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread's stack in a perf.data, as a freeze takes it: a sample of a dummy event, with the user's
 * registers and the bytes from the stack pointer on. Stock perf shows it as that. Owns the record's
 * layout.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

#include "common/base/cleanup.h"
#include "common/bundle/perfdata_write.h"

/* Bytes of a stack at most; a record has fewer than 64 KiB. */
#define STACKREC_MAX (60u << 10)

/* The event of such records, whose id is `id`. As perfdata_add_event(). */
int stackrec_add_event(struct perfdata_writer *w, uint64_t id) _must_check_;

struct stackrec {
	uint64_t id;
	pid_t pid, tid;
	uint64_t time;
	const struct user_regs_struct *regs;
	const void *stack; /* from regs->rsp on */
	size_t stack_bytes; /* of which STACKREC_MAX are written at most */
};
/* As perfdata_write(). */
int stackrec_write(struct perfdata_writer *w, const struct stackrec *rec) _must_check_;
