/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the flow: flow.c owns it and takes the trace apart into packets, flow_packets.c says
 * what each means, flow_walk.c goes through the code and says what happened there.
 */
#pragma once

#include "decode/pt/flow.h"
#include "decode/pt/packet.h"

#define PTFLOW_RETURNS 64u /* as deep as the processor compresses */
/*
 * Blocks without a decision: what there is at a PSB, what a byte of the trace adds, how many can
 * gather. Code of compilers needs a handful for each decision. Calls are events, too, and a return
 * pays for each.
 */
#define PTFLOW_CREDIT_PSB 4096
#define PTFLOW_CREDIT_BYTE 256
#define PTFLOW_CREDIT_MAX 65536
#define PTFLOW_CREDIT_CALL 16

/*
 * Whether the TNT packet that came last, before nothing but TIPs, may have decisions of later
 * branches than these. A processor that defers TIPs writes one that is not full only if another
 * packet forces it to.
 */
enum ptflow_decisions { PTFLOW_DECISIONS_NONE, PTFLOW_DECISIONS_SOME, PTFLOW_DECISIONS_FULL };

/* For whom the next FUP is. */
enum ptflow_fup_for { PTFLOW_FUP_ASYNC, PTFLOW_FUP_TSX, PTFLOW_FUP_OTHER };

struct ptflow {
	struct ptflow_options o;
	struct codeblocks *code;
	uint32_t thread;
	bool is64;
	struct ptflow_stats stats;
	const uint8_t *begin, *pos, *end;
	uint64_t base; /* offset of `begin` */
	bool synced, stopping;
	int32_t credit;
	/* the packets */
	uint64_t last_ip;
	enum ptflow_fup_for fup_for;
	enum ptflow_decisions decisions;
	bool has_fup; /* an asynchronous event begins at fup_ip; TIP or PGD says how it goes on */
	uint64_t fup_ip;
	bool in_psb, psb_has_ip, after_ovf;
	bool since_ovf; /* nobody was seen since the last overflow, which was of `ovf_thread` */
	uint32_t ovf_thread;
	bool aborted; /* a transaction: the event that follows says where */
	uint64_t psb_ip;
	int mode64; /* of a MODE.Exec that waits for its address; -1: none */
	int tsx;    /* of a MODE.TSX that waits for its address; -1: none */
	/* that waits for its address, or the PSB header's end; PT_PAD: none */
	struct ptpacket note;
	/* the walk */
	bool enabled, lost, speculative;
	/* found again, but decisions of the way from here on may have gone by already */
	bool in_doubt;
	uint32_t tags; /* enum codeblock_tag of the blocks since the last event */
	uint64_t ip;
	uint32_t block; /* that begins at ip; CODEBLOCK_NONE: not looked up */
	/*
	 * the block whose indirect branch has led there, until it is looked up; else CODEBLOCK_NONE
	 */
	uint32_t from;
	uint64_t epoch;
	struct {
		uint64_t ip;
		uint32_t call; /* the block that ended with it */
	} returns[PTFLOW_RETURNS];
	uint32_t top, depth;
	int error; /* of the sink */
	bool pause;
	size_t n_batch;
	struct ptflow_event *batch, *own_batch;
};

/* ---- the walk */

/* Hands out what happened so far. */
void ptflow_flush(struct ptflow *f);
struct ptflow_event *ptflow_emit(struct ptflow *f, enum ptflow_kind kind, uint64_t from,
				 uint64_t to);
/* The way is lost; at a decision; where an event did not lie on it. */
void ptflow_lose(struct ptflow *f, enum ptflow_error error);
void ptflow_lose_at(struct ptflow *f, const struct codeblock *b, enum ptflow_error error);
void ptflow_lose_on_the_way(struct ptflow *f);
/* To another address; tracing begins or goes on there; the way is known again from there on. */
void ptflow_go(struct ptflow *f, uint64_t ip);
void ptflow_enter_at(struct ptflow *f, uint64_t ip);
void ptflow_begin_at(struct ptflow *f, uint64_t ip);
void ptflow_find(struct ptflow *f, uint64_t ip);
/* To the next branch that needs a decision; NULL: the way was lost. */
const struct codeblock *ptflow_to_decision(struct ptflow *f);
/* The decision for the branch that ends the block which was answered. */
void ptflow_cond(struct ptflow *f, const struct codeblock *b, bool taken);
void ptflow_return(struct ptflow *f, const struct codeblock *b);
void ptflow_branch_to(struct ptflow *f, const struct codeblock *b, uint64_t to);
/* As many decisions as go along links that are known; returns how many bits are left. */
unsigned int ptflow_walk_links(struct ptflow *f, uint64_t bits, unsigned int count);
bool ptflow_walk_to(struct ptflow *f, uint64_t ip);
void ptflow_walk_over_cr3(struct ptflow *f);
void ptflow_disable_at_branch(struct ptflow *f, bool has_ip, uint64_t ip);

/* ---- packets */

void ptflow_packet(struct ptflow *f, const struct ptpacket *pk);
void ptflow_tnt(struct ptflow *f, uint64_t bits, unsigned int count);
void ptflow_ovf(struct ptflow *f);
