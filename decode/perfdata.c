// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/perfdata.h"

#include <endian.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>

#include "decode/bytes.h"

#define MAGIC 0x32454c4946524550u      /* PERFILE2 */
#define MAGIC_OLD 0x454c494646524550u  /* PERFFILE */
#define HEADER_SIZE 104u
#define PIPE_HEADER_SIZE 16u
/* The first struct perf_event_attr that was ever published. */
#define ATTR_SIZE_MIN 64u
#define FEATURE_MAX_SIZE (64u << 20)

/* A file's own offsets may be anything: this is the only place that turns one into a range. */
static bool range_in(uint64_t off, uint64_t size, uint64_t end)
{
	return off <= end && size <= end - off;
}

const char *perfdata_strerror(int e)
{
	switch (e) {
	case PERFDATA_E_NOT_PERF:
		return "this is not a perf.data file";
	case PERFDATA_E_ENDIAN:
		return "this perf.data was recorded on a machine of the other byte order";
	case PERFDATA_E_OLD:
		return "this perf.data has the format of before 2010, which is not read";
	case PERFDATA_E_HEADER:
		return "the header of this perf.data is cut off or broken";
	default:
		return "this perf.data cannot be read";
	}
}

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

int perfdata_add_attr(struct perfdata *pd, const void *attr, size_t size, const void *ids, size_t n_ids)
{
	struct perf_event_attr raw = { 0 };
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

static struct perfattr *attr_by_id(struct perfdata *pd, uint64_t id)
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
	a = attr_by_id(pd, id);
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

static void attr_set_name(struct perfattr *a, const char *s, size_t len)
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
	a = attr_by_id(pd, bytes_u64(&b));
	if (!b.failed && a && type == 2 /* the name */)
		attr_set_name(a, (const char *)b.p, b.left);
}

/* A length with padding, then the bytes, NUL-terminated inside. */
static const char *feature_string(struct bytes *b, size_t *ret_len)
{
	uint32_t len = bytes_u32(b);
	const char *s = bytes_take(b, len);

	if (!s)
		return NULL;
	*ret_len = strnlen(s, len);
	return s;
}

static void feature_event_desc(struct perfdata *pd, struct bytes *b)
{
	uint32_t n = bytes_u32(b), attr_size = bytes_u32(b);

	for (uint32_t i = 0; i < n && !b->failed; i++) {
		const void *ids;
		const char *name;
		size_t len = 0;
		uint32_t n_ids;

		(void)bytes_take(b, attr_size);
		n_ids = bytes_u32(b);
		name = feature_string(b, &len);
		ids = bytes_take(b, (uint64_t)n_ids * 8);
		if (!name || !ids)
			break;
		/* By id; a file of one event may have none. */
		if (n_ids) {
			struct perfattr *a = attr_by_id(pd, load_u64(ids));

			if (a)
				attr_set_name(a, name, len);
		} else if (i < pd->n_attrs && n == pd->n_attrs) {
			attr_set_name(&pd->attrs[i], name, len);
		}
	}
}

void perfdata_add_build_id(struct perfdata *pd, const void *rec, size_t size)
{
	struct bytes b = bytes_of(rec, size);
	struct perfdata_build_id *v, e = { 0 };
	uint16_t misc;
	const uint8_t *id;

	(void)bytes_take(&b, 4);
	misc = bytes_u16(&b);
	(void)bytes_take(&b, 2 + 4); /* size, pid */
	id = bytes_take(&b, 24);
	if (!id || pd->n_build_ids >= PERFDATA_MAX_BUILD_IDS ||
		!budget_take(pd->budget, sizeof(e) + b.left + 1))
		return;
	pd->charged += sizeof(e) + b.left + 1;
	e.size = misc & (1 << 15) ? id[20] : 20;
	if (e.size > 20)
		e.size = 20;
	memcpy(e.id, id, e.size);
	v = reallocarray(pd->build_ids, pd->n_build_ids + 1, sizeof(*v));
	if (!v)
		return;
	pd->build_ids = v;
	e.name = strndup((const char *)b.p, b.left);
	if (e.name)
		v[pd->n_build_ids++] = e;
}

static void feature_build_ids(struct perfdata *pd, struct bytes *b)
{
	while (b->left >= 8 && !b->failed) {
		uint16_t size = load_u16(b->p + 6);
		const void *rec = bytes_take(b, size);

		if (!rec || size < 8) {
			b->failed = true;
			return;
		}
		perfdata_add_build_id(pd, rec, size);
	}
}

void perfdata_add_feature(struct perfdata *pd, unsigned feature, const void *p, size_t size)
{
	struct bytes b = bytes_of(p, size);
	char **text = NULL;

	switch (feature) {
	case PERFDATA_FEAT_EVENT_DESC:
		feature_event_desc(pd, &b);
		break;
	case PERFDATA_FEAT_BUILD_ID:
		feature_build_ids(pd, &b);
		break;
	case PERFDATA_FEAT_OSRELEASE:
		text = &pd->osrelease;
		break;
	case PERFDATA_FEAT_ARCH:
		text = &pd->arch;
		break;
	case PERFDATA_FEAT_CLOCKID:
		pd->clock_res = bytes_u64(&b);
		break;
	case PERFDATA_FEAT_CLOCK_DATA: {
		(void)bytes_u32(&b); /* version */
		int32_t clockid = (int32_t)bytes_u32(&b);
		uint64_t wall = bytes_u64(&b), clock = bytes_u64(&b);

		if (!b.failed) {
			pd->clock_data.known = true;
			pd->clock_data.clockid = clockid;
			pd->clock_data.wall_ns = wall;
			pd->clock_data.clock_ns = clock;
		}
		break;
	}
	default:
		return;
	}
	if (text) {
		size_t len = 0;
		const char *s = feature_string(&b, &len);

		if (s && len < 256) {
			free(*text);
			*text = strndup(s, len);
		}
	}
	if (b.failed)
		pd->losses.features++;
}

/* Reads `size` bytes into a new buffer; NULL when they are not there. */
static void *read_run(struct perfdata *pd, uint64_t off, uint64_t size)
{
	_cleanup_free_ uint8_t *buf = NULL;

	if (size > FEATURE_MAX_SIZE || !range_in(off, size, perfsource_size(pd->src)))
		return NULL;
	buf = malloc(size + 1);
	if (!buf)
		return NULL;
	for (uint64_t done = 0; done < size;) {
		uint64_t n = size - done < PERFSOURCE_MAX_GET ? size - done : PERFSOURCE_MAX_GET;
		const void *p = perfsource_get(pd->src, off + done, n);

		if (!p)
			return NULL;
		memcpy(buf + done, p, n);
		done += n;
	}
	return take_ptr(buf);
}

static int read_attrs(struct perfdata *pd, uint64_t off, uint64_t size, uint64_t entry)
{
	uint64_t n, file = perfsource_size(pd->src);

	if (entry < ATTR_SIZE_MIN + 16 || entry > PERFSOURCE_MAX_GET || !range_in(off, size, file))
		return PERFDATA_E_HEADER;
	n = size / entry;
	if (n > PERFDATA_MAX_ATTRS)
		return PERFDATA_E_HEADER;
	for (uint64_t i = 0; i < n; i++) {
		_cleanup_free_ uint8_t *attr = read_run(pd, off + i * entry, entry);
		_cleanup_free_ uint8_t *ids = NULL;
		uint64_t ids_off, ids_size;
		int r;

		if (!attr)
			return PERFDATA_E_HEADER;
		ids_off = load_u64(attr + entry - 16);
		ids_size = load_u64(attr + entry - 8);
		if (ids_size / 8 > PERFDATA_MAX_IDS || !range_in(ids_off, ids_size, file))
			return PERFDATA_E_HEADER;
		ids = read_run(pd, ids_off, ids_size);
		if (!ids)
			return PERFDATA_E_HEADER;
		r = perfdata_add_attr(pd, attr, entry - 16, ids, ids_size / 8);
		if (r < 0)
			return r == -E2BIG ? PERFDATA_E_HEADER : r;
	}
	return 0;
}

/* The sections lie behind the data, in the order of their bits. A file cut short has lost them. */
static void read_features(struct perfdata *pd, uint64_t table)
{
	for (unsigned bit = 0; bit < PERFDATA_FEAT_MAX; bit++) {
		_cleanup_free_ void *run = NULL;
		const uint8_t *sec;
		uint64_t off, size;

		if (!(pd->features[bit / 64] & (UINT64_C(1) << (bit % 64))))
			continue;
		sec = perfsource_get(pd->src, table, 16);
		if (!sec) {
			pd->losses.features++;
			return;
		}
		off = load_u64(sec);
		size = load_u64(sec + 8);
		table += 16;
		if (bit != PERFDATA_FEAT_EVENT_DESC && bit != PERFDATA_FEAT_BUILD_ID &&
			bit != PERFDATA_FEAT_OSRELEASE && bit != PERFDATA_FEAT_ARCH &&
			bit != PERFDATA_FEAT_CLOCKID && bit != PERFDATA_FEAT_CLOCK_DATA)
			continue;
		run = read_run(pd, off, size);
		if (run)
			perfdata_add_feature(pd, bit, run, size);
		else
			pd->losses.features++;
	}
}

static int read_file_header(struct perfdata *pd, const uint8_t *header)
{
	uint64_t attr_size = load_u64(header + 16), file = perfsource_size(pd->src);
	uint64_t attrs_off = load_u64(header + 24), attrs_size = load_u64(header + 32);
	uint64_t data_off = load_u64(header + 40), data_size = load_u64(header + 48);
	int r;

	memcpy(pd->features, header + 72, sizeof(pd->features));
	if (data_off > file)
		return PERFDATA_E_HEADER;
	pd->data_off = data_off;
	/* A recorder that was killed leaves the size at 0: then everything behind is data. */
	if (data_size == 0 || !range_in(data_off, data_size, file)) {
		if (data_size)
			pd->losses.torn++;
		pd->data_end = file;
		memset(pd->features, 0, sizeof(pd->features));
	} else {
		pd->data_end = data_off + data_size;
	}
	r = read_attrs(pd, attrs_off, attrs_size, attr_size);
	if (r)
		return r;
	read_features(pd, pd->data_end);
	return 0;
}

int perfdata_open(int fd, struct budget *budget, struct perfdata **ret)
{
	_cleanup_(perfdata_freep) struct perfdata *pd = NULL;
	uint8_t header[HEADER_SIZE] = { 0 };
	const void *p;
	uint64_t magic, size;
	int r;

	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return -ENOMEM;
	pd->budget = budget;
	r = perfsource_new(fd, budget, &pd->src);
	if (r < 0)
		return r;
	p = perfsource_get(pd->src, 0, PIPE_HEADER_SIZE);
	if (!p)
		return PERFDATA_E_NOT_PERF;
	memcpy(header, p, PIPE_HEADER_SIZE);
	magic = load_u64(header);
	size = load_u64(header + 8);
	if (magic == __builtin_bswap64(MAGIC))
		return PERFDATA_E_ENDIAN;
	if (magic == MAGIC_OLD || magic == __builtin_bswap64(MAGIC_OLD))
		return PERFDATA_E_OLD;
	if (magic != MAGIC)
		return PERFDATA_E_NOT_PERF;
	if (size == PIPE_HEADER_SIZE) {
		pd->pipe = true;
		pd->data_off = PIPE_HEADER_SIZE;
		pd->data_end = perfsource_size(pd->src);
	} else if (size == HEADER_SIZE) {
		p = perfsource_get(pd->src, 0, HEADER_SIZE);
		if (!p)
			return PERFDATA_E_HEADER;
		memcpy(header, p, HEADER_SIZE);
		r = read_file_header(pd, header);
		if (r)
			return r;
	} else {
		return PERFDATA_E_HEADER;
	}
	*ret = take_ptr(pd);
	return 0;
}

struct perfdata *perfdata_free(struct perfdata *pd)
{
	if (!pd)
		return NULL;
	for (uint32_t i = 0; i < pd->n_build_ids; i++)
		free(pd->build_ids[i].name);
	budget_give(pd->budget, pd->charged);
	free(pd->build_ids);
	free(pd->osrelease);
	free(pd->arch);
	free(pd->index);
	free(pd->ids);
	free(pd->attrs);
	perfsource_free(pd->src);
	free(pd);
	return NULL;
}
