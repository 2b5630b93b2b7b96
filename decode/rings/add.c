// SPDX-License-Identifier: Apache-2.0
/*
 * A file's rings become records: whose they are, and when. What a slot says of its writer counts
 * from there on in the order of slots; its time counts only in the order of time, later.
 */
#include "config.h"

#include <errno.h>

#include "decode/rings/events_internal.h"
#include "decode/rings/window.h"

/*
 * What a record costs here and until it is handed out: itself; its keys and its new place while it
 * is sorted, or what finds the begins of ends.
 */
#define RECORD_COST (sizeof(struct ringrec) + 80)

#define MAX_TID 4194304u

struct walk {
	struct ringevents *r;
	struct ringsource *src;
	uint32_t ring;
	size_t first_rec, first_seg;
	size_t seg_recs; /* records of the open segment */
	bool thread_seen, fiber_seen;
	uint64_t highest;
	bool disorder;
	bool full;
};

static bool record_add(struct walk *w, const struct ringrec *rec)
{
	struct ringevents *r = w->r;

	if (r->n_recs == r->cap_recs) {
		size_t cap = r->cap_recs + (r->cap_recs ? r->cap_recs / 2 : 1024);
		struct ringrec *v;

		if (cap >= RINGREC_NO_SLOT ||
		    !ringevents_charge(r, (cap - r->cap_recs) * RECORD_COST))
			return false;
		v = reallocarray(r->recs, cap, sizeof(*v));
		if (!v)
			return false;
		r->recs = v;
		r->cap_recs = cap;
	}
	r->recs[r->n_recs] = *rec;
	r->recs[r->n_recs++].seg = (uint32_t)(r->n_segs - 1);
	w->seg_recs++;
	return true;
}

static bool segment_open(struct walk *w, uint32_t nstid, uint64_t fiber)
{
	struct ringevents *r = w->r;

	if (r->n_segs > w->first_seg && w->seg_recs == 0)
		r->n_segs--;
	if (r->n_segs == r->cap_segs) {
		size_t cap = r->cap_segs ? r->cap_segs * 2 : 256;
		struct ringseg *v;

		if (cap >= UINT32_MAX || !ringevents_charge(r, (cap - r->cap_segs) * sizeof(*v)))
			return false;
		v = reallocarray(r->segs, cap, sizeof(*v));
		if (!v)
			return false;
		r->segs = v;
		r->cap_segs = cap;
	}
	r->segs[r->n_segs++] = (struct ringseg){.source = (uint32_t)(w->src - r->sources),
		.ring = w->ring,
		.nstid = nstid,
		.fiber = fiber};
	w->seg_recs = 0;
	return true;
}

/* A new writer: what came before was the old one's. */
static bool on_thread(struct walk *w, const struct ring_slot *slot)
{
	struct ringevents *r = w->r;

	if (!w->thread_seen)
		for (size_t i = w->first_seg; i < r->n_segs; i++)
			r->segs[i].nstid = (uint32_t)slot->b;
	w->thread_seen = true;
	return segment_open(w, (uint32_t)slot->a, 0);
}

static bool on_fiber(struct walk *w, const struct ring_slot *slot)
{
	struct ringevents *r = w->r;

	if (!w->thread_seen && !w->fiber_seen)
		r->segs[w->first_seg].fiber = slot->b;
	w->fiber_seen = true;
	/* Without memory for it the fiber has its number. */
	if (slot->a && slot->name && ringevents_charge(r, hashmap_more_bytes(&r->fibers)))
		(void)!hashmap_put(&r->fibers, (uint32_t)(w->src - r->sources), slot->a,
				   slot->name);
	return segment_open(w, r->segs[r->n_segs - 1].nstid, slot->a);
}

static enum ringevent_kind kind_of(uint8_t kind)
{
	static const uint8_t kinds[_RING_KIND_MAX] = {
		[RING_THREAD] = RINGEVENT_THREAD,
		[RING_REGION_BEGIN] = RINGEVENT_REGION_BEGIN,
		[RING_REGION_END] = RINGEVENT_REGION_END,
		[RING_INSTANT] = RINGEVENT_INSTANT,
		[RING_LOG] = RINGEVENT_LOG,
		[RING_COUNTER] = RINGEVENT_COUNTER,
		[RING_TASK_BEGIN] = RINGEVENT_TASK_BEGIN,
		[RING_TASK_END] = RINGEVENT_TASK_END,
		[RING_FLOW] = RINGEVENT_FLOW,
		[RING_FIBER] = RINGEVENT_FIBER,
		[RING_THREAD_NAME] = RINGEVENT_THREAD,
		[RING_TRIGGER] = RINGEVENT_TRIGGER,
	};

	return kinds[kind];
}

/* When that which ends here began, 0: no such time. */
static uint64_t began_of(struct walk *w, const struct ring_slot *slot, uint8_t kind)
{
	uint64_t stamp_u, ns;

	switch (kind) {
	case RING_REGION_END:
	case RING_TRIGGER:
		stamp_u = slot->a;
		break;
	case RING_TASK_END:
		stamp_u = slot->b;
		break;
	default:
		return 0;
	}
	return ringclock_place(&w->src->clock, stamp_u, &ns) ? ns : 0;
}

static bool slot_sane(const struct ring_slot *slot, uint8_t kind)
{
	switch (kind) {
	case RING_FLOW:
		return slot->a != 0 && slot->b <= RING_FLOW_END;
	case RING_TASK_BEGIN:
	case RING_TASK_END:
		return slot->a != 0;
	default:
		return true;
	}
}

/*
 * What is before the first record: that something was lost, and whose the ring is, where no record
 * says it. Their time is set when all of the ring are known.
 */
static bool edge_add(struct walk *w, const struct ringwindow *window, bool thread_told)
{
	const struct ringrec lost = {.kind = RINGEVENT_LOST,
		.slot = RINGREC_NO_SLOT,
		.began = window->overwritten,
		.flags = window->overwritten ? 0 : RINGREC_DROPPED};
	const struct ringrec thread = {.kind = RINGEVENT_THREAD,
		.slot = RINGREC_NO_SLOT,
		.flags = thread_told ? RINGREC_DROPPED : 0};

	return record_add(w, &lost) && record_add(w, &thread);
}

static bool on_record(struct walk *w, const struct ringwindow *window,
		      const struct ringwindow_record *record)
{
	const struct ring_slot *slot = &record->slot;
	struct ringrec rec = {.kind = (uint8_t)kind_of(record->kind),
		.name = slot->name,
		.slot = (uint32_t)(record->index & (window->slots - 1))};

	if (!slot_sane(slot, record->kind)) {
		w->r->losses.malformed++;
		return true;
	}
	if (!ringclock_place(&w->src->clock, slot->stamp, &rec.ts)) {
		w->r->losses.stamps++;
		return true;
	}
	if (rec.ts < w->highest && w->highest - rec.ts > RINGEVENTS_DISORDER_NS)
		w->disorder = true;
	if (rec.ts > w->highest)
		w->highest = rec.ts;
	rec.began = began_of(w, slot, record->kind);
	if (record->kind == RING_THREAD && !on_thread(w, slot))
		return false;
	if (w->r->n_recs == w->first_rec && !edge_add(w, window, record->kind == RING_THREAD))
		return false;
	if (record->kind == RING_FIBER && !on_fiber(w, slot))
		return false;
	return record_add(w, &rec);
}

/* ---- the end of a ring */

/* What the daemon calls a thread; where it does not say, a number that no thread has. */
static uint32_t tid_of(struct ringevents *r, const struct ringsource *src,
		       const struct ringseg *seg)
{
	const uint32_t nstid = seg->nstid;
	/* a writer that nobody knows is another one in each ring */
	const uint64_t id = nstid ? nstid : UINT64_C(1) << 32 | seg->ring;
	uint32_t tid = hashmap_index(&r->tids, seg->source, id);

	if (tid)
		return tid;
	if (src->same_tids && nstid > 0 && nstid <= MAX_TID)
		return nstid;
	if (r->n_made == RINGEVENTS_MAX_STACKS)
		return 0;
	tid = RINGEVENT_TID_MADE + r->n_made;
	if (hashmap_put(&r->tids, seg->source, id, tid) < 0)
		return 0;
	r->n_made++;
	return tid;
}

static uint32_t stack_of(struct ringevents *r, const struct ringseg *seg)
{
	const uint32_t group = seg->source * 2 + (seg->fiber != 0);
	const uint64_t id = seg->fiber ? seg->fiber : seg->tid;
	const uint32_t known = hashmap_index(&r->stacks, group, id);

	if (known)
		return known - 1;
	if (r->n_stacks == RINGEVENTS_MAX_STACKS ||
	    hashmap_put(&r->stacks, group, id, r->n_stacks + 1) < 0)
		return RINGSEG_NO_STACK;
	return r->n_stacks++;
}

/*
 * Whether the directory speaks of the writer of these records. It was copied after them: somebody
 * else may have taken the ring over since, later than the last of them.
 */
static bool entry_known(const struct walk *w, const struct ring_entry *entry_u)
{
	uint64_t claimed;

	return !ringclock_place(&w->src->clock, entry_u->claimed, &claimed) ||
	       claimed <= w->highest;
}

static void segments_finish(struct walk *w)
{
	struct ringevents *r = w->r;
	struct ring_entry entry_u;
	bool known;

	ringfile_entry(w->src->file, w->ring, &entry_u);
	known = entry_known(w, &entry_u);
	for (size_t i = w->first_seg; i < r->n_segs; i++) {
		struct ringseg *seg = &r->segs[i];

		if (!w->thread_seen && known)
			seg->nstid = entry_u.tid;
		if (!w->thread_seen && !w->fiber_seen && known)
			seg->fiber = entry_u.fiber;
		seg->tid = tid_of(r, w->src, seg);
		seg->stack = seg->tid ? stack_of(r, seg) : RINGSEG_NO_STACK;
	}
}

/* Takes out what cannot be used, and gives the two records of the edge their time. */
static void records_finish(struct walk *w)
{
	struct ringevents *r = w->r;
	const size_t first = w->first_rec, real = first + 2;
	uint64_t oldest = UINT64_MAX;
	struct ring_entry entry_u;
	size_t kept = real;

	if (r->n_recs == first)
		return;
	for (size_t i = real; i < r->n_recs; i++) {
		const struct ringrec rec = r->recs[i];

		if (rec.flags & RINGREC_DROPPED) {
			r->losses.stamps++;
		} else if (r->segs[rec.seg].stack == RINGSEG_NO_STACK) {
			r->losses.over_limits++;
		} else {
			r->recs[kept++] = rec;
			if (rec.ts < oldest)
				oldest = rec.ts;
		}
	}
	r->n_recs = kept;
	if (kept == real) {
		r->n_recs = first;
		return;
	}
	r->recs[first].ts = r->recs[first + 1].ts = oldest;
	if (r->segs[r->recs[first].seg].stack == RINGSEG_NO_STACK)
		r->recs[first].flags = r->recs[first + 1].flags = RINGREC_DROPPED;
	/* of the present writer alone the directory knows the name */
	ringfile_entry(w->src->file, w->ring, &entry_u);
	if (!w->thread_seen && entry_known(w, &entry_u))
		r->recs[first + 1].flags |= RINGREC_NAMED;
}

static void read_ring(struct ringevents *r, struct ringsource *src, uint32_t ring)
{
	struct walk w = {
		.r = r, .src = src, .ring = ring, .first_rec = r->n_recs, .first_seg = r->n_segs};
	struct ringwindow_record record;
	struct ringwindow window;

	ringwindow_init(&window, src->file, ring);
	if (!segment_open(&w, 0, 0))
		w.full = true;
	while (!w.full && ringwindow_next(&window, &record))
		if (!on_record(&w, &window, &record))
			w.full = true;
	count_add(&r->losses.overwritten, window.overwritten);
	r->losses.torn += window.torn;
	r->losses.malformed += window.malformed;
	if (w.full)
		count_add(&r->losses.over_memory, 1 + window.end - window.next);
	if (w.disorder)
		ringevents_drop_disorder(r, w.first_rec + 2);
	segments_finish(&w);
	records_finish(&w);
	if (r->n_recs == w.first_rec)
		r->n_segs = w.first_seg;
}

/* ---- a file */

static int source_init(struct ringevents *r, struct ringsource *ret, struct ringfile *f)
{
	const struct ringfile_header *h = ringfile_header(f);
	struct ringsource src = {.pid = h->pid, .same_tids = h->nspid == 0 || h->nspid == h->pid};
	struct ring_header program_u;
	int r2;

	ringfile_program(f, &program_u);
	src.names = calloc(h->names_max, sizeof(*src.names));
	if (!src.names)
		return -ENOMEM;
	r2 = ringclock_init(&src.clock, h, r->brackets, r->n_brackets, program_u.started);
	if (r2 < 0) {
		free(src.names);
		return r2;
	}
	count_add(&r->losses.lost_events, program_u.lost_events);
	count_add(&r->losses.lost_names, program_u.lost_names);
	count_add(&r->losses.lost_long, program_u.lost_long);
	count_add(&r->requests_suppressed, program_u.requests_suppressed);
	for (size_t i = 0; i < RING_THRESHOLDS; i++)
		count_add(&r->requests_suppressed, program_u.suppressed[i]);
	r->losses.rings += ringfile_rings_invalid(f);
	if (h->flags & RINGFILE_CUT)
		r->losses.rings_cut++;
	src.file = f;
	*ret = src;
	return 0;
}

/* The daemon knows what it calls the present writers. */
static void learn_tids(struct ringevents *r, const struct ringsource *src)
{
	const uint32_t source = (uint32_t)(src - r->sources);

	if (src->same_tids)
		return;
	for (uint32_t i = 0; i < ringfile_n_rings(src->file); i++) {
		const uint32_t tid = ringfile_ring(src->file, i)->host_tid;
		struct ring_entry entry_u;

		ringfile_entry(src->file, i, &entry_u);
		if (tid == 0 || tid > MAX_TID || entry_u.tid == 0)
			continue;
		if (hashmap_put(&r->tids, source, entry_u.tid, tid) < 0)
			return;
	}
}

int ringevents_add(struct ringevents *r, int fd)
{
	_cleanup_(ringfile_freep) struct ringfile *f = NULL;
	struct ringsource *sources, *src;
	int ret = ringfile_read(fd, r->budget, &f);

	if (ret == RINGFILE_E_MEMORY) {
		r->losses.files_over_memory++;
		return 0;
	}
	if (ret > 0) {
		r->losses.files++;
		return RINGEVENTS_E_INVALID;
	}
	if (ret < 0)
		return ret;
	sources = reallocarray(r->sources, r->n_sources + 1, sizeof(*sources));
	if (!sources)
		return -ENOMEM;
	r->sources = sources;
	src = &sources[r->n_sources];
	ret = source_init(r, src, f);
	if (ret < 0)
		return ret;
	f = NULL; /* the source's now */
	r->n_sources++;
	learn_tids(r, src);
	r->n_rings += ringfile_n_rings(src->file);
	for (uint32_t i = 0; i < ringfile_n_rings(src->file); i++)
		read_ring(r, src, i);
	return 0;
}
