// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/pt/verify.h"

#include <errno.h>
#include <intel-pt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/insn.h"
#include "common/control/json.h"
#include "decode/pt/auxtrace.h"
#include "decode/pt/code.h"
#include "decode/pt/packet.h"

#define MAX_DIFFERENCES 32u
/* runs of libipt for one of ours: it may be in a loop that no packet decides */
#define MAX_DROPPED 65536u

/* Instructions in one line. */
struct line {
	uint64_t start, end; /* exclusive; start 0: there is none */
	uint64_t n;
	uint64_t offset; /* how far the trace had been read, at most */
	bool cut;	 /* what follows is not known: it may go on */
};

struct entered {
	uint64_t ip;
	const struct address_space *space;
};

struct verify {
	struct ptcode *code;
	uint8_t *bytes;
	size_t n_bytes;
	struct entered *entered;
	size_t n_entered, max_entered;
	struct line ours;
	uint64_t insns; /* ours, before the next event */

	struct pt_block_decoder *libipt;
	const struct address_space *space; /* whose code libipt reads */
	size_t entered_at;		   /* the next place that it may enter */
	int status;
	struct line theirs;  /* whole */
	struct line pending; /* to be put together with what follows */
	int error;	     /* enum pt_error_code: there is nothing after `pending` */
	bool seeking;	     /* they are not at the same place */
	uint64_t dropped;
	struct verify_result result;
};

/* ---- libipt */

static int read_code(uint8_t *buffer, size_t size, const struct pt_asid *asid, uint64_t ip,
		     void *context)
{
	const struct verify *v = context;
	size_t done = 0;

	(void)asid;
	while (done < size && v->space) {
		uint8_t room[INSN_MAX];
		const uint8_t *bytes;
		size_t n = ptcode_read(v->code, v->space, ip + done, &bytes, room, 1);

		if (n == 0)
			break;
		if (n > size - done)
			n = size - done;
		memcpy(buffer + done, bytes, n);
		done += n;
	}
	return done ? (int)done : -pte_nomap;
}

static int open_libipt(struct verify *v, const struct auxtrace_config *config)
{
	struct pt_config c;
	struct pt_image *image;

	pt_config_init(&c);
	c.begin = v->bytes;
	c.end = v->bytes + v->n_bytes;
	if (config->family) {
		c.cpu = (struct pt_cpu){.vendor = pcv_intel,
			.family = config->family,
			.model = (uint8_t)config->model,
			.stepping = (uint8_t)config->stepping};
		(void)pt_cpu_errata(&c.errata, &c.cpu);
	}
	c.flags.variant.block.end_on_call = 1;
	c.flags.variant.block.end_on_jump = 1;
	v->libipt = pt_blk_alloc_decoder(&c);
	if (!v->libipt)
		return -ENOMEM;
	image = pt_blk_get_image(v->libipt);
	return pt_image_set_callback(image, read_code, v) < 0 ? -EINVAL : 0;
}

int verify_new(const struct auxtrace_config *config, struct ptcode *code, const uint8_t *bytes,
	       size_t n, struct verify **ret)
{
	_cleanup_(verify_freep) struct verify *v = calloc(1, sizeof(*v));
	int r;

	if (!v)
		return -ENOMEM;
	v->code = code;
	v->bytes = malloc(n ? n : 1);
	if (!v->bytes)
		return -ENOMEM;
	memcpy(v->bytes, bytes, n);
	v->n_bytes = n;
	r = open_libipt(v, config);
	if (r < 0)
		return r;
	/* begun when it is known whose code is entered first */
	v->status = INT_MIN;
	*ret = take_ptr(v);
	return 0;
}

struct verify *verify_free(struct verify *v)
{
	if (!v)
		return NULL;
	pt_blk_free_decoder(v->libipt);
	free(v->entered);
	free(v->bytes);
	free(v);
	return NULL;
}

int verify_enter(struct verify *v, uint64_t ip, const struct address_space *space)
{
	if (v->n_entered == v->max_entered) {
		const size_t max = v->max_entered ? v->max_entered * 2 : 16;
		struct entered *e = reallocarray(v->entered, max, sizeof(*e));

		if (!e)
			return -ENOMEM;
		v->entered = e;
		v->max_entered = max;
	}
	v->entered[v->n_entered++] = (struct entered){.ip = ip, .space = space};
	return 0;
}

/* libipt knows no threads: it has the code that we have had where we have entered there. */
static void enter(struct verify *v, uint64_t ip)
{
	for (size_t i = v->entered_at; i < v->n_entered; i++) {
		if (v->entered[i].ip != ip)
			continue;
		v->space = v->entered[i].space;
		v->entered_at = i + 1;
		return;
	}
}

static void take_events(struct verify *v)
{
	while (v->status >= 0 && v->status & pts_event_pending) {
		struct pt_event ev;

		v->status = pt_blk_event(v->libipt, &ev, sizeof(ev));
		if (v->status < 0)
			return;
		if (ev.type == ptev_enabled)
			enter(v, ev.variant.enabled.ip);
		else if (ev.type == ptev_overflow && !ev.ip_suppressed)
			enter(v, ev.variant.overflow.ip);
	}
}

static uint64_t end_of(const struct verify *v, const struct pt_block *b)
{
	struct insn insn;

	if (b->truncated)
		return b->end_ip + b->size;
	return v->space && ptcode_insn(v->code, v->space, b->end_ip, b->mode == ptem_64bit, &insn)
		       ? b->end_ip + insn.length
		       : b->end_ip + 1;
}

static void stop(struct verify *v, int status)
{
	v->error = status < 0 ? -status : (int)pte_internal;
}

/* Its next block; false: it has stopped. */
static bool next_block(struct verify *v, struct line *ret)
{
	struct pt_block b = {.ninsn = 0};
	uint64_t offset = 0;

	if (v->status == INT_MIN) {
		/* where tracing is on at the PSB, there is no event */
		v->space = v->n_entered ? v->entered[0].space : NULL;
		v->status = pt_blk_sync_set(v->libipt, 0);
	}
	for (unsigned int i = 0; v->status >= 0 && i < MAX_DROPPED; i++) {
		take_events(v);
		if (v->status < 0 || v->status & pts_eos)
			break;
		v->status = pt_blk_next(v->libipt, &b, sizeof(b));
		if (b.ninsn == 0)
			continue;
		(void)pt_blk_get_offset(v->libipt, &offset);
		*ret = (struct line){.start = b.ip,
				     .end = end_of(v, &b),
				     .n = b.ninsn,
				     .offset = offset};
		return true;
	}
	stop(v, v->status < 0 ? v->status : v->status & pts_eos ? -pte_eos : -pte_internal);
	return false;
}

/* What lies in one line is one, however many blocks it was. False: there is no more. */
static bool peek(struct verify *v)
{
	struct line next;

	while (!v->theirs.start) {
		if (v->error) {
			v->theirs = v->pending;
			v->theirs.cut = true;
			v->pending.start = 0;
			return v->theirs.start;
		}
		if (!next_block(v, &next))
			continue;
		if (v->pending.start && v->pending.end == next.start) {
			v->pending.end = next.end;
			v->pending.n += next.n;
			v->pending.offset = next.offset;
			continue;
		}
		v->theirs = v->pending;
		v->pending = next;
	}
	return true;
}

static void drop(struct verify *v)
{
	v->theirs.start = 0;
}

/* It cannot go on where it has stopped, but at the next PSB of the block. */
static bool begin_again(struct verify *v)
{
	if (!v->error || v->error == pte_eos)
		return false;
	v->status = pt_blk_sync_forward(v->libipt);
	if (v->status < 0) {
		v->error = pte_eos;
		return false;
	}
	v->error = 0;
	v->seeking = true;
	return true;
}

/* ---- the comparison */

static void differ(struct verify *v, enum verify_kind kind, const struct line *ours,
		   enum ptflow_error error)
{
	struct verify_result *r = &v->result;
	struct ptpacket pk;

	v->seeking = true;
	if (r->kind != VERIFY_AGREES)
		return;
	r->kind = kind;
	r->offset = ours->offset < v->n_bytes ? ours->offset : v->n_bytes;
	r->libipt_offset = v->theirs.start ? v->theirs.offset : r->offset;
	r->ip = ours->start;
	r->libipt_ip = v->theirs.start;
	/* one goes further: to where the other one branches */
	if (kind == VERIFY_OTHER && ours->start == v->theirs.start)
		r->ip = r->libipt_ip = ours->end < v->theirs.end ? ours->end : v->theirs.end;
	r->libipt_error = kind == VERIFY_LIBIPT_STOPS ? v->error : 0;
	r->error = error;
	r->packet = ptpacket_read(v->bytes + r->offset, v->bytes + v->n_bytes, &pk) == 0
			    ? pk.type
			    : (uint8_t)_PT_PACKET_MAX;
	r->again_ip = 0;
}

static void agree(struct verify *v, const struct line *ours)
{
	v->result.compared += ours->n < v->theirs.n ? ours->n : v->theirs.n;
	v->dropped = 0;
	if (v->seeking && v->result.kind != VERIFY_AGREES && v->result.again_ip == 0)
		v->result.again_ip = v->theirs.start;
	/* where one of them was cut, the other one may have more */
	v->seeking = ours->cut || v->theirs.cut;
	drop(v);
}

/* Whether theirs is ours, or (after they have been apart) its end. */
static bool is_same(const struct verify *v, const struct line *ours)
{
	const struct line *t = &v->theirs;

	if (v->seeking)
		return t->start >= ours->start && t->start < ours->end &&
		       (t->end == ours->end || ours->cut || t->cut);
	if (t->start != ours->start)
		return false;
	return (t->end == ours->end && t->n == ours->n) ||
	       ((ours->cut || t->cut) && (ours->cut || ours->end > t->end) &&
		(t->cut || t->end > ours->end));
}

/* `lost`: where it ends we have lost the way. */
static void compare(struct verify *v, const struct line *ours, bool lost)
{
	while (ours->start) {
		if (!peek(v)) {
			if (v->error != pte_eos && !lost)
				differ(v, VERIFY_LIBIPT_STOPS, ours, PTFLOW_E_NONE);
			if (lost || !begin_again(v))
				return;
			continue;
		}
		if (is_same(v, ours)) {
			const bool stopped = v->theirs.cut && !lost && v->theirs.end < ours->end &&
					     v->error != pte_eos;

			if (stopped && !v->seeking)
				differ(v, VERIFY_LIBIPT_STOPS, ours, PTFLOW_E_NONE);
			agree(v, ours);
			return;
		}
		if (!v->seeking) {
			differ(v, VERIFY_OTHER, ours, PTFLOW_E_NONE);
			return;
		}
		if (v->theirs.offset > ours->offset || v->dropped++ > MAX_DROPPED)
			return; /* libipt is ahead */
		drop(v);
	}
}

static void flush(struct verify *v, bool cut, bool lost)
{
	struct line ours = v->ours;

	ours.cut = cut;
	v->ours.start = 0;
	compare(v, &ours, lost);
}

/* We have lost the way, for a reason. Has libipt? */
static void lost(struct verify *v, const struct ptflow_event *e)
{
	const struct line at = {.start = e->from, .end = e->from, .offset = e->offset};

	flush(v, true, true);
	if (!peek(v) && v->error != pte_eos) {
		v->result.both_stop++;
		(void)begin_again(v);
	} else if (v->theirs.start && v->error == 0 && v->theirs.offset <= e->offset)
		differ(v, VERIFY_WE_STOP, &at, e->error);
	v->seeking = true;
}

void verify_events(struct verify *v, const struct ptflow_event *events, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct ptflow_event *e = &events[i];
		const uint64_t insns = e->insns - v->insns;

		v->insns = e->insns;
		v->result.instructions += insns;
		if (e->start && insns) {
			const uint64_t end = e->kind == PTFLOW_RUN ? e->to : e->from + e->length;

			if (v->ours.start && v->ours.end != e->start)
				flush(v, false, false);
			if (!v->ours.start)
				v->ours = (struct line){.start = e->start};
			v->ours.end = end;
			v->ours.n += insns;
			v->ours.offset = e->offset;
		}
		if (e->kind == PTFLOW_DESYNC)
			lost(v, e);
		else if (e->kind == PTFLOW_OVERFLOW)
			flush(v, true, false);
	}
}

void verify_end(struct verify *v, struct verify_result *ret)
{
	flush(v, true, false);
	*ret = v->result;
}

/* ---- the report */

static void add_address(struct json_object *o, const char *key, uint64_t v)
{
	char text[32];

	if (!v)
		return;
	(void)snprintf(text, sizeof(text), "0x%" PRIx64, v);
	json_add_string(o, key, text);
}

void verify_report_add(struct verify_report *r, const struct verify_result *b, uint32_t buffer,
		       uint64_t offset)
{
	static const char *const kinds[] = {[VERIFY_OTHER] = "other instructions",
		[VERIFY_LIBIPT_STOPS] = "libipt stops",
		[VERIFY_WE_STOP] = "tracerd stops"};
	struct json_object *o;

	r->blocks++;
	r->instructions += b->instructions;
	r->compared += b->compared;
	r->both_stop += b->both_stop;
	r->incomplete += b->kind == VERIFY_AGREES && b->compared < b->instructions;
	if (b->kind == VERIFY_AGREES || ++r->differ > MAX_DIFFERENCES)
		return;
	if (!r->differences)
		r->differences = json_object_new_array();
	o = json_object_new_object();
	json_add_string(o, "what", kinds[b->kind]);
	json_add_uint(o, "buffer", buffer);
	json_add_uint(o, "offset", offset + b->offset);
	json_add_uint(o, "libipt_offset", offset + b->libipt_offset);
	json_add_string(o, "packet",
			b->packet < _PT_PACKET_MAX ? ptpacket_name((enum ptpacket_type)b->packet)
						   : "none");
	add_address(o, "address", b->ip);
	add_address(o, "libipt_address", b->libipt_ip);
	if (b->libipt_error)
		json_add_string(o, "libipt_error", pt_errstr((enum pt_error_code)b->libipt_error));
	if (b->error)
		json_add_string(o, "error", ptflow_error_name(b->error));
	add_address(o, "again_at", b->again_ip);
	json_append(r->differences, o);
}

void verify_report_fini(struct verify_report *r)
{
	json_object_put(r->differences);
}

void verify_report_json(const struct verify_report *r, struct json_object *stats)
{
	const struct pt_version version = pt_library_version();
	struct json_object *o = json_add_new_object(stats, "verify");
	char text[64];

	(void)snprintf(text, sizeof(text), "%u.%u.%u", version.major, version.minor, version.patch);
	json_add_string(o, "libipt", text);
	json_add_uint(o, "blocks", r->blocks);
	json_add_uint(o, "blocks_that_differ", r->differ);
	json_add_uint(o, "blocks_in_part", r->incomplete);
	json_add_uint(o, "instructions", r->instructions);
	json_add_uint(o, "instructions_compared", r->compared);
	json_add_uint(o, "both_stop", r->both_stop);
	if (r->differences)
		json_add_shared(o, "differences", r->differences);
}
