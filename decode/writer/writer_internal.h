/* SPDX-License-Identifier: Apache-2.0 */
/* What all trace formats share: the name and location tables and the buffered, limited output. */
#pragma once

#include "decode/base/strtab.h"
#include "decode/writer/writer.h"

struct writer_location {
	uint32_t file, function, line;
};

struct writer {
	struct writer_head head;	     /* first; writer_mute() replaces the functions */
	const struct writer_ops *format_ops; /* never replaced */
	struct writer_options options;
	struct strtab *names;
	struct writer_location *locations; /* by number, from 1 */
	uint32_t n_locations, max_locations;
	uint32_t n_tracks;
	bool ended;
	struct writer_stats stats;

	/* The output: a piece that is being filled, handed on when it holds piece_bytes. */
	int fd;
	uint8_t *piece;	    /* the pack's buffer, or own_piece */
	uint8_t *own_piece; /* when not compressing */
	size_t used;
	struct pack *own_pack; /* made here if the caller gave none */
	uint64_t raw_pending;  /* submitted, not yet in the sink */
	uint64_t reserve;      /* kept free for closing what is open */
	size_t piece_bytes;    /* PACK_PIECE_BYTES, or less below a small limit */
	/* a piece did not fit: nothing more may follow, it could lean on what is missing */
	bool full;
	/*
	 * Puts a header before a compressed piece: returns its length, written right before data.
	 */
	size_t (*frame)(uint8_t *data, size_t len);
};

#define WRITER_NAME_MAX 4096u /* longer names are cut: nobody reads them, a packet must hold some */

int writer_init(struct writer *w, const struct writer_ops *ops, int fd,
		const struct writer_options *o);
void writer_fini(struct writer *w);

static inline void writer_fail(struct writer *w, int error)
{
	if (w->head.error == 0)
		w->head.error = error;
}

#define WRITER_MAX_ARGS_BYTES (96u * 1024u)

/*
 * How many of the event's arguments are written: their texts must fit into what is left free of a
 * piece, whatever else is in the packet. Those that are not are counted.
 */
uint32_t writer_args_fit(struct writer *w, const struct writer_event *ev);

/* The same for the few that most events have: they fit whatever they are. */
static inline uint32_t writer_few_args_fit(struct writer *w, const struct writer_event *ev)
{
	return ev->n_args <= WRITER_MAX_ARGS_BYTES / (WRITER_NAME_MAX + WRITER_TEXT_MAX)
		       ? ev->n_args
		       : writer_args_fit(w, ev);
}

/* Hands the piece on. */
void writer_submit(struct writer *w);

/* Where the next packet goes; at least PACK_PIECE_ROOM - PACK_PIECE_BYTES are free there. */
static inline uint8_t *writer_at(struct writer *w)
{
	return w->piece + w->used;
}

static inline uint8_t *writer_piece_end(struct writer *w)
{
	return w->piece + PACK_PIECE_ROOM;
}

static inline void writer_advance(struct writer *w, size_t len)
{
	w->used += len;
	if (w->used >= w->piece_bytes)
		writer_submit(w);
}
