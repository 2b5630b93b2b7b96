/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Intel PT packets of threads that are stepped, by libipt's encoder: what hardware would have written for the
 * same instructions (Intel SDM volume 3, "Intel Processor Trace"). Owns the packets of all threads, in blocks
 * that each begin with a PSB, within one bound. Refuses to know registers, memory and how one steps.
 *
 * What hardware does and this does not: timing finer than TSC packets, CBR, deferred TIPs, anything of the kernel.
 *
 * A stream is on (instructions are recorded) or off. It begins off:
 *
 *	off -- begin --> on -- retire, sync, time --> on
 *	on -- end (a system call), interrupt (a signal, a fault, a resume elsewhere) --> off
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/base/insn.h"

struct steppt_config {
	uint32_t psb_bytes;   /* a PSB after so many bytes; it also bounds what is lost at once when overwriting */
	uint64_t max_bytes;   /* of all streams */
	bool overwrite;	      /* when that is reached the oldest block goes; else steppt_full() */
	bool plain_returns;   /* no compression of returns */
};

/* The streams of one recording and what they hold together. */
struct steppt_store;
int steppt_store_new(const struct steppt_config *config, struct steppt_store **ret) _must_check_;
struct steppt_store *steppt_store_free(struct steppt_store *store);
DEFINE_CLEANUP(struct steppt_store *, steppt_store_free)

/* Whether the bound is reached, and nothing may be overwritten. A stream still takes what ends it in order. */
bool steppt_full(const struct steppt_store *store);
/* Bytes that are kept, those that are not any more, and the time of the oldest block (0: there is none). */
uint64_t steppt_store_bytes(const struct steppt_store *store);
uint64_t steppt_store_overwritten(const struct steppt_store *store);
uint64_t steppt_store_first_tsc(const struct steppt_store *store);
/* The time since which nothing was overwritten; threads that did nothing since may have older blocks. 0: there is none. */
uint64_t steppt_store_since(const struct steppt_store *store);
/* Drops blocks that began before `tsc`, but for those that a stream which is on still writes. */
void steppt_drop_before(struct steppt_store *store, uint64_t tsc);

/* One thread's packets; freed with its store, or before. */
struct steppt;
int steppt_new(struct steppt_store *store, struct steppt **ret) _must_check_;
struct steppt *steppt_free(struct steppt *pt);
/* Nothing is written to it any more: where older blocks are overwritten, its last one may be, too. */
void steppt_close(struct steppt *pt);
/* Of a stream that is off: it goes on with a new block. */
void steppt_renew(struct steppt *pt);

/* Tracing goes on at `ip`. `tsc` must not be less than the last one. */
int steppt_begin(struct steppt *pt, uint64_t tsc, uint64_t ip, bool is64) _must_check_;
/* The instruction that retired last left the traced world. */
int steppt_end(struct steppt *pt) _must_check_;
/* Nothing from `ip` on was executed. */
int steppt_interrupt(struct steppt *pt, uint64_t ip) _must_check_;

/* `insn` at `ip` cannot lead to where the thread went; nothing is written. */
enum { STEPPT_E_ODD = 1 };

/*
 * `insn` at `ip` was executed and `next` comes after it. `taken`: of a conditional branch, used where both ways
 * lead to the same place. `is64`: the mode at `next`. Not for what enters the kernel: a system call ends the
 * stream (steppt_end), an INT n interrupts it at its own address. 0, STEPPT_E_ODD, -errno.
 */
int steppt_retire(struct steppt *pt, const struct insn *insn, uint64_t ip, uint64_t next, bool taken, bool is64)
	_must_check_;

/* The time before the instruction that comes next. */
int steppt_time(struct steppt *pt, uint64_t tsc) _must_check_;
/* A PSB where it is due; `ip` comes next. */
bool steppt_sync_due(const struct steppt *pt);
int steppt_sync(struct steppt *pt, uint64_t tsc, uint64_t ip) _must_check_;

/* ---- reading */

/* Bytes that are kept, those that were overwritten, and the first time stamp in what is kept. */
uint64_t steppt_bytes(const struct steppt *pt);
uint64_t steppt_overwritten(const struct steppt *pt);
uint64_t steppt_first_tsc(const struct steppt *pt);
/* Writes the bits of branches that wait for more of them; to be called before reading. */
int steppt_flush(struct steppt *pt) _must_check_;
/* Hands out what is kept, piece by piece; a negative answer ends that. */
typedef int (*steppt_fn)(void *arg, const void *bytes, size_t n);
int steppt_read(const struct steppt *pt, steppt_fn fn, void *arg) _must_check_;
