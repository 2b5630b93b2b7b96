/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What decode/writer_pftrace*.c share; nobody else includes it. The field numbers are those of
 * Perfetto's trace.proto.
 */
#pragma once

#include "decode/writer/pb.h"
#include "decode/writer/sched.h"
#include "decode/writer/writer_internal.h"

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
	EVENT_COUNTER_DOUBLE = 44,
	EVENT_FLOW_IDS = 47,
	EVENT_TERMINATING_FLOW_IDS = 48,
	TYPE_SLICE_BEGIN = 1,
	TYPE_SLICE_END = 2,
	TYPE_INSTANT = 3,
	TYPE_COUNTER = 4,

	ANNOTATION_NAME_IID = 1,
	ANNOTATION_UINT = 3,
	ANNOTATION_INT = 4,
	ANNOTATION_DOUBLE = 5,
	ANNOTATION_STRING = 6,
	ANNOTATION_POINTER = 7,
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
/*
 * Each sequence has tables of its own: more of them repeat the names, and in the shared one each
 * event names its track.
 */
#define SEQ_SHARED 18u
#define SEQ_THREADS (SEQ_SHARED - SEQ_FIRST)

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

static inline struct pftrace *pftrace_of(struct writer *w)
{
	return (struct pftrace *)w; /* base is the first member */
}

/* The sequence of a track; SEQ_GLOBAL's if the track has none of its own. */
static inline struct sequence *pftrace_sequence_of(struct pftrace *f, uint32_t track)
{
	return &f->sequences[track < f->max_tracks && f->track_sequence[track] ?
				     f->track_sequence[track] : SEQ_GLOBAL];
}

static inline bool idset_has(const struct idset *s, uint32_t id)
{
	return id / 8 < s->n_bytes && (s->bits[id / 8] & (1u << (id % 8)));
}

static inline bool is_arg_defined(const struct sequence *s, const struct writer_arg *a)
{
	return idset_has(&s->defined[NAMES_KEY], a->key) &&
	       (a->kind != WRITER_ARG_NAME || idset_has(&s->defined[NAMES_STRING], a->value.name));
}

/* Everything that the event and its first `n_args` arguments name was defined on the sequence. */
static inline __attribute__((always_inline)) bool
is_defined(const struct sequence *s, const struct writer_event *ev, uint32_t n_args)
{
	if ((ev->name && !idset_has(&s->defined[NAMES_EVENT], ev->name)) ||
	    (ev->category && !idset_has(&s->defined[NAMES_CATEGORY], ev->category)) ||
	    (ev->location && !idset_has(&s->defined[NAMES_LOCATION], ev->location)))
		return false;
	for (uint32_t i = 0; i < n_args; i++)
		if (!is_arg_defined(s, &ev->args[i]))
			return false;
	return true;
}

/* A packet is built at the end of the piece; packet_end() makes it part of it. */
struct packet {
	struct pb pb;
	uint8_t *mark;
};

static inline void packet_begin(struct writer *w, struct packet *k)
{
	pb_init(&k->pb, writer_at(w), (size_t)(writer_piece_end(w) - writer_at(w)));
	k->mark = pb_open(&k->pb, TRACE_PACKET);
}

static inline void packet_end(struct writer *w, struct packet *k)
{
	pb_close(&k->pb, k->mark);
	writer_advance(w, (size_t)(k->pb.p - writer_at(w)));
}

/* In decode/writer/pftrace_tracks.c: the head of the trace, sequences, descriptors of tracks. */
void pftrace_begin(struct writer *w, const struct writer_meta *meta, const struct writer_clocks *c);
void pftrace_process(struct writer *w, uint32_t track, uint32_t pid, uint32_t ppid,
		     const char *name, uint64_t ts);
void pftrace_thread(struct writer *w, uint32_t track, uint32_t process_track, uint32_t pid,
		    uint32_t tid, const char *name, uint64_t ts);
void pftrace_track(struct writer *w, uint32_t track, uint32_t parent, const char *name,
		   const char *description);
void pftrace_lane(struct writer *w, uint32_t track, uint32_t parent, const char *name);
void pftrace_counter_track(struct writer *w, uint32_t track, uint32_t parent, const char *name,
			   enum writer_unit unit);
/* The sequence's first packet: its clock and default track. */
void pftrace_sequence_begin(struct writer *w, struct sequence *s, uint64_t ts);

/*
 * In decode/writer/pftrace_names.c. The first defines what the event names first on this sequence;
 * `n_args` of its arguments are written.
 */
void pftrace_put_interned(struct writer *w, struct pb *pb, struct sequence *s,
			  const struct writer_event *ev, uint32_t n_args);
void pftrace_put_args(struct pb *pb, const struct writer_event *ev, uint32_t n_args);
void pftrace_names_free(struct sequence *s);
