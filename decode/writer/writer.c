/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limit of the output: `reserve` bytes of it are kept for closing what is open. When all but
 * those are used up the writer is "cut" and its caller winds up; what still does not fit is
 * dropped, whole pieces at a time, so that the file always ends at a packet's edge.
 */
#include "config.h"

#include "decode/writer/writer_internal.h"

#include <errno.h>
#include <string.h>

#include "common/base/io.h"

#define DEFAULT_MAX_NAME_BYTES ((size_t)256 << 20)
#define RESERVE_BYTES (1024u * 1024u)
#define MAX_LOCATIONS (16u << 20)

/* Writes what fits below the limit; anything else is counted. */
static int emit(struct writer *w, const uint8_t *data, size_t len)
{
	int r;

	if (w->options.max_output_bytes && w->stats.bytes_out + len > w->options.max_output_bytes)
		w->head.cut = w->full = true;
	if (w->full) {
		w->stats.bytes_dropped += len;
		return 0;
	}
	r = io_write_all(w->fd, data, len);
	if (r < 0) {
		w->stats.write_error = r;
		return r;
	}
	w->stats.bytes_out += len;
	return 0;
}

static int sink(void *arg, uint8_t *data, size_t len, size_t raw_len)
{
	struct writer *w = arg;
	size_t head = w->frame(data, len);

	w->raw_pending -= raw_len;
	return emit(w, data - head, len + head);
}

/* Near the limit it must be known what the pieces under way have become. */
static void check_limit(struct writer *w)
{
	uint64_t max = w->options.max_output_bytes;

	if (max == 0 || w->head.cut)
		return;
	if (w->raw_pending &&
	    w->stats.bytes_out + w->raw_pending + w->piece_bytes > max - w->reserve) {
		int r = pack_flush(w->options.pack);

		if (r < 0)
			writer_fail(w, r);
	}
	/* A piece that does not compress must still fit. */
	if (w->stats.bytes_out + w->piece_bytes > max - w->reserve)
		w->head.cut = true;
}

void writer_submit(struct writer *w)
{
	uint64_t began;
	int r;

	if (w->used == 0)
		return;
	began = io_now_ns();
	w->stats.bytes_raw += w->used;
	if (w->head.error < 0) {
		w->used = 0;
		return;
	}
	if (w->options.compress) {
		w->raw_pending += w->used;
		r = pack_submit(w->options.pack, w->used);
		w->piece = pack_buffer(w->options.pack);
	} else {
		r = emit(w, w->piece, w->used);
	}
	w->used = 0;
	if (r < 0)
		writer_fail(w, r);
	check_limit(w);
	w->stats.write_ns += io_now_ns() - began;
}

int writer_init(struct writer *w, const struct writer_ops *ops, int fd,
		const struct writer_options *o)
{
	uint64_t max = o->max_output_bytes;
	int r;

	w->head.ops = w->format_ops = ops;
	w->fd = fd;
	w->options = *o;
	w->reserve = max / 4 < RESERVE_BYTES ? max / 4 : RESERVE_BYTES;
	w->piece_bytes = PACK_PIECE_BYTES;
	if (max && max / 8 < w->piece_bytes)
		w->piece_bytes = (size_t)(max / 8);
	r = strtab_new(o->max_name_bytes ? o->max_name_bytes : DEFAULT_MAX_NAME_BYTES,
		       "[name table full]", &w->names);
	if (r < 0)
		return r;
	w->max_locations = 256;
	w->n_locations = 1;
	w->locations = calloc(w->max_locations, sizeof(*w->locations));
	if (!w->locations)
		return -ENOMEM;
	if (!w->options.compress) {
		w->piece = w->own_piece = malloc(PACK_PIECE_ROOM);
		return w->piece ? 0 : -ENOMEM;
	}
	if (!w->options.pack) {
		r = pack_new(NULL, 0, &w->own_pack);
		if (r < 0)
			return r;
		w->options.pack = w->own_pack;
	}
	pack_set_sink(w->options.pack, sink, w);
	w->piece = pack_buffer(w->options.pack);
	return 0;
}

void writer_fini(struct writer *w)
{
	if (w->options.pack)
		pack_set_sink(w->options.pack, NULL, NULL);
	pack_free(w->own_pack);
	free(w->own_piece);
	free(w->locations);
	strtab_free(w->names);
}

struct writer *writer_free(struct writer *w)
{
	if (w)
		w->format_ops->free(w);
	return NULL;
}

static void mute_process(struct writer *w, uint32_t track, uint32_t pid, uint32_t ppid,
			 const char *name, uint64_t ts)
{
}

static void mute_thread(struct writer *w, uint32_t track, uint32_t process_track, uint32_t pid,
			uint32_t tid, const char *name, uint64_t ts)
{
}

static void mute_track(struct writer *w, uint32_t track, uint32_t parent, const char *name,
		       const char *description)
{
}

static void mute_lane(struct writer *w, uint32_t track, uint32_t parent, const char *name)
{
}

static void mute_counter_track(struct writer *w, uint32_t track, uint32_t parent, const char *name,
			       enum writer_unit unit)
{
}

static void mute_event(struct writer *w, uint32_t track, uint64_t ts, const struct writer_event *ev)
{
}

static void mute_counter(struct writer *w, uint32_t track, uint64_t ts, int64_t value)
{
}

static void mute_counter_f64(struct writer *w, uint32_t track, uint64_t ts, double value)
{
}

static void mute_switch(struct writer *w, uint32_t cpu, uint64_t ts, const struct writer_switch *s)
{
}

static void mute_waking(struct writer *w, uint32_t cpu, uint64_t ts, const struct writer_waking *k)
{
}

void writer_mute(struct writer *w)
{
	static const struct writer_ops mute_ops = {
		.process = mute_process,
		.thread = mute_thread,
		.track = mute_track,
		.lane = mute_lane,
		.counter_track = mute_counter_track,
		.slice_begin = mute_event,
		.slice_end = mute_event,
		.instant = mute_event,
		.counter = mute_counter,
		.counter_f64 = mute_counter_f64,
		.sched_switch = mute_switch,
		.sched_waking = mute_waking,
	};

	w->head.ops = &mute_ops;
}

size_t writer_text_len(const char *s, size_t max)
{
	size_t len = strnlen(s, max);

	if (len == max)
		while (len > 0 && ((uint8_t)s[len] & 0xc0) == 0x80)
			len--;
	return len;
}

uint32_t writer_name(struct writer *w, const char *s)
{
	return strtab_add(w->names, s, s ? writer_text_len(s, WRITER_NAME_MAX) : 0, NULL);
}

uint32_t writer_args_fit(struct writer *w, const struct writer_event *ev)
{
	size_t bytes = 0;
	uint32_t n = 0;

	for (; n < ev->n_args && n < WRITER_MAX_ARGS; n++) {
		const struct writer_arg *a = &ev->args[n];

		bytes += strtab_len(w->names, a->key);
		if (a->kind == WRITER_ARG_NAME)
			bytes += strtab_len(w->names, a->value.name);
		else if (a->kind == WRITER_ARG_TEXT)
			bytes += writer_text_len(a->value.text, WRITER_TEXT_MAX);
		if (bytes > WRITER_MAX_ARGS_BYTES)
			break;
	}
	w->stats.args_dropped += ev->n_args - n;
	return n;
}

const char *writer_name_text(const struct writer *w, uint32_t name)
{
	return strtab_text(w->names, name);
}

uint32_t writer_location(struct writer *w, uint32_t file, uint32_t function, uint32_t line)
{
	if (w->n_locations == w->max_locations) {
		uint32_t max = w->max_locations * 2;
		struct writer_location *p;

		if (max > MAX_LOCATIONS)
			return 0;
		p = reallocarray(w->locations, max, sizeof(*p));
		if (!p)
			return 0;
		w->locations = p;
		w->max_locations = max;
	}
	w->locations[w->n_locations] =
		(struct writer_location){.file = file, .function = function, .line = line};
	return w->n_locations++;
}

void writer_begin(struct writer *w, const struct writer_meta *meta, const struct writer_clocks *c)
{
	w->format_ops->begin(w, meta, c);
}

uint32_t writer_new_track(struct writer *w)
{
	w->stats.tracks++;
	return ++w->n_tracks;
}

int writer_end(struct writer *w)
{
	if (!w->ended) {
		int r = w->format_ops->end(w);

		if (r < 0)
			writer_fail(w, r);
		writer_submit(w);
		if (w->options.compress) {
			const uint64_t began = io_now_ns();

			r = pack_flush(w->options.pack);
			if (r < 0)
				writer_fail(w, r);
			w->stats.write_ns += io_now_ns() - began;
		}
		w->ended = true;
	}
	return w->head.error;
}

void writer_stats(const struct writer *w, struct writer_stats *ret_stats)
{
	*ret_stats = w->stats;
	ret_stats->bytes_raw += w->used;
	ret_stats->names_dropped = strtab_dropped(w->names);
}
