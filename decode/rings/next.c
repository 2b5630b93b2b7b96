// SPDX-License-Identifier: Apache-2.0
/*
 * Hands out one event after the other: only now names are looked up, payloads read, formats applied
 * and all of it made safe to show.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "common/base/escape.h"
#include "decode/rings/events_internal.h"
#include "decode/rings/fields.h"
#include "decode/rings/log_format.h"

/* A log's text before it is escaped, which may make it four times as long. */
#define LOG_BYTES 2048u
#define ESCAPED(n) (4 * (n) + 1)

/* One event's texts: arguments, or a log's text and format. */
static_assert(ESCAPED(RING_PAYLOAD_MAX) + RINGEVENT_MAX_ARGS <= RINGEVENTS_TEXT_BYTES, "arguments");
static_assert(ESCAPED(LOG_BYTES) + ESCAPED(RING_MAX_NAME) + 64 <= RINGEVENTS_TEXT_BYTES, "logs");

/* ---- texts */

static const char *keep_text(struct ringevents *r, const char *s, size_t len)
{
	char *p = r->text + r->text_used;
	const size_t room = RINGEVENTS_TEXT_BYTES - r->text_used;

	if (room == 0)
		return "";
	r->text_used += escape_text(p, room, s, len) + 1;
	return p;
}

/* The text of a name: "" for none. */
static const char *name_of(struct ringevents *r, struct ringsource *src, uint32_t number)
{
	char text[ESCAPED(RING_MAX_NAME)];
	const char *bytes;
	size_t len, before;

	if (number == 0)
		return "";
	if (number <= ringfile_header(src->file)->names_max && src->names[number - 1])
		return strtab_text(r->names, src->names[number - 1]);
	bytes = ringfile_name(src->file, number, &len);
	if (!bytes) {
		r->losses.names_unknown++;
		return "<unknown name>";
	}
	len = escape_text(text, sizeof(text), bytes, len);
	before = strtab_bytes(r->names);
	src->names[number - 1] = strtab_add(r->names, text, len, NULL);
	/* The table has a limit of its own: what the budget does not give is a part of that. */
	(void)ringevents_charge(r, strtab_bytes(r->names) - before);
	return strtab_text(r->names, src->names[number - 1]);
}

static const char *name_or(const char *name, const char *fallback)
{
	return *name ? name : fallback;
}

/* ---- payloads */

static void add_arg(struct ringevents *r, struct ringsource *src, const struct ringfield *f,
		    struct ringevent *ev)
{
	struct ringevent_arg *arg = &ev->args[ev->n_args];

	*arg = (struct ringevent_arg){.key = name_of(r, src, f->name)};
	switch (f->type) {
	case RING_FIELD_I64:
		arg->type = RINGEVENT_I64;
		arg->value.i64 = (int64_t)f->value;
		break;
	case RING_FIELD_F64:
		arg->type = RINGEVENT_F64;
		arg->value.f64 = f->f64;
		break;
	case RING_FIELD_POINTER:
		arg->type = RINGEVENT_POINTER;
		arg->value.u64 = f->value;
		break;
	case RING_FIELD_TEXT:
	case RING_FIELD_TEXT_CUT:
		arg->type = RINGEVENT_TEXT;
		arg->cut = f->type == RING_FIELD_TEXT_CUT;
		arg->value.text = keep_text(r, f->text, f->length);
		break;
	case RING_FIELD_NAME:
		arg->type = RINGEVENT_TEXT;
		arg->value.text = name_of(r, src, (uint32_t)f->value);
		break;
	default:
		arg->type = RINGEVENT_U64;
		arg->value.u64 = f->value;
		break;
	}
	ev->n_args++;
}

static size_t payload_of(struct ringevents *r, const struct ringrec *rec,
			 const struct ring_slot *slot, uint8_t payload[RING_PAYLOAD_MAX])
{
	const struct ringseg *seg = &r->segs[rec->seg];

	return ringfile_payload(r->sources[seg->source].file, seg->ring, (uint64_t)rec->slot + 1,
		slot->kind >> RING_SPAN_SHIFT, payload);
}

static void read_args(struct ringevents *r, const struct ringrec *rec, const struct ring_slot *slot,
	struct ringevent *ev)
{
	struct ringsource *src = &r->sources[r->segs[rec->seg].source];
	uint8_t payload[RING_PAYLOAD_MAX];
	size_t len = payload_of(r, rec, slot, payload), pos = 0;
	bool broken = false;
	struct ringfield f;

	while (ringfield_next(payload, len, &pos, &f, &broken)) {
		if (ev->n_args < RINGEVENT_MAX_ARGS)
			add_arg(r, src, &f, ev);
		else
			r->losses.lost_long++;
	}
	r->losses.fields += broken;
}

static void read_log(struct ringevents *r, const struct ringrec *rec, const struct ring_slot *slot,
	struct ringevent *ev)
{
	struct ringsource *src = &r->sources[r->segs[rec->seg].source];
	uint8_t payload[RING_PAYLOAD_MAX];
	struct ringfield values[RINGFIELD_MAX];
	size_t len = payload_of(r, rec, slot, payload), pos = 0, n = 0, format_len = 0;
	const char *format = slot->name ? ringfile_name(src->file, slot->name, &format_len) : NULL;
	char text[LOG_BYTES + 3];
	bool broken = false, cut = false;

	while (n < RINGFIELD_MAX && ringfield_next(payload, len, &pos, &values[n], &broken)) {
		struct ringfield *f = &values[n++];

		if (f->type == RING_FIELD_NAME) {
			f->text = ringfile_name(src->file, (uint32_t)f->value, &f->length);
			if (f->text)
				f->type = RING_FIELD_TEXT;
		}
	}
	r->losses.fields += broken;
	ev->level = slot->a <= RING_ERROR ? (uint8_t)slot->a : RING_INFO;
	if (slot->name && !format) {
		r->losses.names_unknown++;
		ev->name = "<unknown format>";
		return;
	}
	if (format) {
		len = logformat(text, LOG_BYTES, format, format_len, values, n, &cut);
		ev->format = keep_text(r, format, format_len);
	} else {
		/* "%s" of the one field, which is the text */
		len = logformat(text, LOG_BYTES, "%s", 2, values, n, &cut);
	}
	if (cut) {
		memcpy(text + len, "\xe2\x80\xa6", 3);
		len += 3;
	}
	ev->name = keep_text(r, text, len);
}

/* ---- events */

/* A thread whose tid was made up says what the program calls it. */
static const char *thread_name(struct ringevents *r, const struct ringseg *seg, const char *name)
{
	char *p = r->text + r->text_used;
	const size_t room = RINGEVENTS_TEXT_BYTES - r->text_used;
	int n;

	if (seg->tid < RINGEVENT_TID_MADE)
		return *name ? name : NULL;
	if (seg->nstid == 0)
		return *name ? name : "unknown thread";
	n = *name ? snprintf(p, room, "%s (thread %u of the program's)", name, seg->nstid)
		  : snprintf(p, room, "thread %u of the program's", seg->nstid);
	if (n < 0 || (size_t)n >= room)
		return name;
	r->text_used += (size_t)n + 1;
	return p;
}

/* Those that no slot speaks of. */
static void fill_edge(struct ringevents *r, const struct ringrec *rec, struct ringevent *ev)
{
	const struct ringseg *seg = &r->segs[rec->seg];
	struct ringsource *src = &r->sources[seg->source];
	struct ring_entry entry_u = {0};

	ev->name = "";
	if (rec->kind == RINGEVENT_LOST) {
		ev->value.u64 = rec->began;
		return;
	}
	if (rec->flags & RINGREC_NAMED)
		ringfile_entry(src->file, seg->ring, &entry_u);
	ev->name = thread_name(r, seg, name_of(r, src, entry_u.name));
}

static void fill(struct ringevents *r, const struct ringrec *rec, struct ringevent *ev)
{
	const struct ringseg *seg = &r->segs[rec->seg];
	const struct ring_slot slot = ringevents_slot(r, rec);
	const char *name =
		rec->kind == RINGEVENT_LOG ? "" : name_of(r, &r->sources[seg->source], rec->name);
	const bool early = rec->flags & RINGREC_EARLY;

	ev->name = name;
	ev->began = rec->began;
	switch (rec->kind) {
	case RINGEVENT_THREAD:
		ev->name = thread_name(r, seg, name);
		return;
	case RINGEVENT_REGION_BEGIN:
	case RINGEVENT_REGION_END:
	case RINGEVENT_INSTANT:
		ev->name = name_or(name, "<no name>");
		ev->task = slot.b;
		break;
	case RINGEVENT_LOG:
		ev->task = slot.b;
		read_log(r, rec, &slot, ev);
		return;
	case RINGEVENT_COUNTER:
		ev->name = name_or(name, "<no name>");
		ev->value_type = slot.kind & RING_FLAG_F64 ? RINGEVENT_F64 : RINGEVENT_I64;
		ev->value.u64 = slot.a;
		return;
	case RINGEVENT_TASK_BEGIN:
		ev->name = name_or(name, "<no name>");
		ev->task = slot.a;
		ev->parent = early ? 0 : slot.b;
		break;
	case RINGEVENT_TASK_END:
		ev->name = name_or(name, "<no name>");
		ev->task = slot.a;
		break;
	case RINGEVENT_FLOW:
		ev->id = slot.a;
		ev->flow = (uint8_t)slot.b;
		return;
	case RINGEVENT_FIBER:
		ev->id = slot.a;
		return;
	default:
		ev->value.u64 = slot.b;
		return;
	}
	ev->began_early = early;
	ev->unfinished =
		(rec->kind == RINGEVENT_REGION_BEGIN || rec->kind == RINGEVENT_TASK_BEGIN) &&
		!(rec->flags & RINGREC_JOINED);
	if (!early)
		read_args(r, rec, &slot, ev);
}

uint64_t ringevents_peek(const struct ringevents *r)
{
	return r->next < r->n_recs ? r->recs[r->next].ts : UINT64_MAX;
}

bool ringevents_next(struct ringevents *r, struct ringevent *ret)
{
	const struct ringrec *rec;
	const struct ringseg *seg;

	if (r->next == r->n_recs)
		return false;
	rec = &r->recs[r->next++];
	seg = &r->segs[rec->seg];
	r->text_used = 0;
	memset(ret, 0, offsetof(struct ringevent, args));
	ret->kind = rec->kind;
	ret->ts = rec->ts;
	ret->pid = r->sources[seg->source].pid;
	ret->tid = seg->tid;
	ret->fiber = seg->fiber;
	if (seg->fiber_name)
		ret->fiber_name = name_of(r, &r->sources[seg->source], seg->fiber_name);
	if (rec->slot == RINGREC_NO_SLOT)
		fill_edge(r, rec, ret);
	else
		fill(r, rec, ret);
	return true;
}
