/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the Perfetto form of a trace: a stream of TracePackets. Tracks are TrackEvents, scheduling
 * is compact_sched inside ftrace bundles, so that the viewer's own tables (sched_slice,
 * thread_state) are filled.
 *
 * One packet sequence a thread, with the thread as its default track, its own string tables and
 * an incremental clock: a slice's begin is then about a dozen bytes. Only the first SEQ_THREADS
 * threads have one; those after share a sequence and name their track in each event, so that the
 * string tables do not multiply with the threads. Sequence 1 carries all that is not a thread's.
 *
 * Event packets do not set SEQ_NEEDS_INCREMENTAL_STATE: that saves two bytes in fifteen, and it
 * matters only to readers that may start in the middle of a stream.
 *
 * A time before the sequence's previous one (a wait drawn later than it began) is given absolutely.
 */
#include "config.h"

#include "decode/writer/pftrace_internal.h"

#include <errno.h>
#include <string.h>

static void put_timestamp(struct pb *pb, struct sequence *s, uint64_t ts)
{
	if (ts >= s->last_ts) {
		pb_uint(pb, PACKET_TIMESTAMP, ts - s->last_ts);
		s->last_ts = ts;
	} else {
		pb_uint(pb, PACKET_TIMESTAMP, ts);
		pb_uint(pb, PACKET_TIMESTAMP_CLOCK_ID, CLOCK_MONOTONIC_ID);
	}
}

/* Numbers and names, as most arguments are. */
static inline bool is_plain_arg(const struct writer_arg *a)
{
	return a->kind == WRITER_ARG_UINT || (a->kind == WRITER_ARG_NAME && a->value.name);
}

static inline void put_plain_arg(struct pb *pb, const struct writer_arg *a)
{
	uint8_t *m = pb_open(pb, EVENT_ANNOTATIONS);

	pb_uint(pb, ANNOTATION_NAME_IID, a->key);
	if (a->kind == WRITER_ARG_UINT)
		pb_uint(pb, ANNOTATION_UINT, a->value.u64);
	else
		pb_uint(pb, ANNOTATION_STRING_IID, a->value.name);
	pb_close(pb, m);
}

/* Needs nothing that put_event_as() calls a function for. */
static inline bool is_plain(const struct sequence *s, const struct writer_event *ev,
			    uint32_t n_args)
{
	if (!ev)
		return true;
	if (ev->flow || ev->flow_end || n_args > 2 || !is_defined(s, ev, n_args))
		return false;
	for (uint32_t i = 0; i < n_args; i++)
		if (!is_plain_arg(&ev->args[i]))
			return false;
	return true;
}

/* `plain` is known where it is compiled: the packet is kept in registers then. */
static inline __attribute__((always_inline)) void
put_event_as(struct writer *w, struct sequence *s, uint32_t track, uint64_t ts, uint32_t type,
	     const struct writer_event *ev, uint32_t n_args, bool plain)
{
	struct packet k;
	uint8_t *m;

	packet_begin(w, &k);
	pb_uint(&k.pb, PACKET_SEQUENCE_ID, s->id);
	if (!plain && ev && !is_defined(s, ev, n_args))
		pftrace_put_interned(w, &k.pb, s, ev, n_args);
	m = pb_open(&k.pb, PACKET_TRACK_EVENT);
	/* before all that other tracks of the sequence have, too */
	if (s->track != track)
		pb_uint(&k.pb, EVENT_TRACK, track);
	pb_uint(&k.pb, EVENT_TYPE, type);
	if (ev) {
		if (ev->name)
			pb_uint(&k.pb, EVENT_NAME_IID, ev->name);
		if (ev->category)
			pb_uint(&k.pb, EVENT_CATEGORY_IIDS, ev->category);
		if (ev->location && ev->location < w->n_locations)
			pb_uint(&k.pb, EVENT_LOCATION_IID, ev->location);
		if (plain)
			for (uint32_t i = 0; i < n_args; i++)
				put_plain_arg(&k.pb, &ev->args[i]);
		else if (n_args)
			pftrace_put_args(&k.pb, ev, n_args);
		if (!plain && ev->flow) {
			pb_fixed64(&k.pb, EVENT_FLOW_IDS, ev->flow);
			w->stats.flows++;
		}
		if (!plain && ev->flow_end)
			pb_fixed64(&k.pb, EVENT_TERMINATING_FLOW_IDS, ev->flow_end);
	}
	pb_close(&k.pb, m);
	/*
	 * Last, beside the last argument: what differs from packet to packet stands together, and
	 * the rest is one match to the compressor.
	 */
	put_timestamp(&k.pb, s, ts);
	packet_end(w, &k);
}

static __attribute__((noinline)) void put_any_event(struct writer *w, struct sequence *s,
						    uint32_t track, uint64_t ts, uint32_t type,
						    const struct writer_event *ev, uint32_t n_args)
{
	put_event_as(w, s, track, ts, type, ev, n_args, false);
}

static void put_event(struct writer *w, uint32_t track, uint64_t ts, uint32_t type,
		      const struct writer_event *ev)
{
	struct sequence *s = pftrace_sequence_of(pftrace_of(w), track);
	const uint32_t n_args = ev ? writer_few_args_fit(w, ev) : 0;

	if (__builtin_expect(!s->begun, 0))
		pftrace_sequence_begin(w, s, ts);
	if (is_plain(s, ev, n_args))
		put_event_as(w, s, track, ts, type, ev, n_args, true);
	else
		put_any_event(w, s, track, ts, type, ev, n_args);
}

static void pftrace_slice_begin(struct writer *w, uint32_t track, uint64_t ts,
				const struct writer_event *ev)
{
	w->stats.slices++;
	put_event(w, track, ts, TYPE_SLICE_BEGIN, ev);
}

static void pftrace_slice_end(struct writer *w, uint32_t track, uint64_t ts,
			      const struct writer_event *ev)
{
	put_event(w, track, ts, TYPE_SLICE_END, ev);
}

static void pftrace_instant(struct writer *w, uint32_t track, uint64_t ts,
			    const struct writer_event *ev)
{
	w->stats.instants++;
	put_event(w, track, ts, TYPE_INSTANT, ev);
}

static uint8_t *counter_begin(struct writer *w, struct packet *k, uint32_t track, uint64_t ts)
{
	struct sequence *s = &pftrace_of(w)->sequences[SEQ_GLOBAL];
	uint8_t *m;

	w->stats.counters++;
	if (!s->begun)
		pftrace_sequence_begin(w, s, ts);
	packet_begin(w, k);
	put_timestamp(&k->pb, s, ts);
	pb_uint(&k->pb, PACKET_SEQUENCE_ID, s->id);
	m = pb_open(&k->pb, PACKET_TRACK_EVENT);
	pb_uint(&k->pb, EVENT_TYPE, TYPE_COUNTER);
	pb_uint(&k->pb, EVENT_TRACK, track);
	return m;
}

static void pftrace_counter(struct writer *w, uint32_t track, uint64_t ts, int64_t value)
{
	struct packet k;
	uint8_t *m = counter_begin(w, &k, track, ts);

	pb_int(&k.pb, EVENT_COUNTER_VALUE, value);
	pb_close(&k.pb, m);
	packet_end(w, &k);
}

static void pftrace_counter_f64(struct writer *w, uint32_t track, uint64_t ts, double value)
{
	struct packet k;
	uint8_t *m = counter_begin(w, &k, track, ts);

	pb_double(&k.pb, EVENT_COUNTER_DOUBLE, value);
	pb_close(&k.pb, m);
	packet_end(w, &k);
}

/* What decode/writer/sched.c has collected of one CPU. */
static void flush_sched(struct writer *w, uint32_t cpu)
{
	struct packet k;
	uint8_t *m;
	bool more;

	do {
		packet_begin(w, &k);
		pb_uint(&k.pb, PACKET_SEQUENCE_ID, SEQ_GLOBAL);
		m = pb_open(&k.pb, PACKET_FTRACE_EVENTS);
		more = writer_sched_put(pftrace_of(w)->sched, cpu, w->names, &k.pb);
		pb_close(&k.pb, m);
		packet_end(w, &k);
	} while (more);
}

static void pftrace_sched_switch(struct writer *w, uint32_t cpu, uint64_t ts,
				 const struct writer_switch *s)
{
	struct pftrace *f = pftrace_of(w);
	int r = writer_sched_switch(f->sched, cpu, ts + f->boot_offset, s);

	w->stats.switches++;
	if (r == WRITER_SCHED_FULL)
		flush_sched(w, cpu);
	else if (r < 0)
		writer_fail(w, r);
}

static void pftrace_sched_waking(struct writer *w, uint32_t cpu, uint64_t ts,
				 const struct writer_waking *waking)
{
	struct pftrace *f = pftrace_of(w);
	int r = writer_sched_waking(f->sched, cpu, ts + f->boot_offset, waking);

	w->stats.wakings++;
	if (r == WRITER_SCHED_FULL)
		flush_sched(w, cpu);
	else if (r < 0)
		writer_fail(w, r);
}

static int pftrace_end(struct writer *w)
{
	struct pftrace *f = pftrace_of(w);
	uint32_t cpu = 0;

	while (writer_sched_next(f->sched, &cpu))
		flush_sched(w, cpu++);
	return 0;
}

static void pftrace_free(struct writer *w)
{
	struct pftrace *f = pftrace_of(w);

	for (uint32_t i = 0; i <= SEQ_SHARED; i++)
		pftrace_names_free(&f->sequences[i]);
	free(f->track_sequence);
	writer_sched_free(f->sched);
	writer_fini(w);
	free(f);
}

/* The header of a compressed piece: a packet with one field. */
static size_t pftrace_frame(uint8_t *data, size_t len)
{
	uint8_t field[16], packet[16], *p, *q;
	size_t n_field, n_packet;

	p = pb_put_varint(field, PACKET_COMPRESSED << 3 | 2);
	p = pb_put_varint(p, len);
	n_field = (size_t)(p - field);
	q = pb_put_varint(packet, TRACE_PACKET << 3 | 2);
	q = pb_put_varint(q, n_field + len);
	n_packet = (size_t)(q - packet);
	memcpy(data - n_field, field, n_field);
	memcpy(data - n_field - n_packet, packet, n_packet);
	return n_field + n_packet;
}

static const struct writer_ops pftrace_ops = {
	.begin = pftrace_begin,
	.process = pftrace_process,
	.thread = pftrace_thread,
	.track = pftrace_track,
	.lane = pftrace_lane,
	.counter_track = pftrace_counter_track,
	.slice_begin = pftrace_slice_begin,
	.slice_end = pftrace_slice_end,
	.instant = pftrace_instant,
	.counter = pftrace_counter,
	.counter_f64 = pftrace_counter_f64,
	.sched_switch = pftrace_sched_switch,
	.sched_waking = pftrace_sched_waking,
	.end = pftrace_end,
	.free = pftrace_free,
};

int pftrace_writer_new(int fd, const struct writer_options *options, struct writer **ret)
{
	struct pftrace *f = calloc(1, sizeof(*f));
	int r;

	if (!f)
		return -ENOMEM;
	for (uint32_t i = 0; i <= SEQ_SHARED; i++)
		f->sequences[i].id = i;
	f->next_sequence = SEQ_FIRST;
	f->base.frame = pftrace_frame;
	r = writer_init(&f->base, &pftrace_ops, fd, options);
	if (r == 0)
		r = writer_sched_new(&f->sched);
	if (r < 0) {
		pftrace_free(&f->base);
		return r;
	}
	*ret = &f->base;
	return 0;
}
