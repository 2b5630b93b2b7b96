/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/unit/decode/writer/pftrace-read.h"

#include <libdeflate.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_SEQUENCES 256
#define N_NAMES 65536

struct view {
	const uint8_t *p, *end;
};

struct field {
	uint32_t number, wire;
	uint64_t value;	  /* wire 0, 1, 5 */
	struct view view; /* wire 2 */
};

struct sequence {
	bool begun;
	uint64_t clock; /* the incremental one, already on MONOTONIC */
	uint64_t default_track;
	char **names[4]; /* event names, categories, annotation names, annotation strings */
};

struct reader {
	struct read_trace *t;
	struct sequence sequences[N_SEQUENCES];
};

static int wrong(struct reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int wrong(struct reader *r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (!r->t->error[0])
		(void)vsnprintf(r->t->error, sizeof(r->t->error), fmt, ap);
	va_end(ap);
	return -1;
}

static bool varint(struct view *v, uint64_t *ret)
{
	uint64_t x = 0;

	for (unsigned int shift = 0; shift < 70; shift += 7) {
		if (v->p == v->end)
			return false;
		x |= (uint64_t)(*v->p & 0x7f) << (shift < 64 ? shift : 63);
		if (!(*v->p++ & 0x80)) {
			*ret = x;
			return true;
		}
	}
	return false;
}

/* 1 = a field, 0 = the end, -1 = broken. */
static int next_field(struct view *v, struct field *f)
{
	uint64_t key, len;

	if (v->p == v->end)
		return 0;
	if (!varint(v, &key))
		return -1;
	f->number = (uint32_t)(key >> 3);
	f->wire = key & 7;
	switch (f->wire) {
	case 0:
		return varint(v, &f->value) ? 1 : -1;
	case 1:
		if (v->end - v->p < 8)
			return -1;
		memcpy(&f->value, v->p, 8);
		v->p += 8;
		return 1;
	case 2:
		if (!varint(v, &len) || len > (uint64_t)(v->end - v->p))
			return -1;
		f->view = (struct view){v->p, v->p + len};
		v->p += len;
		return 1;
	default:
		return -1;
	}
}

static uint64_t find_uint(struct view v, uint32_t number, uint64_t otherwise)
{
	struct field f;

	while (next_field(&v, &f) == 1)
		if (f.number == number && f.wire != 2)
			otherwise = f.value;
	return otherwise;
}

static bool find_view(struct view v, uint32_t number, struct view *ret)
{
	struct field f;
	bool found = false;

	while (next_field(&v, &f) == 1)
		if (f.number == number && f.wire == 2) {
			*ret = f.view;
			found = true;
		}
	return found;
}

static void copy_text(char *dst, size_t size, struct view v)
{
	size_t n = (size_t)(v.end - v.p) < size - 1 ? (size_t)(v.end - v.p) : size - 1;

	memcpy(dst, v.p, n);
	dst[n] = '\0';
}

/* Strings of a protobuf are UTF-8. */
static bool is_utf8(struct view v)
{
	while (v.p < v.end) {
		uint32_t c = *v.p++, min;
		int more = c < 0x80             ? 0
			   : (c & 0xe0) == 0xc0 ? 1
			   : (c & 0xf0) == 0xe0 ? 2
			   : (c & 0xf8) == 0xf0 ? 3
						: -1;

		if (more < 0)
			return false;
		min = more == 1 ? 0x80 : more == 2 ? 0x800 : more == 3 ? 0x10000 : 0;
		c &= more ? 0x3fu >> more : 0x7f;
		for (; more > 0; more--) {
			if (v.p == v.end || (*v.p & 0xc0) != 0x80)
				return false;
			c = c << 6 | (*v.p++ & 0x3f);
		}
		if (c < min || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
			return false;
	}
	return true;
}

static int read_interned(struct reader *r, struct sequence *s, struct view v)
{
	struct field f;
	int k;

	while ((k = next_field(&v, &f)) == 1) {
		int table = f.number == 2    ? 0
			    : f.number == 1  ? 1
			    : f.number == 3  ? 2
			    : f.number == 29 ? 3
					     : -1;
		uint64_t iid;
		struct view text;

		r->t->interned++;
		if (table < 0)
			continue;
		iid = find_uint(f.view, 1, 0);
		if (iid == 0 || iid >= N_NAMES || !find_view(f.view, 2, &text))
			return wrong(r, "interned entry without number or text");
		if (!is_utf8(text))
			return wrong(r, "interned entry %u is not UTF-8", (unsigned int)iid);
		if (!s->names[table])
			s->names[table] = calloc(N_NAMES, sizeof(char *));
		if (s->names[table][iid])
			return wrong(r, "interned entry %u defined twice", (unsigned int)iid);
		s->names[table][iid] = strndup((const char *)text.p, (size_t)(text.end - text.p));
	}
	return k;
}

static const char *interned(const struct sequence *s, int table, uint64_t iid)
{
	return iid < N_NAMES && s->names[table] ? s->names[table][iid] : NULL;
}

static int read_descriptor(struct reader *r, struct view v)
{
	uint64_t uuid = find_uint(v, 1, 0);
	struct read_track *track;
	struct view sub, text;

	if (uuid == 0 || uuid >= READ_TRACKS)
		return wrong(r, "track uuid %llu", (unsigned long long)uuid);
	track = &r->t->tracks[uuid];
	if (!track->declared)
		track->in_order = true;
	track->declared = 1;
	track->parent = (uint32_t)find_uint(v, 5, 0);
	if (track->parent && !r->t->tracks[track->parent].declared)
		return wrong(r, "track %llu before its parent", (unsigned long long)uuid);
	if (find_view(v, 2, &text))
		copy_text(track->name, sizeof(track->name), text);
	if (find_view(v, 3, &sub)) {
		track->pid = (uint32_t)find_uint(sub, 1, 0);
		if (find_view(sub, 6, &text))
			copy_text(track->name, sizeof(track->name), text);
	}
	if (find_view(v, 4, &sub)) {
		track->pid = (uint32_t)find_uint(sub, 1, 0);
		track->tid = (uint32_t)find_uint(sub, 2, 0);
		if (find_view(sub, 5, &text))
			copy_text(track->name, sizeof(track->name), text);
	}
	return 0;
}

static int check_args(struct reader *r, const struct sequence *s, struct view v)
{
	struct field f;

	while (next_field(&v, &f) == 1) {
		struct view text;
		uint64_t iid;

		if (f.number == 47)
			r->t->flows_begun++;
		if (f.number == 48)
			r->t->flows_ended++;
		if (f.number != 4)
			continue;
		iid = find_uint(f.view, 1, 0);
		if (!interned(s, 2, iid))
			return wrong(r, "annotation name %u not defined", (unsigned int)iid);
		iid = find_uint(f.view, 17, 0);
		if (iid && !interned(s, 3, iid))
			return wrong(r, "annotation string %u not defined", (unsigned int)iid);
		if (find_view(f.view, 6, &text) && !is_utf8(text))
			return wrong(r, "an annotation is not UTF-8");
		r->t->args++;
	}
	return 0;
}

static int add_slice_event(struct read_track *track, uint64_t ts, const char *name, bool late)
{
	struct read_slice *e;

	if (track->n_events == track->max_events) {
		const size_t max = track->max_events ? track->max_events * 2 : 64;
		struct read_slice *v = reallocarray(track->events, max, sizeof(*v));

		if (!v)
			return -1;
		track->events = v;
		track->max_events = max;
	}
	e = &track->events[track->n_events++];
	*e = (struct read_slice){.ts = ts, .late = late};
	(void)snprintf(e->name, sizeof(e->name), "%.38s", name);
	track->in_order &= !late;
	return 0;
}

/* Stable: what is late is moved to its place. */
static int sort_events(struct read_track *track)
{
	struct read_slice *sorted = calloc(track->n_events + 1, sizeof(*sorted));
	const size_t n = track->n_events;
	size_t n_late = 0, at = 0, out = 0;
	size_t *late = calloc(n + 1, sizeof(*late));

	if (!sorted || !late)
		return -1;
	for (size_t i = 0; i < n; i++)
		if (track->events[i].late) {
			size_t k = n_late++;

			for (; k && track->events[late[k - 1]].ts > track->events[i].ts; k--)
				late[k] = late[k - 1];
			late[k] = i;
		}
	for (size_t i = 0; i <= n; i++) {
		if (i < n && track->events[i].late)
			continue;
		/* those of the same time that came before them stay before them */
		while (at < n_late &&
		       (i == n || track->events[late[at]].ts < track->events[i].ts ||
			(track->events[late[at]].ts == track->events[i].ts && late[at] < i)))
			sorted[out++] = track->events[late[at++]];
		if (i < n)
			sorted[out++] = track->events[i];
	}
	free(late);
	free(track->events);
	track->events = sorted;
	return 0;
}

static int check_nesting(struct reader *r, struct read_track *track)
{
	const struct read_slice *open[512];
	uint32_t depth = 0;

	if (!track->in_order && sort_events(track) < 0)
		return wrong(r, "no memory");
	for (size_t i = 0; i < track->n_events; i++) {
		const struct read_slice *e = &track->events[i];

		if (!e->name[0]) {
			if (depth == 0)
				return wrong(r, "end without begin on %s at %llu", track->name,
					     (unsigned long long)e->ts);
			depth--;
			if (e->ts - open[depth]->ts > track->longest)
				track->longest = e->ts - open[depth]->ts;
			continue;
		}
		if (depth == 511)
			return wrong(r, "track %s is too deep", track->name);
		if (e->late && depth && !open[depth - 1]->late)
			return wrong(r, "%s on track %s is around part of a slice, at %llu",
				     e->name, track->name, (unsigned long long)e->ts);
		open[depth++] = e;
		if (depth > track->max_depth)
			track->max_depth = depth;
	}
	return depth ? wrong(r, "%u slices of track %s never end, the inner one is %s", depth,
			     track->name, open[depth - 1]->name)
		     : 0;
}

static int read_event(struct reader *r, struct sequence *s, struct view v, uint64_t ts)
{
	uint64_t uuid = find_uint(v, 11, s->default_track), type = find_uint(v, 9, 0);
	uint64_t name_iid = find_uint(v, 10, 0), category = find_uint(v, 3, 0);
	const char *name = interned(s, 0, name_iid);
	struct read_track *track;
	bool late;

	if (uuid == 0 || uuid >= READ_TRACKS || !r->t->tracks[uuid].declared)
		return wrong(r, "event on undeclared track %llu", (unsigned long long)uuid);
	track = &r->t->tracks[uuid];
	if (name_iid && !name)
		return wrong(r, "event name %u not defined", (unsigned int)name_iid);
	if (category && !interned(s, 1, category))
		return wrong(r, "category %u not defined", (unsigned int)category);
	if (ts < track->last_ts && type != 1)
		return wrong(r, "track %s goes back from %llu to %llu", track->name,
			     (unsigned long long)track->last_ts, (unsigned long long)ts);
	late = ts < track->last_ts;
	if (!late)
		track->last_ts = ts;
	if (r->t->first_ts == 0 || ts < r->t->first_ts)
		r->t->first_ts = ts;
	if (ts > r->t->last_ts)
		r->t->last_ts = ts;
	if (check_args(r, s, v) < 0)
		return -1;
	switch (type) {
	case 1:
		if (!name || !*name)
			return wrong(r, "slice without a name");
		track->slices++;
		r->t->slices++;
		return add_slice_event(track, ts, name, late) < 0 ? wrong(r, "no memory") : 0;
	case 2:
		return add_slice_event(track, ts, "", false) < 0 ? wrong(r, "no memory") : 0;
	case 3:
		r->t->instants++;
		return name ? 0 : wrong(r, "instant without a name");
	case 4:
		r->t->counters++;
		return 0;
	default:
		return wrong(r, "event type %llu", (unsigned long long)type);
	}
}

static int count_packed(struct view v, uint64_t *ret)
{
	uint64_t x, n = 0;

	while (v.p < v.end) {
		if (!varint(&v, &x))
			return -1;
		n++;
	}
	*ret = n;
	return 0;
}

static int read_ftrace(struct reader *r, struct view v)
{
	struct field f;
	int k;

	while ((k = next_field(&v, &f)) == 1) {
		struct view sub;

		if (f.number == 2) {
			r->t->switches += find_view(f.view, 4, &sub);
			r->t->wakings += find_view(f.view, 20, &sub);
		} else if (f.number == 4) {
			static const uint32_t switch_columns[] = {1, 2, 3, 4, 6};
			static const uint32_t waking_columns[] = {7, 8, 9, 10, 11, 12};
			uint64_t n = 0, first = 0;

			for (size_t i = 0; i < 5; i++) {
				n = 0;
				if (find_view(f.view, switch_columns[i], &sub) &&
				    count_packed(sub, &n) < 0)
					return wrong(r, "broken column");
				if (i == 0)
					first = n;
				else if (n != first)
					return wrong(r, "switch columns of unequal length");
			}
			r->t->switches += first;
			for (size_t i = 0; i < 6; i++) {
				n = 0;
				if (find_view(f.view, waking_columns[i], &sub) &&
				    count_packed(sub, &n) < 0)
					return wrong(r, "broken column");
				if (i == 0)
					first = n;
				else if (n != first)
					return wrong(r, "waking columns of unequal length");
			}
			r->t->wakings += first;
		}
	}
	return k;
}

/* A sequence's snapshot: what MONOTONIC was when its incremental clock began. */
static void read_snapshot(struct sequence *s, struct view v)
{
	bool incremental = false;
	uint64_t monotonic = 0;
	struct field f;

	while (next_field(&v, &f) == 1) {
		if (f.number != 1)
			continue;
		if (find_uint(f.view, 1, 0) == 3)
			monotonic = find_uint(f.view, 2, 0);
		if (find_uint(f.view, 1, 0) == 64)
			incremental = find_uint(f.view, 3, 0) == 1;
	}
	if (incremental)
		s->clock = monotonic;
}

static int read_stream(struct reader *r, struct view v, bool inside);

static int read_compressed(struct reader *r, struct view v)
{
	struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
	size_t size = 1u << 20, n = 0;
	uint8_t *out = malloc(size);
	int k = -1;

	r->t->compressed++;
	if (libdeflate_zlib_decompress(d, v.p, (size_t)(v.end - v.p), out, size, &n) ==
	    LIBDEFLATE_SUCCESS)
		k = read_stream(r, (struct view){out, out + n}, true);
	else
		(void)wrong(r, "compressed piece does not inflate");
	libdeflate_free_decompressor(d);
	free(out);
	return k;
}

static int read_packet(struct reader *r, struct view v)
{
	uint64_t id = find_uint(v, 10, 0), flags = find_uint(v, 13, 0), ts = find_uint(v, 8, 0);
	struct sequence *s;
	struct view sub;

	r->t->packets++;
	if (find_view(v, 50, &sub))
		return read_compressed(r, sub);
	if (id == 0 || id >= N_SEQUENCES)
		return wrong(r, "packet without a sequence");
	s = &r->sequences[id];
	if (flags & 1)
		s->begun = true;
	if (find_view(v, 59, &sub)) {
		struct view event;

		s->default_track = find_view(sub, 11, &event) ? find_uint(event, 11, 0) : 0;
	}
	if (find_view(v, 6, &sub))
		read_snapshot(s, sub);
	if (find_view(v, 12, &sub) && read_interned(r, s, sub) < 0)
		return wrong(r, "broken interned data");
	if (find_view(v, 60, &sub) && read_descriptor(r, sub) < 0)
		return -1;
	if (find_view(v, 1, &sub) && read_ftrace(r, sub) < 0)
		return -1;
	if (find_view(v, 11, &sub)) {
		if (!s->begun)
			return wrong(r, "event on sequence %llu before its begin",
				     (unsigned long long)id);
		if (find_uint(v, 58, 64) == 64)
			ts = s->clock += ts;
		return read_event(r, s, sub, ts);
	}
	return 0;
}

static int read_stream(struct reader *r, struct view v, bool inside)
{
	struct field f;
	int k;

	while ((k = next_field(&v, &f)) == 1) {
		if (f.number != 1 || f.wire != 2)
			return wrong(r, "not a packet");
		if (read_packet(r, f.view) < 0)
			return -1;
	}
	return k < 0 ? wrong(r, "cut packet") : 0;
}

int read_trace(struct read_trace *t, const uint8_t *data, size_t len)
{
	struct reader *r = calloc(1, sizeof(*r));
	int k;

	*t = (struct read_trace){.tracks = calloc(READ_TRACKS, sizeof(*t->tracks))};
	r->t = t;
	k = read_stream(r, (struct view){data, data + len}, false);
	for (uint32_t i = 0; i < READ_TRACKS && k == 0; i++)
		k = check_nesting(r, &t->tracks[i]);
	for (int i = 0; i < N_SEQUENCES; i++)
		for (int table = 0; table < 4; table++) {
			for (int n = 0; r->sequences[i].names[table] && n < N_NAMES; n++)
				free(r->sequences[i].names[table][n]);
			free(r->sequences[i].names[table]);
		}
	free(r);
	return k;
}

void read_trace_fini(struct read_trace *t)
{
	for (size_t i = 0; t->tracks && i < READ_TRACKS; i++)
		free(t->tracks[i].events);
	free(t->tracks);
	t->tracks = NULL;
}

const struct read_track *read_track_named(const struct read_trace *t, const char *name)
{
	for (uint32_t i = 0; i < READ_TRACKS; i++)
		if (t->tracks[i].declared && strcmp(t->tracks[i].name, name) == 0)
			return &t->tracks[i];
	return NULL;
}
