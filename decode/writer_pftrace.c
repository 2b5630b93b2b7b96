/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the Perfetto form of a trace: a stream of TracePackets, the field numbers of which stand
 * below. Tracks are TrackEvents, scheduling is compact_sched inside ftrace bundles, so that the
 * viewer's own tables (sched_slice, thread_state) are filled.
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

#include "decode/writer_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "decode/pb.h"
#include "decode/writer_sched.h"

enum {
	TRACE_PACKET = 1,

	PACKET_FTRACE_EVENTS = 1,
	PACKET_CLOCK_SNAPSHOT = 6,
	PACKET_TIMESTAMP = 8,
	PACKET_SEQUENCE_ID = 10,
	PACKET_TRACK_EVENT = 11,
	PACKET_INTERNED_DATA = 12,
	PACKET_SEQUENCE_FLAGS = 13,
	PACKET_SYSTEM_INFO = 45,
	PACKET_COMPRESSED = 50,
	PACKET_TIMESTAMP_CLOCK_ID = 58,
	PACKET_DEFAULTS = 59,
	PACKET_TRACK_DESCRIPTOR = 60,
	PACKET_FIRST_ON_SEQUENCE = 87,

	SEQ_INCREMENTAL_STATE_CLEARED = 1,

	SNAPSHOT_CLOCKS = 1,
	SNAPSHOT_PRIMARY = 2,
	CLOCK_ID = 1,
	CLOCK_TIMESTAMP = 2,
	CLOCK_IS_INCREMENTAL = 3,

	CLOCK_REALTIME_ID = 1,
	CLOCK_MONOTONIC_ID = 3,
	CLOCK_MONOTONIC_RAW_ID = 5,
	CLOCK_BOOTTIME_ID = 6,
	CLOCK_SEQUENCE_ID = 64, /* ours: deltas on a sequence */

	DEFAULTS_TRACK_EVENT = 11,
	DEFAULTS_CLOCK_ID = 58,
	EVENT_DEFAULTS_TRACK = 11,

	UTSNAME = 1,
	UTSNAME_SYSNAME = 1,
	UTSNAME_RELEASE = 3,
	UTSNAME_MACHINE = 4,

	TRACK_UUID = 1,
	TRACK_NAME = 2,
	TRACK_PROCESS = 3,
	TRACK_THREAD = 4,
	TRACK_PARENT = 5,
	TRACK_COUNTER = 8,
	TRACK_DESCRIPTION = 14,
	TRACK_MERGE_BEHAVIOR = 15,
	MERGE_NONE = 2,
	PROCESS_PID = 1,
	PROCESS_NAME = 6,
	THREAD_PID = 1,
	THREAD_TID = 2,
	THREAD_NAME = 5,
	COUNTER_UNIT = 3,

	EVENT_CATEGORY_IIDS = 3,
	EVENT_ANNOTATIONS = 4,
	EVENT_TYPE = 9,
	EVENT_NAME_IID = 10,
	EVENT_TRACK = 11,
	EVENT_COUNTER_VALUE = 30,
	EVENT_LOCATION_IID = 34,
	EVENT_FLOW_IDS = 47,
	EVENT_TERMINATING_FLOW_IDS = 48,
	TYPE_SLICE_BEGIN = 1,
	TYPE_SLICE_END = 2,
	TYPE_INSTANT = 3,
	TYPE_COUNTER = 4,

	ANNOTATION_NAME_IID = 1,
	ANNOTATION_UINT = 3,
	ANNOTATION_INT = 4,
	ANNOTATION_STRING = 6,
	ANNOTATION_STRING_IID = 17,

	INTERNED_CATEGORIES = 1,
	INTERNED_EVENT_NAMES = 2,
	INTERNED_ANNOTATION_NAMES = 3,
	INTERNED_LOCATIONS = 4,
	INTERNED_ANNOTATION_STRINGS = 29,
	INTERNED_IID = 1,
	INTERNED_TEXT = 2,
	LOCATION_FILE = 2,
	LOCATION_FUNCTION = 3,
	LOCATION_LINE = 4,
};

#define SEQ_GLOBAL 1u
#define SEQ_FIRST 2u
#define SEQ_SHARED 127u /* the last number of one byte */
#define SEQ_THREADS (SEQ_SHARED - SEQ_FIRST)
#define MAX_ARGS 16u
#define ARG_TEXT_MAX 1024u

/* Which of the names a sequence has already defined, by table. */
enum name_table { NAMES_EVENT, NAMES_CATEGORY, NAMES_KEY, NAMES_STRING, NAMES_LOCATION, NAMES_N };

struct idset {
	uint8_t *bits;
	uint32_t n_bytes;
};

struct sequence {
	uint32_t id;
	uint32_t track; /* the default one, 0 = none */
	uint64_t last_ts;
	bool begun;
	struct idset defined[NAMES_N];
};

struct pftrace {
	struct writer base;
	struct sequence sequences[SEQ_SHARED + 1]; /* by id; 0 is not used */
	uint32_t next_sequence;
	uint8_t *track_sequence; /* by track: the id of its sequence, 0 = not declared */
	uint32_t max_tracks;
	uint64_t boot_offset; /* BOOTTIME - MONOTONIC, wrapping */
	struct writer_sched *sched;
};

static struct pftrace *pftrace_of(struct writer *w)
{
	return (struct pftrace *)w; /* base is the first member */
}

static bool idset_has(const struct idset *s, uint32_t id)
{
	return id / 8 < s->n_bytes && (s->bits[id / 8] & (1u << (id % 8)));
}

static int idset_add(struct idset *s, uint32_t id)
{
	if (id / 8 >= s->n_bytes) {
		uint32_t n = id / 8 + 1 < 64 ? 64 : (id / 8 + 1) * 2;
		uint8_t *p = realloc(s->bits, n);

		if (!p)
			return -ENOMEM;
		memset(p + s->n_bytes, 0, n - s->n_bytes);
		s->bits = p;
		s->n_bytes = n;
	}
	s->bits[id / 8] = (uint8_t)(s->bits[id / 8] | 1u << (id % 8));
	return 0;
}

/* A packet is built at the end of the piece; packet_end() makes it part of it. */
struct packet {
	struct pb pb;
	uint8_t *mark;
};

static void packet_begin(struct writer *w, struct packet *k)
{
	pb_init(&k->pb, writer_at(w), (size_t)(writer_piece_end(w) - writer_at(w)));
	k->mark = pb_open(&k->pb, TRACE_PACKET);
}

static void packet_end(struct writer *w, struct packet *k)
{
	pb_close(&k->pb, k->mark);
	writer_advance(w, (size_t)(k->pb.p - writer_at(w)));
}

static void put_clock(struct pb *pb, uint32_t id, uint64_t ts, bool incremental)
{
	uint8_t *m = pb_open(pb, SNAPSHOT_CLOCKS);

	pb_uint(pb, CLOCK_ID, id);
	pb_uint(pb, CLOCK_TIMESTAMP, ts);
	if (incremental)
		pb_uint(pb, CLOCK_IS_INCREMENTAL, 1);
	pb_close(pb, m);
}

/* Which flag of a switch's state the importer takes for "preempted", by the release it is told. */
static uint32_t preempted_flag(const char *release)
{
	unsigned int major, minor;

	if (!release || sscanf(release, "%u.%u", &major, &minor) != 2)
		return 0x800;
	if (major > 4 || (major == 4 && minor >= 14))
		return 0x100;
	return major == 4 && minor >= 8 ? 0x1000 : 0x800;
}

static void pftrace_begin(struct writer *w, const struct writer_meta *meta, const struct writer_clocks *c)
{
	struct pftrace *f = pftrace_of(w);
	uint64_t boottime = c->boottime ? c->boottime : c->monotonic;
	struct packet k;
	uint8_t *m;

	f->boot_offset = boottime - c->monotonic;
	writer_sched_set_preempted(f->sched, preempted_flag(meta->kernel_release));
	packet_begin(w, &k);
	pb_uint(&k.pb, PACKET_SEQUENCE_ID, SEQ_GLOBAL);
	pb_uint(&k.pb, PACKET_SEQUENCE_FLAGS, SEQ_INCREMENTAL_STATE_CLEARED);
	pb_uint(&k.pb, PACKET_FIRST_ON_SEQUENCE, 1);
	m = pb_open(&k.pb, PACKET_CLOCK_SNAPSHOT);
	put_clock(&k.pb, CLOCK_MONOTONIC_ID, c->monotonic, false);
	put_clock(&k.pb, CLOCK_BOOTTIME_ID, boottime, false);
	if (c->realtime)
		put_clock(&k.pb, CLOCK_REALTIME_ID, c->realtime, false);
	if (c->monotonic_raw)
		put_clock(&k.pb, CLOCK_MONOTONIC_RAW_ID, c->monotonic_raw, false);
	pb_uint(&k.pb, SNAPSHOT_PRIMARY, CLOCK_MONOTONIC_ID);
	pb_close(&k.pb, m);
	packet_end(w, &k);

	if (!meta->kernel_release)
		return;
	packet_begin(w, &k);
	pb_uint(&k.pb, PACKET_SEQUENCE_ID, SEQ_GLOBAL);
	m = pb_open(&k.pb, PACKET_SYSTEM_INFO);
	uint8_t *u = pb_open(&k.pb, UTSNAME);

	pb_string(&k.pb, UTSNAME_SYSNAME, "Linux");
	pb_string(&k.pb, UTSNAME_RELEASE, meta->kernel_release);
	if (meta->machine)
		pb_string(&k.pb, UTSNAME_MACHINE, meta->machine);
	pb_close(&k.pb, u);
	pb_close(&k.pb, m);
	packet_end(w, &k);
}

/* The sequence of a track; SEQ_GLOBAL's if the track has none of its own. */
static struct sequence *sequence_of(struct pftrace *f, uint32_t track)
{
	return &f->sequences[track < f->max_tracks && f->track_sequence[track] ?
				     f->track_sequence[track] : SEQ_GLOBAL];
}

static int track_assign(struct pftrace *f, uint32_t track, uint8_t sequence)
{
	if (track >= f->max_tracks) {
		uint32_t max = track < 64 ? 128 : track * 2;
		uint8_t *p = realloc(f->track_sequence, max);

		if (!p)
			return -ENOMEM;
		memset(p + f->max_tracks, 0, max - f->max_tracks);
		f->track_sequence = p;
		f->max_tracks = max;
	}
	f->track_sequence[track] = sequence;
	return 0;
}

/* The sequence's first packet: its clock and default track. */
static void sequence_begin(struct writer *w, struct sequence *s, uint64_t ts)
{
	struct packet k;
	uint8_t *m, *e;

	packet_begin(w, &k);
	pb_uint(&k.pb, PACKET_SEQUENCE_ID, s->id);
	pb_uint(&k.pb, PACKET_SEQUENCE_FLAGS, SEQ_INCREMENTAL_STATE_CLEARED);
	if (s->id != SEQ_GLOBAL)
		pb_uint(&k.pb, PACKET_FIRST_ON_SEQUENCE, 1);
	m = pb_open(&k.pb, PACKET_DEFAULTS);
	if (s->track) {
		e = pb_open(&k.pb, DEFAULTS_TRACK_EVENT);
		pb_uint(&k.pb, EVENT_DEFAULTS_TRACK, s->track);
		pb_close(&k.pb, e);
	}
	pb_uint(&k.pb, DEFAULTS_CLOCK_ID, CLOCK_SEQUENCE_ID);
	pb_close(&k.pb, m);
	m = pb_open(&k.pb, PACKET_CLOCK_SNAPSHOT);
	put_clock(&k.pb, CLOCK_MONOTONIC_ID, ts, false);
	put_clock(&k.pb, CLOCK_SEQUENCE_ID, 0, true);
	pb_close(&k.pb, m);
	packet_end(w, &k);
	s->begun = true;
	s->last_ts = ts;
}

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

/* Descriptors have absolute times, so that they do not depend on their sequence's state. */
static uint8_t *descriptor_begin(struct writer *w, struct packet *k, uint32_t track, uint64_t ts)
{
	uint8_t *m;

	packet_begin(w, k);
	pb_uint(&k->pb, PACKET_SEQUENCE_ID, sequence_of(pftrace_of(w), track)->id);
	if (ts) {
		pb_uint(&k->pb, PACKET_TIMESTAMP, ts);
		pb_uint(&k->pb, PACKET_TIMESTAMP_CLOCK_ID, CLOCK_MONOTONIC_ID);
	}
	m = pb_open(&k->pb, PACKET_TRACK_DESCRIPTOR);
	pb_uint(&k->pb, TRACK_UUID, track);
	return m;
}

static void descriptor_end(struct writer *w, struct packet *k, uint8_t *m)
{
	pb_close(&k->pb, m);
	packet_end(w, k);
}

static void pftrace_process(struct writer *w, uint32_t track, uint32_t pid, uint32_t ppid,
			    const char *name, uint64_t ts)
{
	struct packet k;
	uint8_t *d = descriptor_begin(w, &k, track, ts), *m;

	m = pb_open(&k.pb, TRACK_PROCESS);
	pb_uint(&k.pb, PROCESS_PID, pid);
	if (*name)
		pb_string(&k.pb, PROCESS_NAME, name);
	pb_close(&k.pb, m);
	descriptor_end(w, &k, d);
}

static void pftrace_thread(struct writer *w, uint32_t track, uint32_t process_track, uint32_t pid,
			   uint32_t tid, const char *name, uint64_t ts)
{
	struct pftrace *f = pftrace_of(w);
	struct packet k;
	uint8_t *d, *m;

	if (sequence_of(f, track)->id == SEQ_GLOBAL) {
		uint32_t id = f->next_sequence < SEQ_SHARED ? f->next_sequence++ : SEQ_SHARED;
		int r = track_assign(f, track, (uint8_t)id);

		if (r < 0) {
			writer_fail(w, r);
			return;
		}
		f->sequences[id].track = id < SEQ_SHARED ? track : 0;
		if (!f->sequences[id].begun)
			sequence_begin(w, &f->sequences[id], ts);
	}
	d = descriptor_begin(w, &k, track, ts);
	m = pb_open(&k.pb, TRACK_THREAD);
	pb_uint(&k.pb, THREAD_PID, pid);
	pb_uint(&k.pb, THREAD_TID, tid);
	if (*name)
		pb_string(&k.pb, THREAD_NAME, name);
	pb_close(&k.pb, m);
	descriptor_end(w, &k, d);
}

static void pftrace_track(struct writer *w, uint32_t track, uint32_t parent, const char *name,
			  const char *description)
{
	struct packet k;
	uint8_t *d = descriptor_begin(w, &k, track, 0);

	pb_string(&k.pb, TRACK_NAME, name);
	if (parent)
		pb_uint(&k.pb, TRACK_PARENT, parent);
	if (description)
		pb_string(&k.pb, TRACK_DESCRIPTION, description);
	pb_uint(&k.pb, TRACK_MERGE_BEHAVIOR, MERGE_NONE);
	descriptor_end(w, &k, d);
}

static void pftrace_counter_track(struct writer *w, uint32_t track, uint32_t parent, const char *name,
				  enum writer_unit unit)
{
	static const uint8_t units[] = {
		[WRITER_UNIT_NS] = 1, [WRITER_UNIT_COUNT] = 2, [WRITER_UNIT_BYTES] = 3};
	struct packet k;
	uint8_t *d = descriptor_begin(w, &k, track, 0), *m;

	pb_string(&k.pb, TRACK_NAME, name);
	if (parent)
		pb_uint(&k.pb, TRACK_PARENT, parent);
	m = pb_open(&k.pb, TRACK_COUNTER);
	pb_uint(&k.pb, COUNTER_UNIT, (unsigned int)unit < ARRAY_SIZE(units) ? units[unit] : 2);
	pb_close(&k.pb, m);
	descriptor_end(w, &k, d);
}

static void define_name(struct writer *w, struct pb *pb, struct sequence *s, enum name_table table,
			uint32_t field, uint32_t id)
{
	uint8_t *m;
	int r;

	if (id == 0 || idset_has(&s->defined[table], id))
		return;
	m = pb_open(pb, field);
	pb_uint(pb, INTERNED_IID, id);
	pb_bytes(pb, INTERNED_TEXT, strtab_text(w->names, id), strtab_len(w->names, id));
	pb_close(pb, m);
	r = idset_add(&s->defined[table], id);
	if (r < 0)
		writer_fail(w, r);
}

static void define_location(struct writer *w, struct pb *pb, struct sequence *s, uint32_t id)
{
	const struct writer_location *l = &w->locations[id];
	uint8_t *m;
	int r;

	if (id == 0 || id >= w->n_locations || idset_has(&s->defined[NAMES_LOCATION], id))
		return;
	m = pb_open(pb, INTERNED_LOCATIONS);
	pb_uint(pb, INTERNED_IID, id);
	pb_bytes(pb, LOCATION_FILE, strtab_text(w->names, l->file), strtab_len(w->names, l->file));
	pb_bytes(pb, LOCATION_FUNCTION, strtab_text(w->names, l->function),
		 strtab_len(w->names, l->function));
	if (l->line)
		pb_uint(pb, LOCATION_LINE, l->line);
	pb_close(pb, m);
	r = idset_add(&s->defined[NAMES_LOCATION], id);
	if (r < 0)
		writer_fail(w, r);
}

static bool is_defined(const struct sequence *s, const struct writer_event *ev)
{
	return idset_has(&s->defined[NAMES_EVENT], ev->name) &&
	       (!ev->category || idset_has(&s->defined[NAMES_CATEGORY], ev->category)) &&
	       (!ev->location || idset_has(&s->defined[NAMES_LOCATION], ev->location)) &&
	       ev->n_args == 0;
}

/* What the event uses for the first time on this sequence. */
static void put_interned(struct writer *w, struct pb *pb, struct sequence *s, const struct writer_event *ev)
{
	uint8_t *start = pb->p, *m = pb_open(pb, PACKET_INTERNED_DATA), *empty = pb->p;

	define_name(w, pb, s, NAMES_EVENT, INTERNED_EVENT_NAMES, ev->name);
	define_name(w, pb, s, NAMES_CATEGORY, INTERNED_CATEGORIES, ev->category);
	define_location(w, pb, s, ev->location);
	for (uint32_t i = 0; i < ev->n_args && i < MAX_ARGS; i++) {
		define_name(w, pb, s, NAMES_KEY, INTERNED_ANNOTATION_NAMES, ev->args[i].key);
		if (ev->args[i].kind == WRITER_ARG_NAME)
			define_name(w, pb, s, NAMES_STRING, INTERNED_ANNOTATION_STRINGS,
				    ev->args[i].value.name);
	}
	if (pb->p == empty)
		pb->p = start;
	else
		pb_close(pb, m);
}

static void put_args(struct pb *pb, const struct writer_event *ev)
{
	for (uint32_t i = 0; i < ev->n_args && i < MAX_ARGS; i++) {
		const struct writer_arg *a = &ev->args[i];
		uint8_t *m = pb_open(pb, EVENT_ANNOTATIONS);

		pb_uint(pb, ANNOTATION_NAME_IID, a->key);
		switch (a->kind) {
		case WRITER_ARG_UINT:
			pb_uint(pb, ANNOTATION_UINT, a->value.u64);
			break;
		case WRITER_ARG_INT:
			pb_int(pb, ANNOTATION_INT, a->value.i64);
			break;
		case WRITER_ARG_NAME:
			if (a->value.name)
				pb_uint(pb, ANNOTATION_STRING_IID, a->value.name);
			else
				pb_string(pb, ANNOTATION_STRING, "");
			break;
		case WRITER_ARG_TEXT:
			pb_bytes(pb, ANNOTATION_STRING, a->value.text,
				 strnlen(a->value.text, ARG_TEXT_MAX));
			break;
		}
		pb_close(pb, m);
	}
}

static void put_event(struct writer *w, uint32_t track, uint64_t ts, uint32_t type,
		      const struct writer_event *ev)
{
	struct sequence *s = sequence_of(pftrace_of(w), track);
	struct packet k;
	uint8_t *m;

	if (__builtin_expect(!s->begun, 0))
		sequence_begin(w, s, ts);
	packet_begin(w, &k);
	put_timestamp(&k.pb, s, ts);
	pb_uint(&k.pb, PACKET_SEQUENCE_ID, s->id);
	if (ev && __builtin_expect(!is_defined(s, ev), 0))
		put_interned(w, &k.pb, s, ev);
	m = pb_open(&k.pb, PACKET_TRACK_EVENT);
	pb_uint(&k.pb, EVENT_TYPE, type);
	if (s->track != track)
		pb_uint(&k.pb, EVENT_TRACK, track);
	if (ev) {
		if (ev->name)
			pb_uint(&k.pb, EVENT_NAME_IID, ev->name);
		if (ev->category)
			pb_uint(&k.pb, EVENT_CATEGORY_IIDS, ev->category);
		if (ev->location && ev->location < w->n_locations)
			pb_uint(&k.pb, EVENT_LOCATION_IID, ev->location);
		if (ev->n_args)
			put_args(&k.pb, ev);
		if (ev->flow) {
			pb_fixed64(&k.pb, EVENT_FLOW_IDS, ev->flow);
			w->stats.flows++;
		}
		if (ev->flow_end)
			pb_fixed64(&k.pb, EVENT_TERMINATING_FLOW_IDS, ev->flow_end);
	}
	pb_close(&k.pb, m);
	packet_end(w, &k);
}

static void pftrace_slice_begin(struct writer *w, uint32_t track, uint64_t ts,
				const struct writer_event *ev)
{
	w->stats.slices++;
	put_event(w, track, ts, TYPE_SLICE_BEGIN, ev);
}

static void pftrace_slice_end(struct writer *w, uint32_t track, uint64_t ts, const struct writer_event *ev)
{
	put_event(w, track, ts, TYPE_SLICE_END, ev);
}

static void pftrace_instant(struct writer *w, uint32_t track, uint64_t ts, const struct writer_event *ev)
{
	w->stats.instants++;
	put_event(w, track, ts, TYPE_INSTANT, ev);
}

static void pftrace_counter(struct writer *w, uint32_t track, uint64_t ts, int64_t value)
{
	struct sequence *s = &pftrace_of(w)->sequences[SEQ_GLOBAL];
	struct packet k;
	uint8_t *m;

	w->stats.counters++;
	if (!s->begun)
		sequence_begin(w, s, ts);
	packet_begin(w, &k);
	put_timestamp(&k.pb, s, ts);
	pb_uint(&k.pb, PACKET_SEQUENCE_ID, s->id);
	m = pb_open(&k.pb, PACKET_TRACK_EVENT);
	pb_uint(&k.pb, EVENT_TYPE, TYPE_COUNTER);
	pb_uint(&k.pb, EVENT_TRACK, track);
	pb_int(&k.pb, EVENT_COUNTER_VALUE, value);
	pb_close(&k.pb, m);
	packet_end(w, &k);
}

/* What decode/writer_sched.c has collected of one CPU. */
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

static void pftrace_sched_switch(struct writer *w, uint32_t cpu, uint64_t ts, const struct writer_switch *s)
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
		for (unsigned int t = 0; t < NAMES_N; t++)
			free(f->sequences[i].defined[t].bits);
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
	.counter_track = pftrace_counter_track,
	.slice_begin = pftrace_slice_begin,
	.slice_end = pftrace_slice_end,
	.instant = pftrace_instant,
	.counter = pftrace_counter,
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
