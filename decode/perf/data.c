// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/perf/data.h"

#include <endian.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>

#include "decode/base/bytes.h"

#define MAGIC 0x32454c4946524550u     /* PERFILE2 */
#define MAGIC_OLD 0x454c494646524550u /* PERFFILE */
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
		return "this perf.data has the format that perf wrote before 2010, which cannot be read";
	case PERFDATA_E_HEADER:
		return "the header of this perf.data is truncated or invalid";
	default:
		return "this perf.data cannot be read";
	}
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

/* The sections follow the data, in the order of their bits. A file cut short has lost them. */
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
			bit != PERFDATA_FEAT_CPUID && bit != PERFDATA_FEAT_CMDLINE &&
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
	/*
	 * A recorder that was killed leaves the size at 0: then everything after it is data. One
	 * that writes its attributes after the data, as tracerd does, was not: there is no data.
	 */
	if ((data_size == 0 && attrs_off <= data_off) || !range_in(data_off, data_size, file)) {
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
	uint8_t header[HEADER_SIZE] = {0};
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
	free(pd->command);
	free(pd->osrelease);
	free(pd->arch);
	free(pd->cpuid);
	free(pd->aux);
	free(pd->index);
	free(pd->ids);
	free(pd->attrs);
	perfsource_free(pd->src);
	free(pd);
	return NULL;
}
