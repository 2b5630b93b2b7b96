// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/pt/events.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "common/base/raw_clock.h"
#include "common/bundle/perfabi.h"
#include "daemon/backend/pt/budget.h"
#include "daemon/backend/pt/resume.h"
#include "daemon/base/closer.h"

/*
 * A look at a process that finds no new thread ends the search; a process that makes them faster
 * than that is left as it is.
 */
#define LOOKS_MAX 64

/* ---- opening */

static void batch_close(struct pt_batch *batch)
{
	for (int k = 0; k < PT_EVENT_KINDS; k++)
		eventset_close(&batch->sets[k]);
	free(batch->resumable);
	batch->resumable = NULL;
	free(batch->tids);
	batch->tids = NULL;
}

/*
 * A thread that has come since the last look has its tracing event by inheritance, on all CPUs or
 * on those that were opened when it was created.
 */
static int open_batch(const struct pt_events *events, size_t aux_bytes, const pid_t *tids, size_t n,
		      const atomic_bool *cancel, struct pt_batch *ret)
{
	const struct pt_batch *first = events->first;
	_cleanup_(batch_close) struct pt_batch batch = {0};
	struct eventset_spec spec = {.subjects = tids,
				     .n_subjects = n,
				     .to_come = events->to_come,
				     .cancel = cancel};
	int r;

	spec.attr = events->attrs[PT_EVENT_TRACE];
	if (first) {
		/*
		 * Of a CPU that was offline when they were opened, and is not to come, these
		 * threads have no event either.
		 */
		spec.join = spec.cpus_of = &first->sets[PT_EVENT_TRACE];
		spec.busy_is_covered = true;
	} else {
		spec.ring_bytes = PT_DATA_RING_BYTES;
		spec.aux_bytes = aux_bytes;
	}
	r = eventset_open(&spec, &batch.sets[PT_EVENT_TRACE]);
	if (r < 0)
		return r;
	/* Those that threads have inherited meanwhile get it with them. */
	r = events->filter ? eventset_set_filter(&batch.sets[PT_EVENT_TRACE], events->filter) : 0;
	if (r < 0)
		return r == -ENOMEM ? r : -ERANGE;
	spec.attr = events->attrs[PT_EVENT_SIDE];
	spec.busy_is_covered = false;
	spec.aux_bytes = 0;
	/* A CPU has the same index in both. */
	spec.cpus_of = &batch.sets[PT_EVENT_TRACE];
	if (first) {
		spec.join = &first->sets[PT_EVENT_SIDE];
	} else {
		spec.ring_bytes = pt_side_ring_bytes(aux_bytes);
		spec.overwrite = true;
	}
	r = eventset_open(&spec, &batch.sets[PT_EVENT_SIDE]);
	if (r < 0)
		return r;
	if (tids) {
		batch.tids = malloc(n * sizeof(*tids));
		if (!batch.tids)
			return -ENOMEM;
		memcpy(batch.tids, tids, n * sizeof(*tids));
	}
	*ret = batch;
	batch = (struct pt_batch){0};
	return 0;
}

/* From then on it is frozen and let go with the others. */
static int adopt(struct pt_events *events, struct pt_batch *opened)
{
	const struct eventset *trace = &opened->sets[PT_EVENT_TRACE];
	struct pt_batch *batch = malloc(sizeof(*batch));
	bool ended;

	if (!batch)
		return -ENOMEM;
	*batch = *opened;
	(void)pthread_mutex_lock(&events->switching);
	STAILQ_INSERT_TAIL(&events->batches, batch, link);
	(void)pthread_mutex_lock(&events->lock);
	for (int k = 0; k < PT_EVENT_KINDS; k++)
		events->n_fds += batch->sets[k].n_fds;
	ended = events->ended;
	(void)pthread_mutex_unlock(&events->lock);
	/* At first all are found, then all run. */
	for (size_t cpu = 0; events->stopped_ns && !ended && cpu < trace->n_cpus; cpu++)
		if (!events->stopped_ns[cpu])
			eventset_ioctl_cpu(trace, cpu, PERF_EVENT_IOC_ENABLE);
	(void)pthread_mutex_unlock(&events->switching);
	if (!events->first)
		events->first = batch;
	return 0;
}

/* `tids` NULL: the machine's CPUs. */
static int add_batch(struct pt_events *events, size_t aux_bytes, const pid_t *tids, size_t n,
		     const atomic_bool *cancel)
{
	struct pt_batch batch = {0};
	int r;

	r = open_batch(events, aux_bytes, tids, n, cancel, &batch);
	if (r == 0) {
		r = adopt(events, &batch);
		if (r < 0)
			batch_close(&batch);
	}
	return r;
}

/* One look: 1: it has opened events, so some thread was not covered; 0: it has not; -errno. */
static int look(struct pt_events *events, size_t aux_bytes, pt_threads_fn threads, void *arg,
		const atomic_bool *cancel)
{
	_cleanup_free_ pid_t *tids = NULL;
	size_t n;
	int r;

	r = threads(arg, &tids, &n);
	if (r < 0)
		return r;
	n = pid_set_keep_new(&events->tids, tids, n);
	if (n == 0)
		return 0;
	r = add_batch(events, aux_bytes, tids, n, cancel);
	if (r == -ESRCH)
		/* All were covered, or have ended. */
		return events->first ? pid_set_add(&events->tids, tids, n) : r;
	if (r == 0)
		r = pid_set_add(&events->tids, tids, n);
	return r < 0 ? r : 1;
}

static int look_until_covered(struct pt_events *events, size_t aux_bytes, pt_threads_fn threads,
			      void *arg, const atomic_bool *cancel)
{
	int r = 1;

	if (!threads)
		return add_batch(events, aux_bytes, NULL, 0, cancel);
	for (int i = 0; r > 0 && i < LOOKS_MAX; i++)
		r = look(events, aux_bytes, threads, arg, cancel);
	return r < 0 ? r : 0;
}

struct remains {
	struct resume_sets resumes;
	struct pt_batches batches;
};

/* With a closer what is large is closed by its thread. */
static void close_batches(struct pt_batches *batches, struct closer *closer)
{
	struct pt_batch *batch;

	while ((batch = STAILQ_FIRST(batches)) != NULL) {
		STAILQ_REMOVE_HEAD(batches, link);
		if (closer)
			eventset_close_all(batch->sets, PT_EVENT_KINDS, closer);
		batch_close(batch);
		free(batch);
	}
}

static void close_remains(void *data)
{
	struct remains *remains = *(struct remains **)data;

	resume_sets_close(&remains->resumes);
	close_batches(&remains->batches, NULL);
	free(remains);
}

/*
 * Behind what others have joined to their groups, which waits in the same queue: as struct
 * pausable_ops says. False: no memory.
 */
static bool close_in_order(struct pt_events *events, struct closer *closer)
{
	struct remains *remains = calloc(1, sizeof(*remains));

	if (!remains)
		return false;
	pt_resume_free(take_ptr(events->resume), &remains->resumes);
	STAILQ_INIT(&remains->batches);
	STAILQ_CONCAT(&remains->batches, &events->batches);
	closer_call(closer, close_remains, &remains, sizeof(remains), events->n_fds);
	return true;
}

/*
 * `closer` NULL: what is open is closed by this thread, which may wait. The closer is the loop's.
 */
static void destroy(struct pt_events *events, struct closer *closer)
{
	struct resume_sets resumes;

	if (!events->resume || !closer || !close_in_order(events, closer)) {
		pt_resume_free(events->resume, &resumes);
		resume_sets_close(&resumes);
		close_batches(&events->batches, closer);
	}
	(void)pthread_mutex_destroy(&events->lock);
	(void)pthread_mutex_destroy(&events->switching);
	(void)pthread_mutex_destroy(&events->growing);
	pid_set_fini(&events->tids);
	free(events->records);
	free(events->drained);
	free(events->stopped_ns);
	free(events);
}

/* Whether the kernel may have looked up a thread of somebody else. */
static bool somebody_elses(const struct pt_events *events, pt_threads_fn threads, void *arg)
{
	_cleanup_free_ pid_t *tids = NULL;
	size_t n = 0;

	if (threads(arg, &tids, &n) < 0)
		n = 0;
	return pid_set_is_reused(&events->tids, tids, n);
}

int pt_events_open(const struct perf_event_attr attrs[PT_EVENT_KINDS], const char *filter,
		   bool to_come, size_t aux_bytes, struct closer *closer, pt_threads_fn threads,
		   void *arg, const atomic_bool *cancel, struct pt_events **ret)
{
	struct pt_events *events = calloc(1, sizeof(*events));
	const struct pt_batch *batch;
	uint64_t width;
	int r;

	if (!events)
		return -ENOMEM;
	events->refs = 1;
	events->closer = closer;
	events->of_cpus = !threads;
	events->to_come = to_come;
	memcpy(events->attrs, attrs, sizeof(events->attrs));
	(void)pthread_mutex_init(&events->lock, NULL);
	(void)pthread_mutex_init(&events->switching, NULL);
	(void)pthread_mutex_init(&events->growing, NULL);
	STAILQ_INIT(&events->batches);
	events->begin = timeconv_now(&width);
	events->filter = filter;
	r = look_until_covered(events, aux_bytes, threads, arg, cancel);
	events->filter = NULL;
	if (r == -ESRCH && events->first)
		r = 0; /* it has ended since: its trace is there */
	if (r == 0) {
		events->stopped_ns = calloc(pt_events_cpus(events), sizeof(*events->stopped_ns));
		events->records = malloc(PT_STARTS_BYTES + PT_GAP_RECORDS_BYTES);
		events->drained = malloc(PT_DATA_RING_BYTES);
		r = events->stopped_ns && events->records && events->drained ? 0 : -ENOMEM;
	}
	if (r == 0 && threads && somebody_elses(events, threads, arg))
		r = -EAGAIN;
	if (r < 0) {
		destroy(events, NULL);
		return r;
	}
	STAILQ_FOREACH(batch, &events->batches, link)
		eventset_ioctl(&batch->sets[PT_EVENT_TRACE], PERF_EVENT_IOC_ENABLE);
	*ret = events;
	return 0;
}

int pt_events_grow(struct pt_events *events, const char *filter, pt_threads_fn threads, void *arg,
		   const atomic_bool *cancel)
{
	int r;

	/* Targets that share the events may both have new threads. */
	(void)pthread_mutex_lock(&events->growing);
	events->filter = filter;
	r = look_until_covered(events, 0, threads, arg, cancel);
	events->filter = NULL;
	(void)pthread_mutex_unlock(&events->growing);
	return r;
}

size_t pt_events_keep_new(struct pt_events *events, pid_t *pids, size_t n)
{
	(void)pthread_mutex_lock(&events->growing);
	n = pid_set_keep_new(&events->tids, pids, n);
	(void)pthread_mutex_unlock(&events->growing);
	return n;
}

void pt_events_forget(struct pt_events *events)
{
	struct pt_batches gone = STAILQ_HEAD_INITIALIZER(gone);
	struct pt_batch *first, *batch;

	/*
	 * Until they are closed: a thread that still has one would be taken for one that is
	 * covered.
	 */
	(void)pthread_mutex_lock(&events->growing);
	(void)pthread_mutex_lock(&events->switching);
	(void)pthread_mutex_lock(&events->lock);
	first = STAILQ_FIRST(&events->batches);
	STAILQ_REMOVE_HEAD(&events->batches, link);
	STAILQ_CONCAT(&gone, &events->batches);
	STAILQ_INSERT_HEAD(&events->batches, first, link);
	STAILQ_FOREACH(batch, &gone, link)
		for (int k = 0; k < PT_EVENT_KINDS; k++)
			events->n_fds -= batch->sets[k].n_fds;
	(void)pthread_mutex_unlock(&events->lock);
	(void)pthread_mutex_unlock(&events->switching);
	pid_set_fini(&events->tids);
	close_batches(&gone, NULL);
	(void)pthread_mutex_unlock(&events->growing);
}

struct pt_events *pt_events_ref(struct pt_events *events)
{
	events->refs++;
	return events;
}

struct pt_events *pt_events_put(struct pt_events *events)
{
	if (events && --events->refs == 0)
		destroy(events, events->closer);
	return NULL;
}

/* ---- stopping and going on */

/* Under `switching`. */
static void ioctl_cpu(struct pt_events *events, size_t cpu, unsigned long request)
{
	const struct pt_batch *batch;

	STAILQ_FOREACH(batch, &events->batches, link)
		eventset_ioctl_cpu(&batch->sets[PT_EVENT_TRACE], cpu, request);
}

/* How many hold it still; of one that has ended, UINT_MAX. */
static unsigned int holders(struct pt_events *events)
{
	unsigned int n;

	(void)pthread_mutex_lock(&events->lock);
	n = events->ended ? UINT_MAX : events->frozen;
	(void)pthread_mutex_unlock(&events->lock);
	return n;
}

/* Under `switching`. How long it was stopped. */
static uint64_t enable_cpu(struct pt_events *events, size_t cpu)
{
	struct pt_gap gap = {.cpu = events->first->sets[PT_EVENT_TRACE].cpus[cpu],
			     .from_ns = events->stopped_ns[cpu]};

	if (!events->stopped_ns[cpu])
		return 0;
	ioctl_cpu(events, cpu, PERF_EVENT_IOC_ENABLE);
	gap.to_ns = clock_raw_ns();
	(void)pthread_mutex_lock(&events->lock);
	events->stopped_ns[cpu] = 0;
	events->gaps[events->n_gaps++ % PT_GAPS_MAX] = gap;
	events->gap_ns += gap.to_ns - gap.from_ns;
	(void)pthread_mutex_unlock(&events->lock);
	return gap.to_ns - gap.from_ns;
}

void pt_events_freeze(struct pt_events *events)
{
	(void)pthread_mutex_lock(&events->lock);
	events->frozen++;
	(void)pthread_mutex_unlock(&events->lock);
}

void pt_events_thaw(struct pt_events *events)
{
	(void)pthread_mutex_lock(&events->lock);
	events->frozen--;
	(void)pthread_mutex_unlock(&events->lock);
}

void pt_events_stop(struct pt_events *events)
{
	for (size_t cpu = 0; cpu < pt_events_cpus(events); cpu++) {
		(void)pthread_mutex_lock(&events->switching);
		if (!events->stopped_ns[cpu] && holders(events) > 0) {
			ioctl_cpu(events, cpu, PERF_EVENT_IOC_DISABLE);
			(void)pthread_mutex_lock(&events->lock);
			events->stopped_ns[cpu] = clock_raw_ns();
			(void)pthread_mutex_unlock(&events->lock);
		}
		(void)pthread_mutex_unlock(&events->switching);
	}
}

void pt_events_go_on(struct pt_events *events)
{
	for (size_t cpu = 0; cpu < pt_events_cpus(events); cpu++) {
		(void)pthread_mutex_lock(&events->switching);
		if (holders(events) == 0)
			(void)enable_cpu(events, cpu);
		(void)pthread_mutex_unlock(&events->switching);
	}
}

void pt_events_stop_again(struct pt_events *events, size_t index)
{
	(void)pthread_mutex_lock(&events->switching);
	if (events->stopped_ns[index])
		ioctl_cpu(events, index, PERF_EVENT_IOC_DISABLE);
	(void)pthread_mutex_unlock(&events->switching);
}

uint64_t pt_events_resume_cpu(struct pt_events *events, size_t index)
{
	uint64_t ns = 0;

	(void)pthread_mutex_lock(&events->switching);
	if (holders(events) == 1)
		ns = enable_cpu(events, index);
	(void)pthread_mutex_unlock(&events->switching);
	return ns;
}

void pt_events_use(struct pt_events *events)
{
	events->users++;
}

bool pt_events_leave(struct pt_events *events)
{
	if (--events->users > 0)
		return false;
	(void)pthread_mutex_lock(&events->lock);
	events->ended = true;
	(void)pthread_mutex_unlock(&events->lock);
	return true;
}

/* ---- the tracing events' own rings */

/* As long as there is room for its kind. */
static void keep_record(struct pt_events *events, const struct perf_event_header *h, size_t max,
			size_t *n)
{
	if (*n + h->size > max)
		return;
	memcpy(events->records + events->n_records, h, h->size);
	events->n_records += h->size;
	*n += h->size;
}

static void take_record(struct pt_events *events, const struct perf_event_header *h)
{
	const struct perfabi_aux *aux = (const void *)h;
	const struct perfabi_lost *lost = (const void *)h;

	switch (h->type) {
	case PERF_RECORD_ITRACE_START:
		/* Later ones are of threads that have switched in, which the dummies record. */
		keep_record(events, h, PT_STARTS_BYTES, &events->n_starts);
		break;
	case PERF_RECORD_AUX:
		if (h->size < sizeof(*aux) ||
		    !(aux->flags & (PERF_AUX_FLAG_TRUNCATED | PERF_AUX_FLAG_PARTIAL)))
			break;
		events->losses.truncated += (aux->flags & PERF_AUX_FLAG_TRUNCATED) != 0;
		events->losses.partial += (aux->flags & PERF_AUX_FLAG_PARTIAL) != 0;
		keep_record(events, h, PT_GAP_RECORDS_BYTES, &events->n_gap_records);
		break;
	case PERF_RECORD_LOST:
		if (h->size >= sizeof(*lost))
			events->losses.records += lost->lost;
		break;
	}
}

void pt_events_drain(struct pt_events *events)
{
	const struct eventset *set = &events->first->sets[PT_EVENT_TRACE];

	for (size_t cpu = 0; cpu < set->n_cpus; cpu++) {
		const struct perf_event_header *h;
		size_t n = 0;

		if (set->rings[cpu].base)
			n = ring_drain(&set->rings[cpu], events->drained, PT_DATA_RING_BYTES);
		for (size_t at = 0; at < n; at += h->size) {
			h = (const void *)(events->drained + at);
			take_record(events, h);
		}
	}
}

/* ---- asking */

/* Of one ring of switches: 0 if it has not come around. */
static int oldest_of(const struct ring *ring, uint64_t *ret_ns)
{
	_cleanup_(ring_copy_fini) struct ring_copy copy = RING_COPY_INIT;
	_cleanup_(ring_records_fini) struct ring_records records = {0};
	struct perfabi_sample_id id;
	int r;

	r = ring_read(ring, &copy, &records);
	if (r < 0)
		return r;
	*ret_ns = 0;
	for (size_t i = records.n; (copy.wrapped || records.malformed) && !*ret_ns && i > 0; i--) {
		const uint8_t *record = copy.data + records.offsets[i - 1];
		const struct perf_event_header *h = (const void *)record;

		if (h->size < sizeof(*h) + sizeof(id))
			continue;
		memcpy(&id, record + h->size - sizeof(id), sizeof(id));
		*ret_ns = id.time;
	}
	return 0;
}

int pt_events_look_back(const struct pt_events *events, uint64_t armed_ns, uint64_t *ret_ns)
{
	const struct eventset *set = &events->first->sets[PT_EVENT_SIDE];
	uint64_t oldest = armed_ns, ns;
	int r;

	for (size_t cpu = 0; cpu < set->n_cpus; cpu++) {
		if (!set->rings[cpu].base)
			continue;
		r = oldest_of(&set->rings[cpu], &ns);
		if (r < 0)
			return r;
		if (ns > oldest)
			oldest = ns;
	}
	*ret_ns = oldest;
	return 0;
}

uint64_t pt_events_blind_ns(struct pt_events *events)
{
	uint64_t ns;

	(void)pthread_mutex_lock(&events->lock);
	ns = events->gap_ns;
	(void)pthread_mutex_unlock(&events->lock);
	return ns;
}

size_t pt_events_fds(struct pt_events *events)
{
	size_t n;

	(void)pthread_mutex_lock(&events->lock);
	n = events->n_fds;
	(void)pthread_mutex_unlock(&events->lock);
	return n;
}

size_t pt_events_bytes(const struct pt_events *events)
{
	const struct eventset *sets = events->first->sets;

	return sets[PT_EVENT_TRACE].ring_bytes + sets[PT_EVENT_SIDE].ring_bytes;
}

size_t pt_events_cpus(const struct pt_events *events)
{
	return events->first->sets[PT_EVENT_TRACE].n_cpus;
}
