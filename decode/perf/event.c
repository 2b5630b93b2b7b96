// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/perf/event.h"

#include <linux/perf_event.h>

/* Younger than the oldest headers this builds with. */
#define FORMAT_LOST (1u << 4)
#define BRANCH_HW_INDEX (1u << 17)
#define BRANCH_COUNTERS (1u << 19)
#define MISC_MMAP_BUILD_ID (1u << 14)

static void parse_read_format(struct bytes *b, uint64_t format)
{
	uint64_t n, each = 1;

	if (format & PERF_FORMAT_ID)
		each++;
	if (format & FORMAT_LOST)
		each++;
	if (format & PERF_FORMAT_GROUP) {
		n = bytes_u64(b);
	} else {
		n = 1;
	}
	if (format & PERF_FORMAT_TOTAL_TIME_ENABLED)
		(void)bytes_u64(b);
	if (format & PERF_FORMAT_TOTAL_TIME_RUNNING)
		(void)bytes_u64(b);
	(void)bytes_take(b, n > 65536 ? UINT64_MAX : n * each * 8);
}

static void parse_branch_stack(struct bytes *b, uint64_t branch_type)
{
	uint64_t n = bytes_u64(b);

	if (branch_type & BRANCH_HW_INDEX)
		(void)bytes_u64(b);
	(void)bytes_take(b, n > 65536 ? UINT64_MAX : n * 24);
	if (branch_type & BRANCH_COUNTERS)
		(void)bytes_take(b, n > 65536 ? UINT64_MAX : n * 8);
}

static void parse_sample(struct bytes *b, const struct perfattr *a, struct perfevent *ev)
{
	struct perfevent_sample *s = &ev->sample;
	uint64_t t = a->sample_type;

	if (t & PERF_SAMPLE_IDENTIFIER)
		(void)bytes_u64(b);
	if (t & PERF_SAMPLE_IP)
		s->ip = bytes_u64(b);
	if (t & PERF_SAMPLE_TID) {
		ev->pid = bytes_u32(b);
		ev->tid = bytes_u32(b);
	}
	if (t & PERF_SAMPLE_TIME) {
		ev->time = bytes_u64(b);
		ev->has_time = true;
	}
	if (t & PERF_SAMPLE_ADDR)
		(void)bytes_u64(b);
	if (t & PERF_SAMPLE_ID)
		(void)bytes_u64(b);
	if (t & PERF_SAMPLE_STREAM_ID)
		(void)bytes_u64(b);
	if (t & PERF_SAMPLE_CPU) {
		ev->cpu = bytes_u32(b);
		(void)bytes_u32(b);
	}
	s->period = a->freq ? 0 : a->period;
	if (t & PERF_SAMPLE_PERIOD)
		s->period = bytes_u64(b);
	if (t & PERF_SAMPLE_READ)
		parse_read_format(b, a->read_format);
	if (t & PERF_SAMPLE_CALLCHAIN) {
		uint64_t n = bytes_u64(b);

		s->chain = bytes_take(b, n > 65536 ? UINT64_MAX : n * 8);
		s->has_chain = s->chain != NULL;
		s->n_chain = s->chain ? n : 0;
	}
	if (t & PERF_SAMPLE_RAW) {
		uint32_t n = bytes_u32(b);

		s->raw = bytes_take(b, n);
		s->raw_size = s->raw ? n : 0;
	}
	if (t & PERF_SAMPLE_BRANCH_STACK)
		parse_branch_stack(b, a->branch_sample_type);
	if (t & PERF_SAMPLE_REGS_USER) {
		s->regs_abi = bytes_u64(b);
		if (s->regs_abi != PERF_SAMPLE_REGS_ABI_NONE) {
			s->regs_mask = a->regs_user;
			s->regs = bytes_take(b, (uint64_t)__builtin_popcountll(a->regs_user) * 8);
			if (!s->regs)
				s->regs_abi = PERF_SAMPLE_REGS_ABI_NONE;
		}
	}
	if (t & PERF_SAMPLE_STACK_USER) {
		uint64_t size = bytes_u64(b), copied;

		if (size) {
			s->stack = bytes_take(b, size);
			copied = bytes_u64(b);
			s->stack_size = s->stack ? (copied < size ? copied : size) : 0;
		}
	}
	/* What else a sample may hold follows and is not used. */
}

static void parse_trailer(const uint8_t *p, const struct perfattr *a, struct perfevent *ev)
{
	uint64_t t = a->sample_type;

	if (t & PERF_SAMPLE_TID) {
		ev->pid = load_u32(p);
		ev->tid = load_u32(p + 4);
		p += 8;
	}
	if (t & PERF_SAMPLE_TIME) {
		ev->time = load_u64(p);
		ev->has_time = true;
		p += 8;
	}
	if (t & PERF_SAMPLE_ID)
		p += 8;
	if (t & PERF_SAMPLE_STREAM_ID)
		p += 8;
	if (t & PERF_SAMPLE_CPU)
		ev->cpu = load_u32(p);
}

static void parse_mmap(struct bytes *b, uint32_t type, struct perfevent *ev)
{
	struct perfevent_mmap *m = &ev->mmap;
	uint32_t prot = 0;

	ev->pid = bytes_u32(b);
	ev->tid = bytes_u32(b);
	m->addr = bytes_u64(b);
	m->len = bytes_u64(b);
	m->pgoff = bytes_u64(b);
	m->exec = !(ev->misc & PERF_RECORD_MISC_MMAP_DATA);
	if (type == PERF_RECORD_MMAP2) {
		if (ev->misc & MISC_MMAP_BUILD_ID) {
			const uint8_t *p = bytes_take(b, 24);

			if (p) {
				m->build_id_size = p[0] <= sizeof(m->build_id) ? p[0] : 0;
				memcpy(m->build_id, p + 4, m->build_id_size);
			}
		} else {
			m->maj = bytes_u32(b);
			m->min = bytes_u32(b);
			m->ino = bytes_u64(b);
			(void)bytes_u64(b); /* generation: not known to fstat() */
			m->has_inode = m->ino != 0;
		}
		prot = bytes_u32(b);
		(void)bytes_u32(b);
		/* perf's own synthesised records of old have no protection */
		if (prot)
			m->exec = prot & 4 /* PROT_EXEC */;
	}
	m->path = bytes_str(b, &m->path_len);
}

static void parse_switch(struct bytes *b, uint32_t type, struct perfevent *ev)
{
	ev->sw.out = ev->misc & PERF_RECORD_MISC_SWITCH_OUT;
	ev->sw.preempt = ev->misc & PERF_RECORD_MISC_SWITCH_OUT_PREEMPT;
	ev->sw.has_other = type == PERF_RECORD_SWITCH_CPU_WIDE;
	if (ev->sw.has_other) {
		ev->sw.other_pid = bytes_u32(b);
		ev->sw.other_tid = bytes_u32(b);
	}
}

static void parse_other(struct bytes *b, uint32_t type, struct perfevent *ev)
{
	switch (type) {
	case PERF_RECORD_MMAP:
	case PERF_RECORD_MMAP2:
		ev->kind = PERFEVENT_MMAP;
		parse_mmap(b, type, ev);
		break;
	case PERF_RECORD_COMM:
		ev->kind = PERFEVENT_COMM;
		ev->pid = bytes_u32(b);
		ev->tid = bytes_u32(b);
		ev->comm.name = bytes_str(b, &ev->comm.name_len);
		ev->comm.exec = ev->misc & PERF_RECORD_MISC_COMM_EXEC;
		break;
	case PERF_RECORD_FORK:
	case PERF_RECORD_EXIT:
		ev->kind = type == PERF_RECORD_FORK ? PERFEVENT_FORK : PERFEVENT_EXIT;
		ev->pid = bytes_u32(b);
		ev->fork.ppid = bytes_u32(b);
		ev->tid = bytes_u32(b);
		ev->fork.ptid = bytes_u32(b);
		(void)bytes_u64(b); /* its time; the trailer has it too */
		break;
	case PERF_RECORD_NAMESPACES:
		ev->kind = PERFEVENT_NAMESPACES;
		ev->pid = bytes_u32(b);
		ev->tid = bytes_u32(b);
		break;
	case PERF_RECORD_SWITCH:
	case PERF_RECORD_SWITCH_CPU_WIDE:
		ev->kind = PERFEVENT_SWITCH;
		parse_switch(b, type, ev);
		break;
	case PERF_RECORD_LOST:
		ev->kind = PERFEVENT_LOST;
		(void)bytes_u64(b); /* id */
		ev->lost.count = bytes_u64(b);
		break;
	case PERF_RECORD_LOST_SAMPLES:
		ev->kind = PERFEVENT_LOST;
		ev->lost.count = bytes_u64(b);
		ev->lost.samples = true;
		break;
	case PERF_RECORD_THROTTLE:
	case PERF_RECORD_UNTHROTTLE:
		ev->kind = PERFEVENT_THROTTLE;
		ev->throttle.on = type == PERF_RECORD_UNTHROTTLE;
		(void)bytes_take(b, 24);
		break;
	case PERF_RECORD_ITRACE_START:
		ev->kind = PERFEVENT_ITRACE_START;
		ev->pid = bytes_u32(b);
		ev->tid = bytes_u32(b);
		break;
	case PERF_RECORD_AUX:
		ev->kind = PERFEVENT_AUX;
		(void)bytes_u64(b); /* offset */
		ev->aux.size = bytes_u64(b);
		ev->aux.flags = bytes_u64(b);
		break;
	default:
		ev->kind = PERFEVENT_OTHER;
		break;
	}
}

int perfevent_parse(struct perfdata *pd, const void *rec, size_t len, struct perfevent *ret)
{
	const struct perfattr none = {0};
	const struct perfattr *a;
	struct perfevent ev = {.cpu = PERFEVENT_NO_CPU};
	struct bytes b = bytes_of(rec, len);
	uint32_t type;

	if (len < 8)
		return PERFEVENT_E_MALFORMED;
	type = bytes_u32(&b);
	ev.misc = bytes_u16(&b);
	ev.size = bytes_u16(&b);
	ev.attr = a = perfdata_attr_of(pd, rec, len);
	if (type == PERF_RECORD_SAMPLE) {
		if (!a)
			return PERFEVENT_E_MALFORMED;
		ev.kind = PERFEVENT_SAMPLE;
		parse_sample(&b, a, &ev);
	} else {
		if (!a)
			a = &none;
		if (b.left < a->trailer_size)
			return PERFEVENT_E_MALFORMED;
		b.left -= a->trailer_size;
		if (a->trailer_size)
			parse_trailer(b.p + b.left, a, &ev);
		parse_other(&b, type, &ev);
	}
	if (b.failed)
		return PERFEVENT_E_MALFORMED;
	*ret = ev;
	return 0;
}

int perfdata_next(struct perfdata *pd, struct perfevent *ret)
{
	while (pd->next < pd->n_index) {
		uint64_t off = pd->index[pd->next++].off;
		const uint8_t *rec = perfsource_get(pd->src, off, 8);
		size_t len;

		if (!rec) {
			pd->losses.torn++;
			continue;
		}
		len = load_u16(rec + 6);
		rec = perfsource_get(pd->src, off, len);
		if (!rec || len < 8) {
			pd->losses.torn++;
			continue;
		}
		if (perfevent_parse(pd, rec, len, ret)) {
			pd->losses.malformed++;
			continue;
		}
		return 1;
	}
	return 0;
}

int perfdata_walk(struct perfdata *pd, perfdata_record_fn record, void *arg)
{
	const struct perfdata_losses losses = pd->losses;
	struct perfevent ev;
	int r = 0;

	pd->next = 0;
	while (r == 0 && perfdata_next(pd, &ev))
		r = record(arg, &ev);
	pd->next = 0;
	pd->losses = losses;
	return r;
}
