// SPDX-License-Identifier: Apache-2.0
/*
 * The attributes of a perf.data's events: what is kept of them, and which one a record belongs to.
 */
#include "config.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>

#include "decode/base/bytes.h"
#include "decode/perf/data.h"

static void attr_derive(struct perfattr *a)
{
	uint64_t t = a->sample_type;
	unsigned off = 0;

	a->sample_id_off = a->sample_time_off = PERFDATA_NO_OFFSET;
	a->trailer_id_off = a->trailer_time_off = PERFDATA_NO_OFFSET;
	if (t & PERF_SAMPLE_IDENTIFIER) {
		a->sample_id_off = 0;
		off += 8;
	}
	if (t & PERF_SAMPLE_IP)
		off += 8;
	if (t & PERF_SAMPLE_TID)
		off += 8;
	if (t & PERF_SAMPLE_TIME) {
		a->sample_time_off = (uint16_t)off;
		off += 8;
	}
	if (t & PERF_SAMPLE_ADDR)
		off += 8;
	if ((t & PERF_SAMPLE_ID) && a->sample_id_off == PERFDATA_NO_OFFSET)
		a->sample_id_off = (uint16_t)off;

	off = 0;
	if (a->sample_id_all) {
		if (t & PERF_SAMPLE_IDENTIFIER) {
			off += 8;
			a->trailer_id_off = (uint16_t)off;
		}
		if (t & PERF_SAMPLE_CPU)
			off += 8;
		if (t & PERF_SAMPLE_STREAM_ID)
			off += 8;
		if (t & PERF_SAMPLE_ID) {
			off += 8;
			if (a->trailer_id_off == PERFDATA_NO_OFFSET)
				a->trailer_id_off = (uint16_t)off;
		}
		if (t & PERF_SAMPLE_TIME) {
			off += 8;
			a->trailer_time_off = (uint16_t)off;
		}
		if (t & PERF_SAMPLE_TID)
			off += 8;
	}
	a->trailer_size = (uint16_t)off;
}

int perfdata_add_attr(
	struct perfdata *pd, const void *attr, size_t size, const void *ids, size_t n_ids)
{
	struct perf_event_attr raw = {0};
	struct perfattr *a, *attrs;

	/* A newer writer's struct is longer: what we know is at its front. */
	memcpy(&raw, attr, size < sizeof(raw) ? size : sizeof(raw));
	if (pd->n_attrs >= PERFDATA_MAX_ATTRS || n_ids > PERFDATA_MAX_IDS - pd->n_ids)
		return -E2BIG;
	attrs = reallocarray(pd->attrs, pd->n_attrs + 1, sizeof(*attrs));
	if (!attrs)
		return -ENOMEM;
	pd->attrs = attrs;
	if (n_ids > pd->cap_ids - pd->n_ids) {
		uint32_t cap = (pd->n_ids + (uint32_t)n_ids) * 2;
		struct perfdata_id *v = reallocarray(pd->ids, cap, sizeof(*v));

		if (!v)
			return -ENOMEM;
		pd->ids = v;
		pd->cap_ids = cap;
	}
	a = &pd->attrs[pd->n_attrs];
	*a = (struct perfattr){
		.type = raw.type,
		.config = raw.config,
		.sample_type = raw.sample_type,
		.read_format = raw.read_format,
		.branch_sample_type = raw.branch_sample_type,
		.regs_user = raw.sample_regs_user,
		.period = raw.sample_period,
		.clockid = raw.clockid,
		.freq = raw.freq,
		.sample_id_all = raw.sample_id_all,
		.use_clockid = raw.use_clockid,
		.context_switch = raw.context_switch,
		.exclude_kernel = raw.exclude_kernel,
		.exclude_callchain_user = raw.exclude_callchain_user,
		.write_backward = raw.write_backward,
	};
	attr_derive(a);
	for (size_t i = 0; i < n_ids; i++) {
		pd->ids[pd->n_ids++] = (struct perfdata_id){
			.id = load_u64((const uint8_t *)ids + i * 8),
			.attr = pd->n_attrs,
		};
	}
	pd->ids_sorted = false;
	if (pd->n_attrs == 0) {
		pd->sample_id_off = a->sample_id_off;
		pd->trailer_id_off = a->trailer_id_off;
	} else {
		if (pd->sample_id_off != a->sample_id_off)
			pd->sample_id_off = PERFDATA_NO_OFFSET;
		if (pd->trailer_id_off != a->trailer_id_off)
			pd->trailer_id_off = PERFDATA_NO_OFFSET;
	}
	pd->n_attrs++;
	return 0;
}

static int id_compare(const void *a, const void *b)
{
	const struct perfdata_id *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

struct perfattr *perfdata_attr_by_id(struct perfdata *pd, uint64_t id)
{
	size_t lo = 0, hi = pd->n_ids;

	if (!pd->ids_sorted) {
		if (pd->n_ids)
			qsort(pd->ids, pd->n_ids, sizeof(*pd->ids), id_compare);
		pd->ids_sorted = true;
	}
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (pd->ids[mid].id < id)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo < pd->n_ids && pd->ids[lo].id == id)
		return &pd->attrs[pd->ids[lo].attr];
	return NULL;
}

const struct perfattr *perfdata_attr_of(struct perfdata *pd, const void *rec, size_t len)
{
	uint32_t type = load_u32(rec);
	const struct perfattr *a;
	uint64_t id = 0;

	if (pd->n_attrs <= 1)
		return pd->n_attrs ? pd->attrs : NULL;
	if (type == PERF_RECORD_SAMPLE) {
		if (pd->sample_id_off == PERFDATA_NO_OFFSET || len < 16u + pd->sample_id_off)
			return pd->attrs;
		id = load_u64((const uint8_t *)rec + 8 + pd->sample_id_off);
	} else {
		if (pd->trailer_id_off == PERFDATA_NO_OFFSET || len < 8u + pd->trailer_id_off)
			return pd->attrs;
		id = load_u64((const uint8_t *)rec + len - pd->trailer_id_off);
	}
	/* What user space made up (maps that existed before) has id 0. */
	if (id == 0)
		return pd->attrs;
	a = perfdata_attr_by_id(pd, id);
	if (!a) {
		pd->losses.unknown_ids++;
		return pd->attrs;
	}
	return a;
}

bool perfdata_time_of(struct perfdata *pd, const void *rec, size_t len, uint64_t *ret)
{
	const struct perfattr *a = perfdata_attr_of(pd, rec, len);

	if (!a)
		return false;
	if (load_u32(rec) == PERF_RECORD_SAMPLE) {
		if (a->sample_time_off == PERFDATA_NO_OFFSET || len < 16u + a->sample_time_off)
			return false;
		*ret = load_u64((const uint8_t *)rec + 8 + a->sample_time_off);
		return true;
	}
	if (a->trailer_time_off == PERFDATA_NO_OFFSET || len < 8u + a->trailer_time_off)
		return false;
	*ret = load_u64((const uint8_t *)rec + len - a->trailer_time_off);
	return true;
}

bool perfattr_is_bpf_output(const struct perfattr *a)
{
	return a->type == PERF_TYPE_SOFTWARE && a->config == PERF_COUNT_SW_BPF_OUTPUT;
}

bool perfattr_is_dummy(const struct perfattr *a)
{
	return a->type == PERF_TYPE_SOFTWARE && a->config == PERF_COUNT_SW_DUMMY;
}

void perfattr_set_name(struct perfattr *a, const char *s, size_t len)
{
	len = strnlen(s, len);
	if (len >= sizeof(a->name))
		len = sizeof(a->name) - 1;
	memcpy(a->name, s, len);
	a->name[len] = '\0';
}

void perfdata_event_update(struct perfdata *pd, const void *rec, size_t size)
{
	struct bytes b = bytes_of(rec, size);
	struct perfattr *a;
	uint64_t type;

	(void)bytes_take(&b, 8);
	type = bytes_u64(&b);
	a = perfdata_attr_by_id(pd, bytes_u64(&b));
	if (!b.failed && a && type == 2 /* the name */)
		perfattr_set_name(a, (const char *)b.p, b.left);
}
