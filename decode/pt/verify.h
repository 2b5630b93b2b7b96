/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A second opinion: libipt's block decoder follows the same bytes with the same code, and what it
 * has executed is compared with what decode/pt/flow.h has, run by run: a run is what lies in one
 * line, whatever branches are not taken in it. Where one loses its way, or they differ, they go on
 * to be compared where both are at the same address again. Owns the comparison of one block; it
 * must not know of buffers.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/pt/flow.h"

struct address_space;
struct auxtrace_config;
struct json_object;
struct ptcode;

enum verify_kind {
	VERIFY_AGREES,
	VERIFY_OTHER,	     /* other instructions */
	VERIFY_LIBIPT_STOPS, /* and we go on */
	VERIFY_WE_STOP,	     /* and libipt goes on */
};

/* Of one block. */
struct verify_result {
	enum verify_kind kind; /* of the first difference */
	uint64_t offset;       /* of the packet, in the block: how far we had read */
	uint64_t libipt_offset;
	/* of the first instruction that is another one, or where who goes on is */
	uint64_t ip, libipt_ip;
	int libipt_error;      /* enum pt_error_code; 0: none */
	enum ptflow_error error; /* ours */
	uint8_t packet;	       /* enum ptpacket_type, at `offset` */
	/* where both were at the same place again, after that; 0: nowhere in this block */
	uint64_t again_ip;
	uint64_t instructions, compared; /* ours */
	uint64_t both_stop;    /* times that both did at the same place */
};

struct verify;

/* `bytes` are copied: from a PSB on. What is not among them is not compared. */
int verify_new(const struct auxtrace_config *config, struct ptcode *code, const uint8_t *bytes,
	       size_t n, struct verify **ret) _must_check_;
struct verify *verify_free(struct verify *v);
DEFINE_CLEANUP(struct verify *, verify_free)

/* Tracing goes on at `ip`, and the code is that of `space`; NULL: it is not known. */
int verify_enter(struct verify *v, uint64_t ip, const struct address_space *space) _must_check_;
/*
 * What we have executed: all events of the block, in order and with their lines
 * (ptflow_options.all).
 */
void verify_events(struct verify *v, const struct ptflow_event *events, size_t n);
/* The block is over. */
void verify_end(struct verify *v, struct verify_result *ret);

/*
 * What came of all blocks: those that differ by their places, as far as there is room. All zero is
 * an empty one.
 */
struct verify_report {
	uint64_t blocks, differ, incomplete, instructions, compared, both_stop;
	struct json_object *differences;
};
void verify_report_add(struct verify_report *r, const struct verify_result *block, uint32_t buffer,
		       uint64_t offset);
void verify_report_fini(struct verify_report *r);
void verify_report_json(const struct verify_report *r, struct json_object *stats);
