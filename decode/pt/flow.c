// SPDX-License-Identifier: Apache-2.0
#include "decode/pt/flow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "decode/pt/flow_internal.h"

int ptflow_new(const struct ptflow_options *options, struct ptflow **ret)
{
	struct ptflow *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->o = *options;
	f->batch = options->batch;
	if (!f->batch)
		f->batch = f->own_batch = malloc(PTFLOW_BATCH * sizeof(*f->batch));
	if (!f->batch) {
		free(f);
		return -ENOMEM;
	}
	ptflow_reset(f);
	*ret = f;
	return 0;
}

struct ptflow *ptflow_free(struct ptflow *f)
{
	if (!f)
		return NULL;
	free(f->own_batch);
	free(f);
	return NULL;
}

const struct ptflow_stats *ptflow_stats(const struct ptflow *f)
{
	return &f->stats;
}

enum ptflow_state ptflow_where(const struct ptflow *f, uint64_t *ret_ip, uint32_t *ret_thread)
{
	if (f->lost || f->after_ovf || f->since_ovf || !f->synced)
		return PTFLOW_UNKNOWN;
	if (!f->enabled)
		return PTFLOW_OFF;
	*ret_ip = f->ip;
	*ret_thread = f->thread;
	return PTFLOW_ON;
}

void ptflow_reset(struct ptflow *f)
{
	f->base = 0;
	f->synced = f->stopping = false;
	f->tags = 0;
	f->code = f->o.code;
	f->epoch = f->code->epoch - 1;
	f->thread = 0;
	f->is64 = true;
	f->credit = PTFLOW_CREDIT_PSB;
	f->last_ip = 0;
	f->fup_for = PTFLOW_FUP_ASYNC;
	f->enabled = f->lost = f->has_fup = f->in_psb = f->after_ovf = f->since_ovf = f->aborted =
		f->speculative = f->in_doubt = false;
	f->mode64 = f->tsx = -1;
	f->note.type = PT_PAD;
	f->top = f->depth = 0;
	f->block = f->from = CODEBLOCK_NONE;
	f->n_batch = 0;
	f->error = 0;
}

void ptflow_use(struct ptflow *f, struct ptflow_event *batch)
{
	f->batch = batch;
}

void ptflow_rebind(struct ptflow *f, struct codeblocks *code, void *arg)
{
	f->o.arg = arg;
	f->code = code;
	f->epoch = code->epoch - 1;
	codeblocks_set_mode(code, f->is64);
}

const char *ptflow_error_name(enum ptflow_error error)
{
	static const char *const names[_PTFLOW_E_MAX] = {
		[PTFLOW_E_NONE] = "",
		[PTFLOW_E_NO_CODE] = "no code",
		[PTFLOW_E_MISMATCH] = "packets and code contradict each other",
		[PTFLOW_E_PACKET] = "bad packet",
		[PTFLOW_E_RETURN] = "return without its call",
		[PTFLOW_E_RUNAWAY] = "loop without decisions",
	};

	return (unsigned int)error < _PTFLOW_E_MAX ? names[error] : "?";
}

static bool is_same_kind(const struct ptflow_unknown *a, const struct ptflow_unknown *b)
{
	return a->n && b->n && a->bytes[0] == b->bytes[0] &&
	       (a->bytes[0] != 2 || (a->n > 1 && b->n > 1 && a->bytes[1] == b->bytes[1]));
}

struct ptflow_unknown *ptflow_unknown_add(struct ptflow_unknown *kinds, size_t n,
					  const struct ptflow_unknown *u)
{
	for (size_t i = 0; i < n; i++) {
		if (kinds[i].times == 0) {
			kinds[i] = *u;
			return &kinds[i];
		}
		if (is_same_kind(&kinds[i], u)) {
			kinds[i].times += u->times;
			return NULL;
		}
	}
	return NULL;
}

static void note_unknown(struct ptflow *f)
{
	const size_t left = (size_t)(f->end - f->pos);
	struct ptflow_unknown u = {.times = 1,
		.offset = f->base + (uint64_t)(f->pos - f->begin),
		.n = (uint8_t)(left < PTFLOW_UNKNOWN_BYTES ? left : PTFLOW_UNKNOWN_BYTES)};

	memcpy(u.bytes, f->pos, u.n);
	(void)ptflow_unknown_add(f->stats.unknown, PTFLOW_UNKNOWN_KINDS, &u);
}

/*
 * Bytes that are no packet: perhaps the one before was cut short, and took the begin of a PSB for
 * its own.
 */
static void lose_packets(struct ptflow *f)
{
	const size_t back = (size_t)(f->pos - f->begin) < PTPACKET_PSB_BYTES - 1
				    ? (size_t)(f->pos - f->begin)
				    : PTPACKET_PSB_BYTES - 1;

	note_unknown(f);
	ptflow_lose(f, PTFLOW_E_PACKET);
	f->in_psb = f->synced = false;
	f->pos -= back;
}

/* To the next PSB, or as far as it is certain that there is none. */
static void to_psb(struct ptflow *f, bool more)
{
	const uint8_t *psb = ptpacket_find_psb(f->pos, f->end);

	if (!psb)
		psb = more ? f->end - (PTPACKET_PSB_BYTES - 1) : f->end;
	else
		f->synced = true;
	f->stats.skipped_bytes += (uint64_t)(psb - f->pos);
	f->pos = psb;
}

static void earn(struct ptflow *f, unsigned int bytes)
{
	f->credit += (int32_t)bytes * PTFLOW_CREDIT_BYTE;
	if (f->credit > PTFLOW_CREDIT_MAX)
		f->credit = PTFLOW_CREDIT_MAX;
}

/* One packet. False: the part of the trace that ends at `stop` is done. */
static bool step(struct ptflow *f, const uint8_t *stop)
{
	const uint8_t byte = *f->pos;
	struct ptpacket pk;
	int r;

	/* most packets of all: up to six decisions */
	if (!(byte & 1) && byte > 2 && f->enabled && !f->lost && !f->in_psb) {
		const unsigned int count = 30u - (unsigned int)__builtin_clz(byte);

		f->stats.packets++;
		f->pos++;
		earn(f, 1);
		ptflow_tnt(f, (uint64_t)(byte >> 1) & ((1u << count) - 1), count);
		return true;
	}
	r = ptpacket_read(f->pos, f->end, &pk);
	if (r == PTPACKET_E_CUT) {
		f->pos = f->end;
		return false;
	}
	if (r != 0) {
		lose_packets(f);
		return true;
	}
	if (stop && f->pos >= stop) {
		/* what follows is the next part's, but for where it begins */
		if (pk.type == PT_OVF || (!f->stopping && f->pos != stop))
			return false;
		f->stopping = true;
	} else {
		f->stats.packets++;
	}
	if (f->o.errata.skd007 && ptpacket_is_skd007(&pk, f->pos, f->end)) {
		f->pos += PTPACKET_SKD007_BYTES;
		ptflow_ovf(f);
		return true;
	}
	f->pos += pk.length;
	earn(f, pk.length);
	ptflow_packet(f, &pk);
	return true;
}

static int feed(struct ptflow *f, const uint8_t *stop, bool more)
{
	const uint8_t *limit = more ? f->end - PTFLOW_LOOKAHEAD : f->end;

	while (f->pos < limit) {
		if (f->error)
			return f->error;
		if (f->pause && !f->stopping)
			return PTFLOW_MORE;
		if (!f->synced) {
			to_psb(f, more);
			if (stop && f->pos >= stop)
				return 0;
			continue;
		}
		if (!step(f, stop) || (f->stopping && !f->in_psb))
			return 0;
	}
	return more ? PTFLOW_MORE : 0;
}

int ptflow_feed(struct ptflow *f, const uint8_t *begin, const uint8_t *end, const uint8_t *stop,
		bool more, size_t *ret_used)
{
	const uint8_t *counted;
	int r;

	f->begin = f->pos = begin;
	f->end = end;
	f->pause = false;
	r = feed(f, stop, more);
	/* the branch that follows is the next part's */
	if (r == 0 && (f->tags & CODEBLOCK_LOADS_SP))
		ptflow_emit(f, PTFLOW_NOTE, f->ip, 0);
	ptflow_flush(f);
	*ret_used = (size_t)(f->pos - begin);
	f->base += *ret_used;
	counted = stop && f->pos > stop ? stop : f->pos;
	f->stats.bytes += counted > begin ? (uint64_t)(counted - begin) : 0;
	return f->error ? f->error : r;
}

int ptflow_run(struct ptflow *f, const uint8_t *begin, const uint8_t *end, const uint8_t *stop)
{
	size_t used;
	int r;

	ptflow_reset(f);
	do {
		r = ptflow_feed(f, begin, end, stop, false, &used);
		begin += used;
	} while (r == PTFLOW_MORE);
	return r;
}
