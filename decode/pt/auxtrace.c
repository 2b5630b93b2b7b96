// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/pt/auxtrace.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/control/json.h"
#include "decode/perf/data.h"
#include "decode/pt/packet.h"

#define AUXTRACE_INTEL_PT 1u
#define SCAN_BYTES 65536u
#define AUX_ALIGN 8u
#define MAX_BLOCKS (1u << 24)
/* How far after a PSB its TSC is looked for: a PSB+ is shorter. */
#define HEADER_BYTES 256u

/* The words of AUXTRACE_INFO, as perf's intel-pt.c numbers them. */
enum {
	INFO_PMU_TYPE,
	INFO_TIME_SHIFT,
	INFO_TIME_MULT,
	INFO_TIME_ZERO,
	INFO_CAP_USER_TIME_ZERO,
	INFO_TSC_BIT,
	INFO_NORETCOMP_BIT,
	INFO_HAVE_SCHED_SWITCH,
	INFO_SNAPSHOT_MODE,
	INFO_PER_CPU_MMAPS,
	INFO_MTC_BIT,
	INFO_MTC_FREQ_BITS,
	INFO_TSC_CTC_N,
	INFO_TSC_CTC_D,
	INFO_CYC_BIT,
	INFO_MAX_NONTURBO_RATIO,
	INFO_FILTER_LENGTH,
	INFO_FILTER,
};

struct piece { /* of a buffer: bytes that lie together in the file */
	uint64_t at, bytes; /* in the buffer */
	uint64_t off;	    /* in the source */
	uint64_t aux_offset;
	bool joined; /* it goes on where the one before ended */
};

struct buffer {
	struct auxtrace_buffer b;
	struct piece *pieces;
	uint32_t n_pieces, cap_pieces;
};

struct auxtrace {
	struct perfdata *pd;
	struct budget *budget;
	struct auxtrace_config config;
	struct buffer *buffers;
	size_t n_buffers;
	struct auxtrace_block *blocks;
	size_t n_blocks, cap_blocks;
	uint64_t charged;
	uint64_t unsynced; /* bytes before the first PSB of a buffer */
	uint64_t overlap;  /* bytes that a snapshot had twice */
	uint64_t cut;	   /* bytes that the file has no more */
	uint64_t no_memory;
};

static uint64_t info(const struct perfdata *pd, unsigned int word)
{
	return word < pd->n_aux_info ? pd->aux_info[word] : 0;
}

static const struct perfattr *pt_attr(const struct perfdata *pd)
{
	for (uint32_t i = 0; i < pd->n_attrs; i++)
		if (pd->attrs[i].type == (uint32_t)info(pd, INFO_PMU_TYPE))
			return &pd->attrs[i];
	return NULL;
}

static void read_filter(struct auxtrace_config *c, const struct perfdata *pd)
{
	uint64_t n = info(pd, INFO_FILTER_LENGTH);
	size_t room = pd->n_aux_info > INFO_FILTER ? (pd->n_aux_info - INFO_FILTER) * 8u : 0;

	if (n > room)
		n = room;
	if (n >= sizeof(c->filter))
		n = sizeof(c->filter) - 1;
	memcpy(c->filter, &pd->aux_info[INFO_FILTER < pd->n_aux_info ? INFO_FILTER : 0], n);
}

static void read_config(struct auxtrace *p)
{
	const struct perfdata *pd = p->pd;
	const struct perfattr *a = pt_attr(pd);
	const uint64_t config = a ? a->config : 0;
	const uint64_t mtc_bits = info(pd, INFO_MTC_FREQ_BITS);
	struct auxtrace_config *c = &p->config;
	unsigned int family, model, stepping;

	if (info(pd, INFO_CAP_USER_TIME_ZERO) && info(pd, INFO_TIME_MULT) &&
	    info(pd, INFO_TIME_SHIFT) < 64 && info(pd, INFO_TIME_MULT) <= UINT32_MAX &&
	    (config & info(pd, INFO_TSC_BIT))) {
		c->shift = (uint16_t)info(pd, INFO_TIME_SHIFT);
		c->mult = (uint32_t)info(pd, INFO_TIME_MULT);
		c->zero = info(pd, INFO_TIME_ZERO);
	}
	c->snapshot = info(pd, INFO_SNAPSHOT_MODE);
	c->per_cpu = info(pd, INFO_PER_CPU_MMAPS);
	c->kernel = a && !a->exclude_kernel;
	if (info(pd, INFO_TSC_CTC_N) <= UINT32_MAX && info(pd, INFO_TSC_CTC_D) <= UINT32_MAX) {
		c->time.tsc_ctc_n = (uint32_t)info(pd, INFO_TSC_CTC_N);
		c->time.tsc_ctc_d = (uint32_t)info(pd, INFO_TSC_CTC_D);
	}
	if (mtc_bits)
		c->time.mtc_shift = (uint32_t)((config & mtc_bits) >> __builtin_ctzll(mtc_bits)) &
				    0xf;
	if (info(pd, INFO_MAX_NONTURBO_RATIO) <= 0xffff)
		c->time.nominal_ratio = (uint32_t)info(pd, INFO_MAX_NONTURBO_RATIO);
	if (pd->cpuid &&
	    sscanf(pd->cpuid, "GenuineIntel,%u,%u,%u", &family, &model, &stepping) == 3) {
		c->family = (uint16_t)family;
		c->model = (uint16_t)model;
		c->stepping = (uint16_t)stepping;
	}
	read_filter(c, pd);
}

static struct buffer *buffer_of(struct auxtrace *p, const struct perfdata_aux *a)
{
	struct buffer *v;

	for (size_t i = p->n_buffers; i > 0; i--)
		if (p->buffers[i - 1].b.idx == a->idx && p->buffers[i - 1].b.tid == a->tid &&
		    p->buffers[i - 1].b.cpu == a->cpu)
			return &p->buffers[i - 1];
	if (p->n_buffers == AUXTRACE_MAX_BUFFERS || !budget_take(p->budget, sizeof(*v)))
		return NULL;
	p->charged += sizeof(*v);
	v = reallocarray(p->buffers, p->n_buffers + 1, sizeof(*v));
	if (!v)
		return NULL;
	p->buffers = v;
	v += p->n_buffers++;
	*v = (struct buffer){.b = {.idx = a->idx, .tid = a->tid, .cpu = a->cpu}};
	return v;
}

static struct piece *new_piece(struct auxtrace *p, struct buffer *b)
{
	if (b->n_pieces == b->cap_pieces) {
		const uint32_t cap = b->cap_pieces ? b->cap_pieces * 2 : 1;
		struct piece *v;

		if (!budget_take(p->budget, (cap - b->cap_pieces) * sizeof(*v)))
			return NULL;
		p->charged += (cap - b->cap_pieces) * sizeof(*v);
		v = reallocarray(b->pieces, cap, sizeof(*v));
		if (!v)
			return NULL;
		b->pieces = v;
		b->cap_pieces = cap;
	}
	return &b->pieces[b->n_pieces];
}

/*
 * How many of the last `n` bytes of the buffer, a snapshot that was just added, the snapshots
 * before it had at their end already, before `pad` zeros: the longest that is the end of one and
 * the begin of the other, if it has a PSB. Linear: two hashes grow from both sides, and what they
 * find is compared.
 */
static uint64_t twice_before(struct auxtrace *p, uint32_t buffer, uint64_t n, uint64_t pad)
{
	const struct buffer *b = &p->buffers[buffer];
	const uint64_t begin = b->b.bytes - n, before = begin - pad, most = n < before ? n : before,
		       x = 0x9e3779b97f4a7c15ull | 1;
	_cleanup_free_ uint8_t *old = malloc(SCAN_BYTES), *new = malloc(SCAN_BYTES);
	uint64_t h_old = 0, h_new = 0, power = 1, found = 0, psb = UINT64_MAX;

	if (!old || !new)
		return 0;
	for (uint64_t done = 0; done < most;) {
		const size_t len = most - done < SCAN_BYTES ? (size_t)(most - done) : SCAN_BYTES;
		const uint8_t *at;

		if (auxtrace_read(p, buffer, before - done - len, old, len) < len ||
		    auxtrace_read(p, buffer, begin + done, new, len) < len)
			return 0;
		at = psb == UINT64_MAX ? ptpacket_find_psb(new, new + len) : NULL;
		if (at)
			psb = done + (uint64_t)(at - new) + PTPACKET_PSB_BYTES;
		for (size_t i = 0; i < len; i++) {
			h_old = h_old * x + old[len - 1 - i];
			h_new += new[i] * power;
			power *= x;
			if (h_old == h_new)
				found = done + i + 1;
		}
		done += len;
	}
	if (found < psb)
		return 0;
	for (uint64_t done = 0; done < found;) {
		const size_t len = found - done < SCAN_BYTES ? (size_t)(found - done) : SCAN_BYTES;

		if (auxtrace_read(p, buffer, before - found + done, old, len) < len ||
		    auxtrace_read(p, buffer, begin + done, new, len) < len ||
		    memcmp(old, new, len) != 0)
			return 0;
		done += len;
	}
	return found;
}

/*
 * The same, where up to 7 zeros at the end of the snapshot before are what perf fills its records
 * up with: *ret_pad.
 */
static uint64_t twice_in_snapshot(struct auxtrace *p, uint32_t buffer, uint64_t n,
				  uint64_t *ret_pad)
{
	const struct buffer *b = &p->buffers[buffer];
	const uint64_t before = b->b.bytes - n, last = b->pieces[b->n_pieces - 2].bytes;
	uint64_t best = twice_before(p, buffer, n, 0);
	uint8_t zero;

	*ret_pad = 0;
	for (uint64_t pad = 1; pad < AUX_ALIGN && pad < last; pad++) {
		uint64_t twice;

		if (auxtrace_read(p, buffer, before - pad, &zero, 1) < 1 || zero)
			break;
		twice = twice_before(p, buffer, n, pad);
		if (twice > best) {
			best = twice;
			*ret_pad = pad;
		}
	}
	return best;
}

/*
 * The offsets of the bytes of a whole trace show which of them it has already, and whether some are
 * missing. perf fills each record up to 8 bytes: so few are zeros at the end of the piece before,
 * and the trace goes on in their place.
 */
static uint64_t twice_by_offset(const struct piece *last, const struct perfdata_aux *a,
				bool *ret_joined, uint64_t *ret_pad)
{
	uint64_t end, twice;

	*ret_joined = false;
	*ret_pad = 0;
	if (!last || __builtin_add_overflow(last->aux_offset, last->bytes, &end) ||
	    a->aux_offset > end || a->aux_offset < last->aux_offset)
		return 0;
	*ret_joined = true;
	twice = end - a->aux_offset;
	if (twice >= AUX_ALIGN || twice >= last->bytes)
		return twice;
	*ret_pad = twice;
	return 0;
}

static uint64_t bytes_in_file(const struct auxtrace *p, const struct perfdata_aux *a)
{
	const uint64_t size = perfsource_size(p->pd->src);

	if (a->off & PERFSOURCE_ARENA)
		return a->size;
	if (a->off >= size)
		return 0;
	return a->size < size - a->off ? a->size : size - a->off;
}

static int add_piece(struct auxtrace *p, const struct perfdata_aux *a)
{
	const uint64_t size = bytes_in_file(p, a);
	struct buffer *b = buffer_of(p, a);
	struct piece *v = b ? new_piece(p, b) : NULL;
	uint64_t twice = 0, pad = 0;
	bool joined = false;

	if (!v)
		return -ENOMEM;
	p->cut += a->size - size;
	if (!p->config.time.reference)
		p->config.time.reference = a->reference;
	if (!p->config.snapshot)
		twice = twice_by_offset(b->n_pieces ? v - 1 : NULL, a, &joined, &pad);
	if (size <= twice || size > UINT64_MAX / 2 - b->b.bytes) {
		p->overlap += size;
		return 0;
	}
	*v = (struct piece){.at = b->b.bytes,
			    .bytes = size,
			    .off = a->off,
			    .aux_offset = a->aux_offset};
	b->n_pieces++;
	b->b.bytes += size;
	if (p->config.snapshot && b->n_pieces > 1) {
		twice = twice_in_snapshot(p, (uint32_t)(b - p->buffers), size, &pad);
		joined = twice;
	}
	if (pad) {
		v[-1].bytes -= pad;
		v->at -= pad;
		b->b.bytes -= pad;
	}
	v->joined = joined;
	v->bytes -= twice;
	v->off += twice;
	v->aux_offset += twice;
	b->b.bytes -= twice;
	p->overlap += twice;
	if (v->bytes == 0)
		b->n_pieces--;
	return 0;
}

int auxtrace_new(struct perfdata *pd, struct budget *budget, struct auxtrace **ret)
{
	_cleanup_(auxtrace_freep) struct auxtrace *p = NULL;

	if (pd->n_aux == 0)
		return AUXTRACE_E_NONE;
	if (pd->aux_type != AUXTRACE_INTEL_PT || pd->n_aux_info <= INFO_SNAPSHOT_MODE)
		return AUXTRACE_E_INVALID;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->pd = pd;
	p->budget = budget;
	read_config(p);
	for (uint32_t i = 0; i < pd->n_aux; i++)
		if (pd->aux[i].size && add_piece(p, &pd->aux[i]) < 0)
			p->no_memory++;
	*ret = take_ptr(p);
	return 0;
}

struct auxtrace *auxtrace_free(struct auxtrace *p)
{
	if (!p)
		return NULL;
	for (size_t i = 0; i < p->n_buffers; i++)
		free(p->buffers[i].pieces);
	budget_give(p->budget, p->charged);
	free(p->buffers);
	free(p->blocks);
	free(p);
	return NULL;
}

const struct auxtrace_config *auxtrace_config(const struct auxtrace *p)
{
	return &p->config;
}

size_t auxtrace_n_buffers(const struct auxtrace *p)
{
	return p->n_buffers;
}

const struct auxtrace_buffer *auxtrace_buffer(const struct auxtrace *p, size_t i)
{
	return &p->buffers[i].b;
}

size_t auxtrace_n_blocks(const struct auxtrace *p)
{
	return p->n_blocks;
}

const struct auxtrace_block *auxtrace_block(const struct auxtrace *p, size_t i)
{
	return &p->blocks[i];
}

uint64_t auxtrace_ns(const struct auxtrace_config *c, uint64_t tsc)
{
	if (!c->mult || !tsc)
		return 0;
	return c->zero + (uint64_t)((unsigned __int128)tsc * c->mult >> c->shift);
}

/* ---- bytes */

static const struct piece *piece_at(const struct buffer *b, uint64_t offset)
{
	uint32_t low = 0, high = b->n_pieces;

	while (low < high) {
		const uint32_t mid = low + (high - low) / 2;

		if (b->pieces[mid].at + b->pieces[mid].bytes <= offset)
			low = mid + 1;
		else
			high = mid;
	}
	return low < b->n_pieces ? &b->pieces[low] : NULL;
}

size_t auxtrace_read(struct auxtrace *p, uint32_t buffer, uint64_t offset, void *ret, size_t n)
{
	const struct buffer *b = &p->buffers[buffer];
	size_t done = 0;

	while (done < n) {
		const struct piece *pc = piece_at(b, offset + done);
		uint64_t in, len;
		const void *bytes;

		if (!pc)
			break;
		in = offset + done - pc->at;
		len = pc->bytes - in;
		if (len > n - done)
			len = n - done;
		if (len > PERFSOURCE_MAX_GET)
			len = PERFSOURCE_MAX_GET;
		bytes = perfsource_get(p->pd->src, pc->off + in, (size_t)len);
		if (!bytes)
			break;
		memcpy((uint8_t *)ret + done, bytes, (size_t)len);
		done += (size_t)len;
	}
	return done;
}

/* ---- blocks */

/* The TSC of the PSB+ at `p`, 0 if it has none. */
static uint64_t header_tsc(const struct auxtrace *a, const uint8_t *p, const uint8_t *end)
{
	struct ptpacket pk;

	for (; ptpacket_read(p, end, &pk) == 0; p += pk.length) {
		if (pk.type == PT_TSC)
			return pttime_whole(&a->config.time, pk.value);
		if (pk.type == PT_PSBEND || pk.type == PT_OVF)
			break;
	}
	return 0;
}

static int add_block(struct auxtrace *p, const struct auxtrace_block *b)
{
	struct auxtrace_block *v;

	if (p->n_blocks == p->cap_blocks) {
		const size_t cap = p->cap_blocks ? p->cap_blocks * 2 : 256;

		if (cap > MAX_BLOCKS || !budget_take(p->budget, (cap - p->cap_blocks) * sizeof(*v)))
			return -ENOMEM;
		p->charged += (cap - p->cap_blocks) * sizeof(*v);
		v = reallocarray(p->blocks, cap, sizeof(*v));
		if (!v)
			return -ENOMEM;
		p->blocks = v;
		p->cap_blocks = cap;
	}
	p->blocks[p->n_blocks++] = *b;
	return 0;
}

/* The blocks of a run, from the `first` on: each ends where the next one begins. */
static void end_blocks(struct auxtrace *p, size_t first, uint64_t to)
{
	for (size_t i = first; i < p->n_blocks; i++) {
		p->blocks[i].joined = i + 1 < p->n_blocks;
		p->blocks[i].bytes =
			(p->blocks[i].joined ? p->blocks[i + 1].offset : to) - p->blocks[i].offset;
	}
}

/* What lies together: [from, to) of a buffer. */
static void scan_run(struct auxtrace *p, uint32_t buffer, uint64_t from, uint64_t to,
		     uint8_t *window)
{
	const size_t first = p->n_blocks;
	uint64_t at = from;

	while (at < to) {
		const size_t room = to - at < SCAN_BYTES ? (size_t)(to - at) : SCAN_BYTES;
		const size_t n = auxtrace_read(p, buffer, at, window, room);
		const bool last = n < room || at + n == to;
		const uint8_t *end = window + n, *psb = window;

		while ((psb = ptpacket_find_psb(psb, end)) != NULL) {
			struct auxtrace_block b = {.buffer = buffer,
						   .offset = at + (uint64_t)(psb - window)};

			/* Its header is read in the next window if this one cuts it. */
			if ((size_t)(end - psb) < HEADER_BYTES && !last)
				break;
			psb += PTPACKET_PSB_BYTES;
			if (p->n_blocks > first &&
			    b.offset - p->blocks[p->n_blocks - 1].offset < AUXTRACE_MIN_BLOCK)
				continue;
			b.tsc = header_tsc(p, psb, end);
			b.lost_before = p->n_blocks == first && from > 0;
			if (add_block(p, &b) < 0) {
				p->no_memory++;
				end_blocks(p, first, to);
				return;
			}
		}
		if (last)
			break;
		at += psb ? (uint64_t)(psb - window) : n - (PTPACKET_PSB_BYTES - 1);
	}
	p->unsynced += (p->n_blocks == first ? to : p->blocks[first].offset) - from;
	end_blocks(p, first, to);
}

static void scan_buffer(struct auxtrace *p, uint32_t buffer, uint8_t *window)
{
	const struct buffer *b = &p->buffers[buffer];

	for (uint32_t i = 0; i < b->n_pieces;) {
		const uint64_t from = b->pieces[i].at;

		do
			i++;
		while (i < b->n_pieces && b->pieces[i].joined);
		scan_run(p, buffer, from, b->pieces[i - 1].at + b->pieces[i - 1].bytes, window);
	}
}

int auxtrace_scan(struct auxtrace *p)
{
	_cleanup_free_ uint8_t *window = malloc(SCAN_BYTES);

	if (!window)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->n_buffers; i++)
		scan_buffer(p, i, window);
	return 0;
}

void auxtrace_report(const struct auxtrace *p, struct json_object *stats,
		     struct json_object *losses)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < p->n_buffers; i++)
		bytes += p->buffers[i].b.bytes;
	json_add_uint(stats, "pt_buffers", p->n_buffers);
	json_add_uint(stats, "pt_bytes", bytes);
	json_add_uint(stats, "pt_blocks", p->n_blocks);
	if (p->unsynced)
		json_add_uint(losses, "pt_bytes_before_sync", p->unsynced);
	if (p->cut)
		json_add_uint(losses, "pt_bytes_cut", p->cut);
	if (p->overlap)
		json_add_uint(stats, "pt_bytes_twice", p->overlap);
	if (p->no_memory)
		json_add_uint(losses, "pt_over_memory", p->no_memory);
}
