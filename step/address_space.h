/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The code of one stepped process: its executable mappings, and the bytes that its threads
 * executed, so that a decoder finds the same bytes at the same time. Owns the list of mappings and
 * copies of the pages that ran.
 *
 *   - An executable mapping gets an MMAP2 record when it is first seen.
 *   - A page that runs for the first time is compared with the file of its mapping. If the file is
 *     missing or differs (a JIT, a deleted file, relocated code), the page goes to the code file
 *     and gets a record of its own.
 *   - Writable code is compared with that copy at each instruction, and saved again when it has
 *     changed.
 *
 * A record must be older than the first instruction in what it maps, so address_space_epoch()
 * changes with each.
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
int address_space_new(const struct address_space_shared *shared, pid_t pid,
		      struct address_space **ret) _must_check_;
/* For a child, which has the mappings of `from`: no records. */
int address_space_copy(const struct address_space *from, pid_t pid,
		       struct address_space **ret) _must_check_;
struct address_space *address_space_free(struct address_space *s);
DEFINE_CLEANUP(struct address_space *, address_space_free)

/* After exec: nothing is mapped any more. */
void address_space_clear(struct address_space *s);

/*
 * Records all mappings and all pages in the code file once more, so that older records can be
 * dropped. address_space_forget_pages() drops the copies of pages; they are read again when they
 * run.
 */
int address_space_record(const struct address_space *s, uint64_t ticks, pid_t tid) _must_check_;
void address_space_forget_pages(struct address_space *s);

/* Reads the mappings of the stopped thread `tid`, and records those that are new. 0 or -errno. */
int address_space_reread(struct address_space *s, pid_t tid) _must_check_;

/* There is no readable instruction. */
enum { ADDRESS_SPACE_E_NO_INSN = 1 };

/*
 * The instruction at `ip` as `tid` is about to execute it, and its bytes. 0,
 * ADDRESS_SPACE_E_NO_INSN, -errno.
 */
int address_space_fetch(struct address_space *s, pid_t tid, uint64_t ip, bool is64,
			uint8_t code[INSN_MAX], struct insn *ret) _must_check_;

/* Memory of the process, as far as it can be read there; returns how many bytes. */
size_t address_space_read_memory(pid_t tid, uint64_t address, uint8_t *buf, size_t n);

/* Changes with each record of a mapping. */
uint64_t address_space_epoch(const struct address_space *s);
