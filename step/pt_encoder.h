/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encodes the instructions of stepped threads as Intel PT packets, with libipt's encoder: those
 * that hardware would have written (Intel SDM volume 3, "Intel Processor Trace"). Owns the packets
 * of all threads within one bound, in blocks that begin with a PSB. Refuses to know registers,
 * memory and how one steps.
 *
 * Unlike hardware it has no timing finer than TSC packets, no CBR, no deferred TIPs, and nothing of
 * the kernel.
 *
 * A stream is on (instructions are recorded) or off. It begins off:
 *
 *	off -- begin --> on -- retire, sync, time --> on
 *	on -- end (a system call), interrupt (a signal, a fault, a jump that no packet can show) --> off
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/base/insn.h"

struct pt_encoder_config {
	/* a PSB after so many bytes, which is also what one overwriting loses */
	uint32_t psb_bytes;
	uint64_t max_bytes;   /* of all streams */
	/* drop the oldest blocks beyond max_bytes; else see pt_encoder_store_full() */
	bool overwrite;
	bool plain_returns;   /* do not compress returns */
};

/* All streams of one recording. */
struct pt_encoder_store;
int pt_encoder_store_new(const struct pt_encoder_config *config,
			 struct pt_encoder_store **ret) _must_check_;
struct pt_encoder_store *pt_encoder_store_free(struct pt_encoder_store *store);
DEFINE_CLEANUP(struct pt_encoder_store *, pt_encoder_store_free)

/*
 * Whether the bound is reached and nothing may be overwritten. Streams still accept what ends them
 * in order.
 */
bool pt_encoder_store_full(const struct pt_encoder_store *store);
/* Bytes kept, bytes dropped, and the time of the oldest block (0: there is none). */
uint64_t pt_encoder_store_bytes(const struct pt_encoder_store *store);
uint64_t pt_encoder_store_overwritten(const struct pt_encoder_store *store);
uint64_t pt_encoder_store_first_tsc(const struct pt_encoder_store *store);
/*
 * All packets since this time are kept; idle threads may have older blocks, too. 0: there are no
 * packets.
 */
uint64_t pt_encoder_store_since(const struct pt_encoder_store *store);
/* Drops the blocks that began before `tsc`, except those that streams which are on still write. */
void pt_encoder_store_drop_before(struct pt_encoder_store *store, uint64_t tsc);

/* The packets of one thread; freed with its store, or earlier. */
struct pt_encoder_stream;
int pt_encoder_stream_new(struct pt_encoder_store *store,
			  struct pt_encoder_stream **ret) _must_check_;
struct pt_encoder_stream *pt_encoder_stream_free(struct pt_encoder_stream *pt);
/* The stream is complete: when overwriting, its last block may be dropped, too. */
void pt_encoder_close(struct pt_encoder_stream *pt);
/* The stream, which is off, is to continue with a new block. */
void pt_encoder_renew(struct pt_encoder_stream *pt);

/* Tracing begins at `ip`. `tsc` must not be less than the last one. */
int pt_encoder_begin(struct pt_encoder_stream *pt, uint64_t tsc, uint64_t ip,
		     bool is64) _must_check_;
/* The last instruction entered the kernel. */
int pt_encoder_end(struct pt_encoder_stream *pt) _must_check_;
/* Tracing ends before `ip`. */
int pt_encoder_interrupt(struct pt_encoder_stream *pt, uint64_t ip) _must_check_;

/* `insn` at `ip` cannot lead to `next`; nothing is written. */
enum { PT_ENCODER_E_UNEXPECTED = 1 };

/*
 * The thread executed `insn` at `ip` and continues at `next`. `taken` counts for a conditional
 * branch whose both ways lead to `next`. `is64`: the mode at `next`. Not for instructions that
 * enter the kernel: a system call ends the stream (pt_encoder_end), an INT n interrupts it at its
 * own address. 0, PT_ENCODER_E_UNEXPECTED, -errno.
 */
int pt_encoder_retire(struct pt_encoder_stream *pt, const struct insn *insn, uint64_t ip,
		      uint64_t next, bool taken, bool is64) _must_check_;

/* A time stamp, before the next instruction. */
int pt_encoder_time(struct pt_encoder_stream *pt, uint64_t tsc) _must_check_;
/* A PSB, where it is due; `ip` is the next instruction. */
bool pt_encoder_sync_due(const struct pt_encoder_stream *pt);
int pt_encoder_sync(struct pt_encoder_stream *pt, uint64_t tsc, uint64_t ip) _must_check_;

/* ---- reading */

/* Bytes kept, bytes overwritten, and the first time stamp of those kept. */
uint64_t pt_encoder_bytes(const struct pt_encoder_stream *pt);
uint64_t pt_encoder_overwritten(const struct pt_encoder_stream *pt);
uint64_t pt_encoder_first_tsc(const struct pt_encoder_stream *pt);
/* Writes pending TNT bits; to be called before reading. */
int pt_encoder_flush(struct pt_encoder_stream *pt) _must_check_;
/* Calls `fn` for each block; its negative result ends that. */
typedef int (*pt_encoder_fn)(void *arg, const void *bytes, size_t n);
int pt_encoder_read(const struct pt_encoder_stream *pt, pt_encoder_fn fn, void *arg) _must_check_;
