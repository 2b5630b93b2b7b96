// SPDX-License-Identifier: Apache-2.0
/*
 * Walks the records of a perf.data once, from the front, keeps the place and time of each that
 * the kernel wrote, and sorts them by time. Records of perf's own user space are used up here:
 * attributes and features of the pipe layout, compressed records (their contents go to the
 * source's arena and are walked in turn), AUX data (its places are kept for decode/pt/auxtrace.h).
 *
 * All times are in one clock, so one sort replaces perf's rounds; where two are equal the order
 * of the file stays.
 */
#include "config.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <zstd.h>

#include "decode/base/bytes.h"
#include "decode/perf/data.h"

#define PROGRESS_BYTES (4u << 20)

struct walk {
	struct perfdata *pd;
	ZSTD_DCtx *zstd;
	uint64_t last_time; /* stands for records whose event has no time */
	bool cut;
};

static int index_add(struct walk *w, uint64_t time, uint64_t off)
{
	struct perfdata *pd = w->pd;

	if (pd->n_index == pd->cap_index) {
		uint64_t cap = pd->cap_index ? pd->cap_index * 2 : 4096;
		struct perfdata_index *v;

		/* qsort() takes as much again for its merge */
		if (!budget_take(pd->budget, (cap - pd->cap_index) * 2 * sizeof(*v)))
			return -ENOMEM;
		pd->charged += (cap - pd->cap_index) * 2 * sizeof(*v);
		v = reallocarray(pd->index, cap, sizeof(*v));
		if (!v)
			return -ENOMEM;
		pd->index = v;
		pd->cap_index = cap;
	}
	pd->index[pd->n_index++] = (struct perfdata_index){.time = time, .off = off};
	return 0;
}

/*
 * One compressed record: its contents go on in one stream over all such records, and a record
 * inside may be continued in the next of them.
 */
static void walk_compressed(struct walk *w, uint64_t off, const uint8_t *rec, size_t size)
{
	struct perfdata *pd = w->pd;
	_cleanup_free_ uint8_t *copy = NULL;
	ZSTD_inBuffer in = {0};
	size_t skip = 8, len = size - 8;

	if (load_u32(rec) == PERFDATA_COMPRESSED2) {
		if (size < 16 || load_u64(rec + 8) > size - 16) {
			pd->losses.compressed++;
			return;
		}
		skip = 16;
		len = (size_t)load_u64(rec + 8);
	}
	copy = malloc(len + 1);
	if (!w->zstd) {
		w->zstd = ZSTD_createDCtx();
		/* the window is the writer's choice: at most what perf itself uses */
		if (w->zstd)
			(void)ZSTD_DCtx_setParameter(w->zstd, ZSTD_d_windowLogMax, 27);
	}
	if (!copy || !w->zstd) {
		pd->losses.no_memory++;
		return;
	}
	memcpy(copy, rec + skip, len);
	in.src = copy;
	in.size = len;
	for (;;) {
		ZSTD_outBuffer out = {.size = ZSTD_DStreamOutSize()};
		size_t before = in.pos, r;

		if (perfsource_reserve(pd->src, out.size, &out.dst) < 0) {
			pd->losses.no_memory++;
			w->cut = true;
			return;
		}
		r = ZSTD_decompressStream(w->zstd, &out, &in);
		if (ZSTD_isError(r)) {
			pd->losses.compressed++;
			(void)ZSTD_DCtx_reset(w->zstd, ZSTD_reset_session_only);
			return;
		}
		perfsource_commit(pd->src, out.pos);
		/* after a full buffer there may be more */
		if (in.pos == in.size && out.pos < out.size)
			return;
		if (in.pos == before && out.pos == 0)
			return;
	}
}

static void walk_header_attr(struct perfdata *pd, const uint8_t *rec, size_t size)
{
	uint32_t attr_size;

	if (size < 8 + 64) {
		pd->losses.malformed++;
		return;
	}
	attr_size = load_u32(rec + 8 + 4);
	if (attr_size == 0)
		attr_size = 64; /* PERF_ATTR_SIZE_VER0 */
	if (attr_size < 64 || attr_size > size - 8) {
		pd->losses.malformed++;
		return;
	}
	if (perfdata_add_attr(
		    pd, rec + 8, attr_size, rec + 8 + attr_size, (size - 8 - attr_size) / 8) < 0)
		pd->losses.malformed++;
}

static void add_aux_info(struct perfdata *pd, const uint8_t *rec, size_t size)
{
	struct bytes b = bytes_of(rec, size);

	(void)bytes_take(&b, 8);
	pd->aux_type = bytes_u32(&b);
	(void)bytes_u32(&b);
	pd->n_aux_info = 0;
	while (b.left >= 8 && pd->n_aux_info < PERFDATA_AUX_INFO_WORDS)
		pd->aux_info[pd->n_aux_info++] = bytes_u64(&b);
}

static void add_aux(struct perfdata *pd, uint64_t off, const uint8_t *rec)
{
	struct perfdata_aux *v;

	if (pd->n_aux == pd->cap_aux) {
		const uint32_t cap = pd->cap_aux ? pd->cap_aux * 2 : 16;

		if (cap > PERFDATA_MAX_AUX ||
		    !budget_take(pd->budget, (cap - pd->cap_aux) * sizeof(*v))) {
			pd->losses.no_memory++;
			return;
		}
		pd->charged += (cap - pd->cap_aux) * sizeof(*v);
		v = reallocarray(pd->aux, cap, sizeof(*v));
		if (!v) {
			pd->losses.no_memory++;
			return;
		}
		pd->aux = v;
		pd->cap_aux = cap;
	}
	pd->aux[pd->n_aux++] = (struct perfdata_aux){
		.off = off,
		.size = load_u64(rec + 8),
		.aux_offset = load_u64(rec + 16),
		.reference = load_u64(rec + 24),
		.idx = load_u32(rec + 32),
		.tid = (int32_t)load_u32(rec + 36),
		.cpu = (int32_t)load_u32(rec + 40),
	};
}

/* Returns how far to go on from `off`: the record's size, more for one that data follow. */
static int walk_user(
	struct walk *w, uint64_t off, const uint8_t *rec, size_t size, uint64_t *ret_step)
{
	struct perfdata *pd = w->pd;
	uint64_t step = size;

	switch (load_u32(rec)) {
	case PERFDATA_HEADER_ATTR:
		walk_header_attr(pd, rec, size);
		break;
	case PERFDATA_HEADER_FEATURE:
		if (size >= 16 && load_u64(rec + 8) < PERFDATA_FEAT_MAX) {
			uint8_t *copy = malloc(size);

			/* the body outlives no further read of the source */
			if (copy) {
				memcpy(copy, rec, size);
				perfdata_add_feature(
					pd, (unsigned)load_u64(copy + 8), copy + 16, size - 16);
			}
			free(copy);
		}
		break;
	case PERFDATA_HEADER_BUILD_ID:
		perfdata_add_build_id(pd, rec, size);
		break;
	case PERFDATA_EVENT_UPDATE:
		perfdata_event_update(pd, rec, size);
		break;
	case PERFDATA_HEADER_TRACING_DATA:
		if (size < 12)
			return -EBADMSG;
		step += ((uint64_t)load_u32(rec + 8) + 7) & ~UINT64_C(7);
		break;
	case PERFDATA_AUXTRACE_INFO:
		add_aux_info(pd, rec, size);
		break;
	case PERFDATA_AUXTRACE: {
		uint64_t n;

		if (size < 16)
			return -EBADMSG;
		n = load_u64(rec + 8);
		if (__builtin_add_overflow(step, n, &step))
			return -EBADMSG;
		pd->losses.aux_bytes += n;
		if (size >= 48)
			add_aux(pd, off + size, rec);
		break;
	}
	case PERFDATA_COMPRESSED:
	case PERFDATA_COMPRESSED2:
		if (off & PERFSOURCE_ARENA) /* no boxes in boxes */
			pd->losses.compressed++;
		else
			walk_compressed(w, off, rec, size);
		break;
	default:
		break;
	}
	*ret_step = step;
	return 0;
}

/*
 * Walks the records in [*pos, end) and leaves *pos after the last whole one. In the arena an
 * incomplete record at the end waits for the next compressed record.
 */
static int walk_run(
	struct walk *w, uint64_t *pos, uint64_t end, perfdata_progress_fn progress, void *arg);

static int walk_arena(struct walk *w, uint64_t *arena_pos)
{
	uint64_t pos = *arena_pos | PERFSOURCE_ARENA;
	int r = walk_run(w, &pos, perfsource_arena_size(w->pd->src) | PERFSOURCE_ARENA, NULL, NULL);

	*arena_pos = pos & ~PERFSOURCE_ARENA;
	return r;
}

static int walk_run(
	struct walk *w, uint64_t *pos, uint64_t end, perfdata_progress_fn progress, void *arg)
{
	struct perfdata *pd = w->pd;
	uint64_t arena_pos = 0, reported = *pos;
	bool arena = *pos & PERFSOURCE_ARENA;

	while (*pos < end && !w->cut) {
		const uint8_t *rec = end - *pos >= 8 ? perfsource_get(pd->src, *pos, 8) : NULL;
		uint64_t step, time;
		uint32_t type;
		uint16_t size;
		int r;

		if (!rec) {
			if (!arena)
				pd->losses.torn++;
			return 0;
		}
		type = load_u32(rec);
		size = load_u16(rec + 6);
		/*
		 * A size below its own header would loop; a type that nobody has defined with such
		 * a size is no record but text that something else wrote after the data.
		 */
		if (size < 8 || (type >= PERFDATA_USER_END && size % 8)) {
			pd->losses.torn++;
			return -EBADMSG;
		}
		rec = size <= end - *pos ? perfsource_get(pd->src, *pos, size) : NULL;
		if (!rec) {
			if (!arena)
				pd->losses.torn++;
			return 0;
		}
		step = size;
		if (type < PERFDATA_USER_END)
			pd->n_records[type]++;
		if (type >= PERFDATA_USER_END) {
			pd->losses.unknown++;
		} else if (type >= PERFDATA_USER_FIRST) {
			r = walk_user(w, *pos, rec, size, &step);
			if (r < 0) {
				pd->losses.torn++;
				return r;
			}
		} else {
			time = w->last_time;
			if (perfdata_time_of(pd, rec, size, &time) && time > w->last_time)
				w->last_time = time;
			r = index_add(w, time, *pos);
			if (r < 0) {
				pd->losses.no_memory++;
				w->cut = true;
				return 0;
			}
		}
		if (step > end - *pos) {
			pd->losses.torn++;
			*pos = end;
			return 0;
		}
		*pos += step;
		if (!arena && perfsource_arena_size(pd->src) > arena_pos) {
			r = walk_arena(w, &arena_pos);
			if (r == -EBADMSG) /* lost its place: go on with what comes compressed next
					    */
				arena_pos = perfsource_arena_size(pd->src);
			else if (r)
				return r;
		}
		if (progress && *pos - reported >= PROGRESS_BYTES) {
			reported = *pos;
			r = progress(arg, *pos - pd->data_off, end - pd->data_off);
			if (r)
				return r;
		}
	}
	if (!arena && arena_pos < perfsource_arena_size(pd->src))
		pd->losses.torn++;
	return 0;
}

static int index_compare(const void *a, const void *b)
{
	const struct perfdata_index *x = a, *y = b;

	if (x->time != y->time)
		return x->time < y->time ? -1 : 1;
	return x->off < y->off ? -1 : x->off > y->off;
}

int perfdata_scan(struct perfdata *pd, perfdata_progress_fn progress, void *arg)
{
	struct walk w = {.pd = pd};
	uint64_t pos = pd->data_off;
	int r;

	r = walk_run(&w, &pos, pd->data_end, progress, arg);
	ZSTD_freeDCtx(w.zstd);
	if (pos < pd->data_end)
		pd->losses.unread_bytes = pd->data_end - pos;
	if (r && r != -EBADMSG)
		return r;
	if (pd->n_index)
		qsort(pd->index, pd->n_index, sizeof(*pd->index), index_compare);
	pd->next = 0;
	return 0;
}

uint64_t perfdata_count(const struct perfdata *pd)
{
	return pd->n_index;
}

uint64_t perfdata_last_time(const struct perfdata *pd)
{
	return pd->n_index ? pd->index[pd->n_index - 1].time : 0;
}

const struct perfdata_losses *perfdata_lost(const struct perfdata *pd)
{
	return &pd->losses;
}
