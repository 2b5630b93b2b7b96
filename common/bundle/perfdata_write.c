// SPDX-License-Identifier: Apache-2.0
#include "common/bundle/perfdata_write.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/io.h"
#include "common/bundle/perfdata_host.h"
#include "common/bundle/perfdata_ids.h"

#define BUFFER_SIZE (256U * 1024)
#define MAX_IDS 65536
#define MAX_NAME 64

/* ---- the file format (tools/perf/Documentation/perf.data-file-format.txt of the kernel) */

struct file_section {
	uint64_t offset, size;
};

struct file_header {
	char magic[8];
	uint64_t size, attr_size;
	struct file_section attrs, data, event_types;
	uint64_t features[4];
};

enum feature {
	FEAT_BUILD_ID = 2,
	FEAT_HOSTNAME = 3,
	FEAT_OSRELEASE = 4,
	FEAT_VERSION = 5,
	FEAT_ARCH = 6,
	FEAT_NRCPUS = 7,
	FEAT_CPUDESC = 8,
	FEAT_CPUID = 9,
	FEAT_TOTAL_MEM = 10,
	FEAT_CMDLINE = 11,
	FEAT_EVENT_DESC = 12,
	FEAT_PMU_MAPPINGS = 16,
	FEAT_AUXTRACE = 18,
	FEAT_SAMPLE_TIME = 21,
	FEAT_CLOCKID = 23,
	FEAT_CLOCK_DATA = 29,
	_FEAT_MAX,
};

/* Records of AUX output and later ones that our headers may not know are counted as "others". */
struct event {
	char name[MAX_NAME];
	struct perf_event_attr attr;
	uint64_t *ids;
	size_t n_ids;
};

struct perfdata_writer {
	int fd;
	uint64_t max_bytes;
	const atomic_bool *cancel;
	uint64_t offset; /* of the end of the file, the buffer included */
	uint8_t *buf;
	size_t used;
	uint64_t aux_missing; /* of the bytes of an AUXTRACE record that was begun */
	int error; /* a write failed: the file is lost */
	bool finished;
	struct perfdata_counts counts;
	struct event *events;
	size_t n_events;
	struct perfdata_loss *losses;
	size_t n_losses, size_losses;
};

int perfdata_writer_new(int fd, uint64_t max_bytes, const atomic_bool *cancel,
			struct perfdata_writer **ret)
{
	_cleanup_(perfdata_writer_freep) struct perfdata_writer *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->fd = fd;
	w->max_bytes = max_bytes ? max_bytes : UINT64_MAX;
	w->cancel = cancel;
	w->buf = malloc(BUFFER_SIZE);
	w->events = calloc(PERFDATA_MAX_EVENTS, sizeof(*w->events));
	if (!w->buf || !w->events)
		return -ENOMEM;
	/* The header is written last; until then zeroes say that this is no perf.data. */
	memset(w->buf, 0, sizeof(struct file_header));
	w->used = sizeof(struct file_header);
	w->offset = w->used;
	*ret = take_ptr(w);
	return 0;
}

void perfdata_writer_free(struct perfdata_writer *w)
{
	if (!w)
		return;
	for (size_t i = 0; i < w->n_events; i++)
		free(w->events[i].ids);
	free(w->events);
	free(w->losses);
	free(w->buf);
	free(w);
}

const struct perfdata_counts *perfdata_counts(const struct perfdata_writer *w)
{
	return &w->counts;
}

const struct perfdata_loss *perfdata_losses(const struct perfdata_writer *w, size_t *ret_n)
{
	*ret_n = w->n_losses;
	return w->losses;
}

/* ---- events */

int perfdata_add_event(struct perfdata_writer *w, const char *name,
		       const struct perf_event_attr *attr, const uint64_t *ids, size_t n_ids)
{
	size_t attr_size = attr->size ? attr->size : PERF_ATTR_SIZE_VER0;
	struct perf_event_attr copy = {0};
	struct event *e = NULL;
	uint64_t *p;

	if (!(attr->sample_type & PERF_SAMPLE_IDENTIFIER) || !attr->sample_id_all)
		return -EINVAL;
	memcpy(&copy, attr, attr_size < sizeof(copy) ? attr_size : sizeof(copy));
	copy.size = 0;
	for (size_t i = 0; i < w->n_events; i++)
		if (!strcmp(w->events[i].name, name) &&
		    !memcmp(&w->events[i].attr, &copy, sizeof(copy))) {
			e = &w->events[i];
			break;
		}
	if (!e) {
		if (w->n_events == PERFDATA_MAX_EVENTS)
			return -E2BIG;
		e = &w->events[w->n_events];
		memset(e, 0, sizeof(*e));
		(void)snprintf(e->name, sizeof(e->name), "%s", name);
		e->attr = copy;
		w->n_events++;
	}
	if (n_ids == 0)
		return 0;
	if (n_ids > MAX_IDS - e->n_ids)
		return -E2BIG;
	p = reallocarray(e->ids, e->n_ids + n_ids, sizeof(*p));
	if (!p)
		return -ENOMEM;
	e->ids = p;
	memcpy(p + e->n_ids, ids, n_ids * sizeof(*p));
	e->n_ids += n_ids;
	return 0;
}

static const struct event *event_by_id(const struct perfdata_writer *w, uint64_t id)
{
	for (size_t i = 0; i < w->n_events; i++)
		for (size_t j = 0; j < w->events[i].n_ids; j++)
			if (w->events[i].ids[j] == id)
				return &w->events[i];
	return NULL;
}

/* ---- records */

static int flush(struct perfdata_writer *w)
{
	int r;

	if (w->error)
		return w->error;
	r = io_pwrite_all(w->fd, w->buf, w->used, (off_t)(w->offset - w->used));
	if (r < 0) {
		w->error = r;
		return r;
	}
	w->used = 0;
	return 0;
}

static int append(struct perfdata_writer *w, const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len > 0) {
		size_t n = BUFFER_SIZE - w->used;
		int r;

		if (n == 0) {
			r = flush(w);
			if (r < 0)
				return r;
			continue;
		}
		if (n > len)
			n = len;
		memcpy(w->buf + w->used, p, n);
		w->used += n;
		w->offset += n;
		p += n;
		len -= n;
	}
	return 0;
}

/*
 * sample_id at the end of a record that is no sample: TID, TIME, ID, STREAM_ID, CPU, IDENTIFIER, as
 * far as the event has them. The identifier is last, so the event is found from the end.
 */
static void loss_add(struct perfdata_writer *w, const struct perf_event_header *h,
		     const uint8_t *record)
{
	struct perfdata_loss loss = {.type = h->type};
	size_t fixed = sizeof(*h) + (h->type == PERF_RECORD_LOST ? 16 : 8), end = h->size;
	const struct event *e;
	uint64_t id;

	if (end < fixed)
		return;
	memcpy(&loss.lost, record + fixed - 8, 8);
	w->counts.lost_records++;
	w->counts.lost_events += loss.lost;
	if (end >= fixed + 8) {
		memcpy(&id, record + end - 8, 8);
		e = event_by_id(w, id);
		if (e) {
			const uint64_t type = e->attr.sample_type;
			size_t tid = type & PERF_SAMPLE_TID ? 8 : 0,
			       time = type & PERF_SAMPLE_TIME ? 8 : 0;
			size_t ids = (type & PERF_SAMPLE_ID ? 8U : 0U) +
				     (type & PERF_SAMPLE_STREAM_ID ? 8U : 0U);
			size_t cpu = type & PERF_SAMPLE_CPU ? 8 : 0;

			if (end == fixed + tid + time + ids + cpu + 8) {
				loss.id = id;
				if (time)
					memcpy(&loss.time, record + fixed + tid, 8);
				if (cpu)
					memcpy(&loss.cpu, record + fixed + tid + time + ids, 4);
			}
		}
	}
	if (w->n_losses == PERFDATA_MAX_LOSSES)
		return;
	if (w->n_losses == w->size_losses) {
		size_t n = w->size_losses ? w->size_losses * 2 : 16;
		struct perfdata_loss *p = reallocarray(w->losses, n, sizeof(*p));

		if (!p)
			return; /* still in the counts */
		w->losses = p;
		w->size_losses = n;
	}
	w->losses[w->n_losses++] = loss;
}

static void count(struct perfdata_counts *c, const struct perf_event_header *h)
{
	c->records++;
	c->bytes += h->size;
	switch (h->type) {
	case PERF_RECORD_SAMPLE:
		c->samples++;
		break;
	case PERF_RECORD_MMAP:
	case PERF_RECORD_MMAP2:
		c->mmaps++;
		break;
	case PERF_RECORD_COMM:
		c->comms++;
		if (h->misc & PERF_RECORD_MISC_COMM_EXEC)
			c->execs++;
		break;
	case PERF_RECORD_FORK:
		c->forks++;
		break;
	case PERF_RECORD_EXIT:
		c->exits++;
		break;
	case PERF_RECORD_NAMESPACES:
		c->namespaces++;
		break;
	case PERF_RECORD_SWITCH:
	case PERF_RECORD_SWITCH_CPU_WIDE:
		c->switches++;
		break;
	default:
		c->others++;
	}
}

static bool is_loss(const struct perf_event_header *h)
{
	return h->type == PERF_RECORD_LOST || h->type == PERF_RECORD_LOST_SAMPLES;
}

int perfdata_write(struct perfdata_writer *w, const void *records, size_t len)
{
	const uint8_t *p = records;
	struct perf_event_header h;
	uint64_t kept = 0;

	if (w->cancel && atomic_load_explicit(w->cancel, memory_order_relaxed))
		return -ECANCELED;
	if (w->error)
		return w->error;
	if (w->aux_missing)
		return -EINVAL;
	for (size_t i = 0; i < len; i += h.size) {
		if (len - i < sizeof(h))
			return -EINVAL;
		memcpy(&h, p + i, sizeof(h));
		if (h.size < sizeof(h) || h.size % 8 || h.size > len - i)
			return -EINVAL;
		if (!is_loss(&h))
			kept += h.size;
	}
	if (kept > w->max_bytes || w->offset > w->max_bytes - kept)
		return -EFBIG;
	for (size_t i = 0; i < len; i += h.size) {
		int r;

		memcpy(&h, p + i, sizeof(h));
		if (is_loss(&h)) {
			loss_add(w, &h, p + i);
			continue;
		}
		r = append(w, p + i, h.size);
		if (r < 0)
			return r;
		count(&w->counts, &h);
	}
	return 0;
}

/* ---- AUXTRACE */

int perfdata_aux_begin(struct perfdata_writer *w, const struct perfabi_auxtrace *record,
		       uint64_t bytes)
{
	struct perfabi_auxtrace r = *record;
	int e;

	if (bytes == 0 || bytes > INT64_MAX || w->aux_missing)
		return -EINVAL;
	if (w->max_bytes < sizeof(r))
		return -EFBIG;
	r.header = (struct perf_event_header){.type = PERFABI_RECORD_AUXTRACE, .size = sizeof(r)};
	r.size = (bytes + 7) & ~UINT64_C(7);
	if (r.size > w->max_bytes - sizeof(r) || w->offset > w->max_bytes - sizeof(r) - r.size)
		return -EFBIG;
	e = perfdata_write(w, &r, sizeof(r));
	if (e == 0)
		w->aux_missing = bytes;
	return e;
}

int perfdata_aux_add(struct perfdata_writer *w, const void *data, size_t len)
{
	static const uint8_t zeroes[8];
	int r;

	if (len > w->aux_missing)
		return -EINVAL;
	if (w->cancel && atomic_load_explicit(w->cancel, memory_order_relaxed))
		return -ECANCELED;
	r = append(w, data, len);
	if (r < 0)
		return r;
	w->aux_missing -= len;
	/* Records begin at multiples of 8, and this one did. */
	return w->aux_missing || w->offset % 8 == 0 ? 0 : append(w, zeroes, 8 - w->offset % 8);
}

/* ---- features */

/* perf reads strings that are padded to a multiple of 64 with zeroes. */
static int append_string(struct perfdata_writer *w, const char *s)
{
	static const char zeroes[64];
	size_t len = strlen(s) + 1, padded = (len + 63) / 64 * 64;
	uint32_t n = (uint32_t)padded;
	int r;

	r = append(w, &n, sizeof(n));
	if (r == 0)
		r = append(w, s, len);
	if (r == 0)
		r = append(w, zeroes, padded - len);
	return r;
}

/* The rest of the table comes later: perfdata_ids.h. */
static int append_vdso_id(struct perfdata_writer *w, const struct perfdata_about *about,
			  const struct perfdata_host *host)
{
	struct perfdata_id id = {.path = "[vdso]", .len = (uint8_t)host->vdso_id_len};
	uint8_t entry[128];

	if (!about->vdso || host->vdso_id_len == 0)
		return 0;
	memcpy(id.id, host->vdso_id, host->vdso_id_len);
	perfdata_id_put(&id, entry);
	return append(w, entry, perfdata_id_size(id.path));
}

static int append_u32(struct perfdata_writer *w, uint32_t v)
{
	return append(w, &v, sizeof(v));
}

static int append_u64(struct perfdata_writer *w, uint64_t v)
{
	return append(w, &v, sizeof(v));
}

/*
 * The size that attributes have in the file. A perf refuses a file whose attributes are larger than
 * those it knows, so no larger than the fields in use need.
 */
static uint32_t file_attr_size(const struct perfdata_writer *w)
{
	uint32_t size = PERF_ATTR_SIZE_VER5;

	for (size_t i = 0; i < w->n_events; i++) {
		const uint8_t *p = (const uint8_t *)&w->events[i].attr;

		for (uint32_t n = size; n < sizeof(struct perf_event_attr); n++)
			if (p[n])
				size = n < PERF_ATTR_SIZE_VER6
					       ? PERF_ATTR_SIZE_VER6
					       : (uint32_t)sizeof(struct perf_event_attr);
	}
	return size;
}

static int append_attr(struct perfdata_writer *w, const struct event *e, uint32_t size)
{
	struct perf_event_attr attr = e->attr;

	attr.size = size;
	return append(w, &attr, size);
}

static int append_event_desc(struct perfdata_writer *w, uint32_t attr_size)
{
	int r;

	r = append_u32(w, (uint32_t)w->n_events);
	if (r == 0)
		r = append_u32(w, attr_size);
	for (size_t i = 0; r == 0 && i < w->n_events; i++) {
		const struct event *e = &w->events[i];

		r = append_attr(w, e, attr_size);
		if (r == 0)
			r = append_u32(w, (uint32_t)e->n_ids);
		if (r == 0)
			r = append_string(w, e->name);
		if (r == 0)
			r = append(w, e->ids, e->n_ids * sizeof(*e->ids));
	}
	return r;
}

static bool feature_present(enum feature f, const struct perfdata_about *about,
			    const struct perfdata_host *host)
{
	switch (f) {
	case FEAT_BUILD_ID: /* see perfdata_ids.h: more may come */
	case FEAT_HOSTNAME:
	case FEAT_OSRELEASE:
	case FEAT_VERSION:
	case FEAT_ARCH:
	case FEAT_NRCPUS:
	case FEAT_EVENT_DESC:
		return true;
	case FEAT_CLOCKID:
		return !about->perf_clock;
	case FEAT_CPUDESC:
		return host->cpu[0];
	case FEAT_CPUID:
		return about->aux_pmu && (about->cpuid || host->cpuid[0]);
	case FEAT_PMU_MAPPINGS:
	case FEAT_AUXTRACE:
		return about->aux_pmu;
	case FEAT_TOTAL_MEM:
		return host->memory_kib > 0;
	case FEAT_CMDLINE:
		return about->command;
	case FEAT_SAMPLE_TIME:
		return about->first_time || about->last_time;
	case FEAT_CLOCK_DATA:
		return !about->perf_clock && (about->clock_ns || about->wall_clock_ns);
	case _FEAT_MAX:
		break;
	}
	return false;
}

static int append_feature(struct perfdata_writer *w, enum feature f,
			  const struct perfdata_about *about, const struct perfdata_host *host,
			  uint32_t attr_size)
{
	int r = 0;

	switch (f) {
	case FEAT_BUILD_ID:
		return append_vdso_id(w, about, host);
	case FEAT_HOSTNAME:
		return append_string(w, host->name);
	case FEAT_OSRELEASE:
		return append_string(w, host->release);
	case FEAT_VERSION:
		return append_string(w, PACKAGE_STRING);
	case FEAT_ARCH:
		return append_string(w, host->machine);
	case FEAT_NRCPUS:
		r = append_u32(w, host->cpus_configured);
		return r < 0 ? r : append_u32(w, host->cpus_online);
	case FEAT_CPUDESC:
		return append_string(w, host->cpu);
	case FEAT_CPUID:
		return append_string(w, about->cpuid ? about->cpuid : host->cpuid);
	case FEAT_PMU_MAPPINGS:
		r = append_u32(w, 1);
		if (r == 0)
			r = append_u32(w, about->aux_pmu_type);
		return r < 0 ? r : append_string(w, about->aux_pmu);
	case FEAT_AUXTRACE:
		/* an index without entries: the records are found by reading */
		return append_u64(w, 0);
	case FEAT_TOTAL_MEM:
		return append_u64(w, host->memory_kib);
	case FEAT_CMDLINE:
		r = append_u32(w, 1);
		return r < 0 ? r : append_string(w, about->command);
	case FEAT_EVENT_DESC:
		return append_event_desc(w, attr_size);
	case FEAT_SAMPLE_TIME:
		r = append_u64(w, about->first_time);
		return r < 0 ? r : append_u64(w, about->last_time);
	case FEAT_CLOCKID:
		return append_u64(w, 1); /* resolution in ns */
	case FEAT_CLOCK_DATA:
		r = append_u32(w, 1); /* version */
		if (r == 0)
			r = append_u32(w, (uint32_t)about->clock);
		if (r == 0)
			r = append_u64(w, about->wall_clock_ns);
		return r < 0 ? r : append_u64(w, about->clock_ns);
	case _FEAT_MAX:
		break;
	}
	return -EINVAL;
}

static int finish(struct perfdata_writer *w, const struct perfdata_about *about,
		  struct file_header *h)
{
	struct file_section sections[_FEAT_MAX] = {0}, ids[PERFDATA_MAX_EVENTS] = {0};
	const uint32_t attr_size = file_attr_size(w);
	uint64_t table;
	size_t n = 0;
	struct perfdata_host host;
	int r;

	perfdata_host_read(&host);
	h->data.offset = sizeof(*h);
	h->data.size = w->offset - sizeof(*h);

	/*
	 * The table of features follows the data at once; it is filled in when their places are
	 * known.
	 */
	table = w->offset;
	for (int f = 0; f < _FEAT_MAX; f++)
		if (feature_present((enum feature)f, about, &host)) {
			h->features[0] |= 1ULL << f;
			n++;
		}
	r = append(w, sections, n * sizeof(sections[0]));
	n = 0;
	for (int f = 0; r == 0 && f < _FEAT_MAX; f++) {
		if (!(h->features[0] & 1ULL << f))
			continue;
		sections[n].offset = w->offset;
		r = append_feature(w, (enum feature)f, about, &host, attr_size);
		sections[n].size = w->offset - sections[n].offset;
		n++;
	}
	for (size_t i = 0; r == 0 && i < w->n_events; i++) {
		ids[i].offset = w->offset;
		ids[i].size = w->events[i].n_ids * sizeof(uint64_t);
		r = append(w, w->events[i].ids, ids[i].size);
	}
	h->attrs.offset = w->offset;
	for (size_t i = 0; r == 0 && i < w->n_events; i++) {
		r = append_attr(w, &w->events[i], attr_size);
		if (r == 0)
			r = append(w, &ids[i], sizeof(ids[i]));
	}
	h->attrs.size = w->offset - h->attrs.offset;
	h->attr_size = attr_size + sizeof(struct file_section);
	if (r == 0)
		r = flush(w);
	return r < 0 ? r : io_pwrite_all(w->fd, sections, n * sizeof(sections[0]), (off_t)table);
}

int perfdata_finish(struct perfdata_writer *w, const struct perfdata_about *about)
{
	struct file_header h = {.size = sizeof(h)};
	int r;

	memcpy(h.magic, "PERFILE2", sizeof(h.magic));
	if (w->finished || w->n_events == 0 || w->aux_missing)
		return -EINVAL;
	if (w->error)
		return w->error;
	w->finished = true;
	/* perf shows and converts times by the clock that the attributes name */
	for (size_t i = 0; !about->perf_clock && i < w->n_events; i++) {
		w->events[i].attr.use_clockid = 1;
		w->events[i].attr.clockid = about->clock;
	}
	r = finish(w, about, &h);
	if (r == 0)
		r = io_pwrite_all(w->fd, &h, sizeof(h), 0);
	if (r < 0)
		w->error = r;
	return r;
}
