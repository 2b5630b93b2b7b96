/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of a Perfetto trace, its packet sequences, and the descriptors of its tracks.
 */
#include "config.h"

#include "decode/writer/pftrace_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void put_clock(struct pb *pb, uint32_t id, uint64_t ts, bool incremental)
{
	uint8_t *m = pb_open(pb, SNAPSHOT_CLOCKS);

	pb_uint(pb, CLOCK_ID, id);
	pb_uint(pb, CLOCK_TIMESTAMP, ts);
	if (incremental)
		pb_uint(pb, CLOCK_IS_INCREMENTAL, 1);
	pb_close(pb, m);
}

/*
 * Which flag of a switch's state the importer takes for "preempted", by the release that the trace
 * names.
 */
static uint32_t preempted_flag(const char *release)
{
	unsigned int major, minor;

	if (!release || sscanf(release, "%u.%u", &major, &minor) != 2)
		return 0x800;
	if (major > 4 || (major == 4 && minor >= 14))
		return 0x100;
	return major == 4 && minor >= 8 ? 0x1000 : 0x800;
}

void pftrace_begin(struct writer *w, const struct writer_meta *meta, const struct writer_clocks *c)
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

void pftrace_sequence_begin(struct writer *w, struct sequence *s, uint64_t ts)
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

/* Descriptors have absolute times, so that they do not depend on their sequence's state. */
static uint8_t *descriptor_begin(struct writer *w, struct packet *k, uint32_t track, uint64_t ts)
{
	uint8_t *m;

	packet_begin(w, k);
	pb_uint(&k->pb, PACKET_SEQUENCE_ID, pftrace_sequence_of(pftrace_of(w), track)->id);
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

void pftrace_process(struct writer *w, uint32_t track, uint32_t pid, uint32_t ppid,
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

void pftrace_thread(struct writer *w, uint32_t track, uint32_t process_track, uint32_t pid,
			   uint32_t tid, const char *name, uint64_t ts)
{
	struct pftrace *f = pftrace_of(w);
	struct packet k;
	uint8_t *d, *m;

	if (pftrace_sequence_of(f, track)->id == SEQ_GLOBAL) {
		uint32_t id = f->next_sequence < SEQ_SHARED ? f->next_sequence++ : SEQ_SHARED;
		int r = track_assign(f, track, (uint8_t)id);

		if (r < 0) {
			writer_fail(w, r);
			return;
		}
		f->sequences[id].track = id < SEQ_SHARED ? track : 0;
		if (!f->sequences[id].begun)
			pftrace_sequence_begin(w, &f->sequences[id], ts);
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

void pftrace_track(struct writer *w, uint32_t track, uint32_t parent, const char *name,
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

void pftrace_lane(struct writer *w, uint32_t track, uint32_t parent, const char *name)
{
	struct packet k;
	uint8_t *d = descriptor_begin(w, &k, track, 0);

	pb_string(&k.pb, TRACK_NAME, name);
	if (parent)
		pb_uint(&k.pb, TRACK_PARENT, parent);
	/* siblings of one name are merged: that is the viewer's default */
	descriptor_end(w, &k, d);
}

void pftrace_counter_track(struct writer *w, uint32_t track, uint32_t parent, const char *name,
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
