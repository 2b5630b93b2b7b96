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
 * Records must be older than the time at which a thread runs what they tell, so address_space_epoch() moves with each.
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
struct address_space_shared {
	struct sideband *sideband;
	struct step_clock *clock;
	struct step_code *code;
};

struct address_space;
int address_space_new(const struct address_space_shared *shared, pid_t pid, struct address_space **ret) _must_check_;
/* For a child: it has the mappings of `from`, and nobody needs to be told. */
int address_space_copy(const struct address_space *from, pid_t pid, struct address_space **ret) _must_check_;
struct address_space *address_space_free(struct address_space *s);
DEFINE_CLEANUP(struct address_space *, address_space_free)

/* Another program: nothing of what was mapped is left. */
void address_space_clear(struct address_space *s);

/*
 * Records all that is mapped, and the pages that are in the code file, once more: what came before may be forgotten.
 * address_space_forget_pages() lets go of the pages, which are met again when they run.
 */
int address_space_record(const struct address_space *s, uint64_t ticks, pid_t tid) _must_check_;
void address_space_forget_pages(struct address_space *s);

/* Reads the mappings as `tid`, a thread that is stopped, has them, and records those that are new. 0 or -errno. */
int address_space_reread(struct address_space *s, pid_t tid) _must_check_;

/* No instruction there that could be read. */
enum { ADDRESS_SPACE_E_NO_INSN = 1 };

/* The instruction at `ip` as `tid` is about to execute it, and its bytes. 0, ADDRESS_SPACE_E_NO_INSN, -errno. */
int address_space_fetch(struct address_space *s, pid_t tid, uint64_t ip, bool is64, uint8_t code[INSN_MAX],
			struct insn *ret)
	_must_check_;

/* Moves whenever a record of a mapping was made. */
uint64_t address_space_epoch(const struct address_space *s);
