/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The code of one process that is stepped: what is mapped executable, and the bytes that its threads executed,
 * so that whoever decodes the recording finds the same bytes at the same time. Owns the list of mappings and
 * copies of the pages that ran.
 *
 *   - Each executable mapping becomes an MMAP2 record when it is first seen.
 *   - A page that runs for the first time is compared with the file that its mapping names. Is it not there, or
 *     different (a JIT, a deleted file, relocated code), the page goes to the code file and gets a record of
 *     its own.
 *   - Code that can be written is compared with that copy at each instruction; when it has changed it is
 *     written again.
 *
 * Records must be older than the time at which a thread runs what they tell, so stepspace_epoch() moves with each.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "common/base/insn.h"
#include "step/clock.h"
#include "step/code.h"
#include "step/sideband.h"

/* What all processes of a recording share; not owned. */
struct stepspace_to {
	struct sideband *sideband;
	struct stepclock *clock;
	struct stepcode *code;
};

struct stepspace;
int stepspace_new(const struct stepspace_to *to, pid_t pid, struct stepspace **ret) _must_check_;
/* For a child: it has the mappings of `from`, and nobody needs to be told. */
int stepspace_copy(const struct stepspace *from, pid_t pid, struct stepspace **ret) _must_check_;
struct stepspace *stepspace_free(struct stepspace *s);
DEFINE_CLEANUP(struct stepspace *, stepspace_free)

/* Another program: nothing of what was mapped is left. */
void stepspace_clear(struct stepspace *s);

/*
 * Records all that is mapped, and the pages that are in the code file, once more: what came before may be forgotten.
 * stepspace_forget() lets go of the pages, which are met again when they run.
 */
int stepspace_tell(const struct stepspace *s, uint64_t ticks, pid_t tid) _must_check_;
void stepspace_forget(struct stepspace *s);

/* Reads the mappings as `tid`, a thread that is stopped, has them, and records those that are new. 0 or -errno. */
int stepspace_reread(struct stepspace *s, pid_t tid) _must_check_;

/* No instruction there that could be read. */
enum { STEPSPACE_E_NONE = 1 };

/* The instruction at `ip` as `tid` is about to execute it, and its bytes. 0, STEPSPACE_E_NONE, -errno. */
int stepspace_fetch(struct stepspace *s, pid_t tid, uint64_t ip, bool is64, uint8_t code[INSN_MAX], struct insn *ret)
	_must_check_;

/* Moves whenever a record of a mapping was made. */
uint64_t stepspace_epoch(const struct stepspace *s);
