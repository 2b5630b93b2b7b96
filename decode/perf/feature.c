// SPDX-License-Identifier: Apache-2.0
/*
 * The few feature sections of a perf.data that decoding needs: names of events, build ids, clocks,
 * which machine it was, and which command recorded it.
 */
#include "config.h"

#include <string.h>

#include "decode/base/bytes.h"
#include "decode/perf/data.h"

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
			struct perfattr *a = perfdata_attr_by_id(pd, load_u64(ids));

			if (a)
				perfattr_set_name(a, name, len);
		} else if (i < pd->n_attrs && n == pd->n_attrs) {
			perfattr_set_name(&pd->attrs[i], name, len);
		}
	}
}

void perfdata_add_build_id(struct perfdata *pd, const void *rec, size_t size)
{
	struct bytes b = bytes_of(rec, size);
	struct perfdata_build_id *v, e = {0};
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
	case PERFDATA_FEAT_CPUID:
		text = &pd->cpuid;
		break;
	case PERFDATA_FEAT_CMDLINE:
		(void)bytes_u32(&b); /* how many strings */
		text = &pd->command;
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
