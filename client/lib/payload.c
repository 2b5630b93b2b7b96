// SPDX-License-Identifier: Apache-2.0
#include "client/lib/payload.h"

#include <assert.h>
#include <string.h>

#include "client/lib/record.h"
#include "client/lib/ringmem.h"

#define HEAD_BYTES sizeof(struct ring_field)
#define NUMBER_BYTES (HEAD_BYTES + sizeof(uint64_t))
/* More arguments than this never fit. */
#define ARGS_MAX PAYLOAD_TEXTS_MAX

static_assert(HEAD_BYTES == 8, "ring_field");
static_assert((int)TRACERD_U64 == RING_FIELD_U64 && (int)TRACERD_I64 == RING_FIELD_I64 &&
		      (int)TRACERD_F64 == RING_FIELD_F64 && (int)TRACERD_TEXT == RING_FIELD_TEXT &&
		      (int)TRACERD_POINTER == RING_FIELD_POINTER,
	"tracerd_type");

static void put_head(struct payload *p, tracerd_name name, enum ring_field_type type, size_t bytes)
{
	struct ring_field head = {.name = name, .type = (uint16_t)type, .bytes = (uint16_t)bytes};

	memcpy(p->bytes + p->used, &head, sizeof(head));
	p->used += (uint32_t)sizeof(head);
}

bool payload_number(struct payload *p, tracerd_name name, enum ring_field_type type, uint64_t bits)
{
	if (RING_PAYLOAD_MAX - p->used < NUMBER_BYTES) {
		p->cut = true;
		return false;
	}
	put_head(p, name, type, sizeof(bits));
	memcpy(p->bytes + p->used, &bits, sizeof(bits));
	p->used += (uint32_t)sizeof(bits);
	return true;
}

bool payload_text(struct payload *p, tracerd_name name, const void *bytes, size_t length,
		  size_t room)
{
	size_t left = RING_PAYLOAD_MAX - p->used, n;

	if (left < HEAD_BYTES) {
		p->cut = true;
		return false;
	}
	left -= HEAD_BYTES;
	room = (room < left ? room : left) & ~(size_t)3;
	n = length < room ? length : room;
	if (n < length)
		p->cut = true;
	put_head(p, name, n < length ? RING_FIELD_TEXT_CUT : RING_FIELD_TEXT, n);
	memset(p->bytes + p->used + (n & ~(size_t)3), 0, payload_padded(n) - (n & ~(size_t)3));
	if (n)
		memcpy(p->bytes + p->used, bytes, n);
	p->used += (uint32_t)payload_padded(n);
	return true;
}

void payload_texts_add(struct payload_texts *t, size_t length)
{
	if (t->n < PAYLOAD_TEXTS_MAX)
		t->wants[t->n++] = (uint16_t)payload_padded(
			length < RING_PAYLOAD_MAX ? length : RING_PAYLOAD_MAX);
}

size_t payload_level(const struct payload_texts *t, size_t left)
{
	size_t level = 0, higher;

	/*
	 * Bytes that the shorter texts do not use raise the level, until no further text is shorter
	 * than it.
	 */
	do {
		size_t over = 0, taken = 0;

		higher = level;
		for (size_t i = 0; i < t->n; i++) {
			if (t->wants[i] <= level)
				taken += t->wants[i];
			else
				over++;
		}
		if (over)
			level = ((left - taken) / over) & ~(size_t)3;
	} while (level > higher);
	return level;
}

uint32_t payload_finish(struct payload *p)
{
	uint32_t span = (p->used + RING_CONT_BYTES - 1) / RING_CONT_BYTES;

	memset(p->bytes + p->used, 0, (size_t)span * RING_CONT_BYTES - p->used);
	return span;
}

/* They do not fit: the length to which texts are cut. */
static __attribute__((noinline)) size_t args_level(const tracerd_arg *args, size_t n, size_t fixed)
{
	struct payload_texts texts;

	texts.n = 0;
	for (size_t i = 0; i < n; i++) {
		if (args[i].type == TRACERD_TEXT)
			payload_texts_add(&texts, args[i].length);
	}
	return payload_level(&texts, fixed < RING_PAYLOAD_MAX ? RING_PAYLOAD_MAX - fixed : 0);
}

void payload_args(struct payload *p, const tracerd_arg *args, size_t n_args)
{
	size_t fixed = 0, wanted = 0, level = RING_PAYLOAD_MAX,
	       n = n_args < ARGS_MAX ? n_args : ARGS_MAX;
	bool room = true;

	if (n < n_args)
		p->cut = true;
	for (size_t i = 0; i < n; i++) {
		if (args[i].type == TRACERD_TEXT) {
			fixed += HEAD_BYTES;
			wanted += payload_padded(args[i].length < RING_PAYLOAD_MAX
							 ? args[i].length
							 : RING_PAYLOAD_MAX);
		} else {
			fixed += NUMBER_BYTES;
		}
	}
	if (fixed + wanted > RING_PAYLOAD_MAX)
		level = args_level(args, n, fixed);
	for (size_t i = 0; i < n && room; i++) {
		const tracerd_arg *arg = &args[i];

		switch (arg->type) {
		case TRACERD_U64:
		case TRACERD_I64:
		case TRACERD_F64:
		case TRACERD_POINTER:
			room = payload_number(p, arg->key, (enum ring_field_type)arg->type,
					      arg->value.u64);
			break;
		case TRACERD_TEXT:
			room = payload_text(p, arg->key, arg->value.text,
					    arg->value.text ? arg->length : 0, level);
			break;
		default:
			p->cut = true; /* of a newer header, or not initialised */
		}
	}
}

void payload_record(const struct ring *ring, struct payload *p, struct record *record)
{
	uint32_t span = payload_finish(p);
	uint64_t index = record_reserve(ring->entry, 1 + span);
	const struct ringmem *mem = state_mem();

	if (record->own_id)
		record->a = record_id(ring, index);
	record_continue(ring, index, p->bytes, span);
	record_fill(ring, index, record->stamp,
		    record_word(record->name, record->kind | span << RING_SPAN_SHIFT), record->a,
		    record->b);
	if (p->cut && mem)
		mem_count(&mem_header(mem)->lost_long);
}
