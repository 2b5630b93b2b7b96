/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns one copy of a program's rings (common/bundle/ringfile.h), read whole into memory, and
 * answers with private copies of its pieces. The shared part and the slots are the program's own
 * bytes; the header may be a stranger's too, where a bundle was sent by somebody. So each number is
 * checked here, once, and no later step meets an offset.
 *
 * It refuses to know what a slot means and which of them count (decode/rings/window.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/bundle/ringabi.h"
#include "common/bundle/ringfile.h"
#include "decode/base/budget.h"

struct ringfile;

enum {
	RINGFILE_E_INVALID = 1, /* no copy of rings, or one that contradicts itself */
	RINGFILE_E_MEMORY,	/* larger than the budget */
};

/* Reads from `fd`, which stays the caller's. 0, RINGFILE_E_*, or a negative errno. */
int ringfile_read(int fd, struct budget *budget, struct ringfile **ret) _must_check_;
struct ringfile *ringfile_free(struct ringfile *f);
DEFINE_CLEANUP(struct ringfile *, ringfile_free)

const struct ringfile_header *ringfile_header(const struct ringfile *f);

/* The program's header, as it was when its shared part was copied: any numbers. */
void ringfile_program(const struct ringfile *f, struct ring_header *ret_u);

/* Rings of the file whose bytes are all there, 0 .. n-1, and how many others it names. */
uint32_t ringfile_n_rings(const struct ringfile *f);
uint32_t ringfile_rings_invalid(const struct ringfile *f);
const struct ringfile_ring *ringfile_ring(const struct ringfile *f, uint32_t i);

/* The directory's entry of ring i of the file: any numbers. */
void ringfile_entry(const struct ringfile *f, uint32_t i, struct ring_entry *ret_u);

/* The slot at a position of ring i; `position` is taken modulo the ring. */
void ringfile_slot(const struct ringfile *f, uint32_t i, uint64_t position,
		   struct ring_slot *ret_u);

/* The payload of the `span` (at most RING_SPAN_MAX) slots from `position` on. Returns its bytes. */
size_t ringfile_payload(const struct ringfile *f, uint32_t i, uint64_t position, uint32_t span,
	uint8_t ret[RING_PAYLOAD_MAX]);

/* The bytes of a name; NULL if there is no such name. */
const char *ringfile_name(const struct ringfile *f, uint32_t number, size_t *ret_len);
