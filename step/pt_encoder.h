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

struct pt_encoder_config {
	uint32_t psb_bytes;   /* a PSB after so many bytes; it also bounds what is lost at once when overwriting */
	uint64_t max_bytes;   /* of all streams */
	bool overwrite;	      /* when that is reached the oldest block goes; else pt_encoder_store_full() */
	bool plain_returns;   /* no compression of returns */
};

/* The streams of one recording and what they hold together. */
struct pt_encoder_store;
int pt_encoder_store_new(const struct pt_encoder_config *config, struct pt_encoder_store **ret) _must_check_;
struct pt_encoder_store *pt_encoder_store_free(struct pt_encoder_store *store);
DEFINE_CLEANUP(struct pt_encoder_store *, pt_encoder_store_free)

/* Whether the bound is reached, and nothing may be overwritten. A stream still takes what ends it in order. */
bool pt_encoder_store_full(const struct pt_encoder_store *store);
/* Bytes that are kept, those that are not any more, and the time of the oldest block (0: there is none). */
uint64_t pt_encoder_store_bytes(const struct pt_encoder_store *store);
uint64_t pt_encoder_store_overwritten(const struct pt_encoder_store *store);
uint64_t pt_encoder_store_first_tsc(const struct pt_encoder_store *store);
/* The time since which nothing was overwritten; threads that did nothing since may have older blocks. 0: there is none. */
uint64_t pt_encoder_store_since(const struct pt_encoder_store *store);
/* Drops blocks that began before `tsc`, but for those that a stream which is on still writes. */
void pt_encoder_store_drop_before(struct pt_encoder_store *store, uint64_t tsc);

/* One thread's packets; freed with its store, or before. */
struct pt_encoder_stream;
int pt_encoder_stream_new(struct pt_encoder_store *store, struct pt_encoder_stream **ret) _must_check_;
struct pt_encoder_stream *pt_encoder_stream_free(struct pt_encoder_stream *pt);
/* Nothing is written to it any more: where older blocks are overwritten, its last one may be, too. */
void pt_encoder_close(struct pt_encoder_stream *pt);
/* Of a stream that is off: it goes on with a new block. */
void pt_encoder_renew(struct pt_encoder_stream *pt);

/* Tracing goes on at `ip`. `tsc` must not be less than the last one. */
int pt_encoder_begin(struct pt_encoder_stream *pt, uint64_t tsc, uint64_t ip, bool is64) _must_check_;
/* The instruction that retired last left the traced world. */
int pt_encoder_end(struct pt_encoder_stream *pt) _must_check_;
/* Nothing from `ip` on was executed. */
int pt_encoder_interrupt(struct pt_encoder_stream *pt, uint64_t ip) _must_check_;

/* `insn` at `ip` cannot lead to where the thread went; nothing is written. */
enum { PT_ENCODER_E_UNEXPECTED = 1 };

/*
 * `insn` at `ip` was executed and `next` comes after it. `taken`: of a conditional branch, used where both ways
 * lead to the same place. `is64`: the mode at `next`. Not for what enters the kernel: a system call ends the
 * stream (pt_encoder_end), an INT n interrupts it at its own address. 0, PT_ENCODER_E_UNEXPECTED, -errno.
 */
int pt_encoder_retire(struct pt_encoder_stream *pt, const struct insn *insn, uint64_t ip, uint64_t next, bool taken,
		      bool is64) _must_check_;

/* The time before the instruction that comes next. */
int pt_encoder_time(struct pt_encoder_stream *pt, uint64_t tsc) _must_check_;
/* A PSB where it is due; `ip` comes next. */
bool pt_encoder_sync_due(const struct pt_encoder_stream *pt);
int pt_encoder_sync(struct pt_encoder_stream *pt, uint64_t tsc, uint64_t ip) _must_check_;

/* ---- reading */

/* Bytes that are kept, those that were overwritten, and the first time stamp in what is kept. */
uint64_t pt_encoder_bytes(const struct pt_encoder_stream *pt);
uint64_t pt_encoder_overwritten(const struct pt_encoder_stream *pt);
uint64_t pt_encoder_first_tsc(const struct pt_encoder_stream *pt);
/* Writes the bits of branches that wait for more of them; to be called before reading. */
int pt_encoder_flush(struct pt_encoder_stream *pt) _must_check_;
/* Hands out what is kept, piece by piece; a negative answer ends that. */
typedef int (*pt_encoder_fn)(void *arg, const void *bytes, size_t n);
int pt_encoder_read(const struct pt_encoder_stream *pt, pt_encoder_fn fn, void *arg) _must_check_;
