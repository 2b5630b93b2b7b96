// SPDX-License-Identifier: Apache-2.0
#include "daemon/target/sideband_events.h"

#include <errno.h>
#include <event2/event.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/queue.h>
#include <time.h>

#include "common/base/procfs.h"
#include "common/base/raw_clock.h"
#include "common/bundle/perfabi.h"
#include "daemon/base/loop.h"
#include "daemon/perf/eventset.h"
#include "daemon/target/sideband_log.h"

#define CPU_RING_BYTES (512u << 10)
#define TASK_RING_BYTES (64u << 10)
#define WATCH_AGAIN_US 100000
#define COUNT_AT_ONCE 64 /* counters, some tenths of a microsecond each */
#define RECORD_MAX 8192u /* more than the longest side-band record: a path and some numbers */

struct source;

/* The event that is polled for a ring: any that writes to it will do, until its task ends. */
struct watch {
	struct source *source;
	struct event *event;
	size_t cpu, subject;
};

/* Rings that are watched: the machine's, or one process's. */
struct source {
	LIST_ENTRY(source) link;
	struct sideband_events *events; /* NULL: not begun */
	struct eventset set;
	struct watch *watches; /* n_cpus */
	uint64_t read_format;  /* PERFABI_FORMAT_LOST where the kernel counts (6.0) */
	uint64_t lost;         /* as far as it was reported */
	bool was_full;         /* a ring of it, since its counters were begun to be read */
	size_t n_counted;      /* counters that were read since; 0: none is being read */
	uint64_t counting;     /* their sum */
	bool closed;           /* it is in `dying` */
};

struct sideband_follow {
	struct source source; /* first: freed as one */
};

struct pending {
	uint64_t time;
	size_t offset;
};

struct sideband_events {
	struct event_base *base;
	struct closer *closer;
	sideband_fn fn;
	void *arg;
	LIST_HEAD(, source) sources;
	/* closed by a callback while callers on the stack still use them */
	LIST_HEAD(, source) dying;
	struct source *machine;    /* NULL: not running */
	/* the budget was over before all was drained, or a ring is not watched */
	struct event *more;
	unsigned int busy;         /* the number of functions on the stack that use sources */
	bool behind; /* the last drain had no time for all */
	bool draining, counted;
	bool unwatched; /* no memory to watch a ring */
	uint64_t lost;
	uint64_t whole_ns; /* until then nothing was */
	/* What one round drains, and its order. Untouched pages of it cost nothing. */
	uint8_t *buf;
	size_t room, held; /* bytes at its begin for the next round */
	struct pending *pending;
	size_t pending_room;
};

void sideband_events_attr(struct perf_event_attr *ret)
{
	*ret = (struct perf_event_attr){
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(*ret),
		.config = PERF_COUNT_SW_DUMMY,
		.sample_type = PERFABI_SAMPLE_ID_TYPE,
		.sample_id_all = 1,
		.mmap = 1,
		.mmap2 = 1,
		.comm = 1,
		.comm_exec = 1,
		.task = 1,
		.namespaces = 1,
		.exclude_kernel = 1,
		.exclude_hv = 1,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC_RAW,
		/* A file must be opened while its process still is there: no batching. */
		.watermark = 1,
		.wakeup_watermark = 1,
	};
}

static void on_more(evutil_socket_t fd, short what, void *arg);

int sideband_events_new(struct event_base *base, struct closer *closer, sideband_fn fn, void *arg,
			struct sideband_events **ret)
{
	struct sideband_events *events = calloc(1, sizeof(*events));

	if (!events)
		return -ENOMEM;
	events->base = base;
	events->closer = closer;
	events->fn = fn;
	events->arg = arg;
	events->more = evtimer_new(base, on_more, events);
	if (!events->more) {
		free(events);
		return -ENOMEM;
	}
	*ret = events;
	return 0;
}

struct sideband_events *sideband_events_free(struct sideband_events *events)
{
	if (!events)
		return NULL;
	sideband_events_stop(events);
	event_free(events->more);
	free(events->buf);
	free(events->pending);
	free(events);
	return NULL;
}

bool sideband_events_running(const struct sideband_events *events)
{
	return events->machine != NULL;
}

uint64_t sideband_events_whole_ns(const struct sideband_events *events)
{
	return events->whole_ns;
}

uint64_t sideband_events_lost(const struct sideband_events *events)
{
	return events->lost;
}

static int pending_cmp(const void *a, const void *b)
{
	const struct pending *x = a, *y = b;

	if (x->time != y->time)
		return x->time < y->time ? -1 : 1;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int pending_add(struct sideband_events *events, size_t n, uint64_t time, size_t offset)
{
	if (n == events->pending_room) {
		size_t room = n ? n * 2 : 256;
		struct pending *bigger = reallocarray(events->pending, room, sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		events->pending = bigger;
		events->pending_room = room;
	}
	events->pending[n] = (struct pending){.time = time, .offset = offset};
	return 0;
}

static void dispatch(struct sideband_events *events, const struct perf_event_header *h,
		     uint64_t time)
{
	/* pid is the first field of all that follow */
	const struct perfabi_task *task = (const void *)h;
	const struct perfabi_lost *lost = (const void *)h;
	struct sideband_record record = {.header = h, .time = time};

	switch (h->type) {
	case PERF_RECORD_LOST:
		/* Where the kernel counts, report_lost() has reported them. */
		if (h->size < sizeof(*lost) || events->counted)
			return;
		events->lost += lost->lost;
		break;
	case PERF_RECORD_FORK:
	case PERF_RECORD_EXIT:
		if (h->size < sizeof(*task))
			return;
		record.pid = task->pid;
		break;
	case PERF_RECORD_MMAP2:
		if (h->size < sizeof(struct perfabi_mmap2) + sizeof(struct perfabi_sample_id))
			return;
		record.pid = task->pid;
		break;
	case PERF_RECORD_COMM:
	case PERF_RECORD_NAMESPACES:
		record.pid = task->pid;
		break;
	default:
		return;
	}
	events->fn(events->arg, &record);
}

size_t sideband_events_hold(uint8_t *buf, size_t used, uint64_t horizon)
{
	size_t held = 0, at, size;

	for (at = 0; at < used; at += size) {
		const struct perf_event_header *h = (const void *)(buf + at);

		size = h->size;
		if (size < sizeof(*h) + sizeof(struct perfabi_sample_id) ||
		    sideband_log_time(h) <= horizon)
			continue;
		memmove(buf + held, h, size);
		held += size;
	}
	return held;
}

static size_t drain_ring(struct sideband_events *events, struct source *source, struct ring *ring,
			 size_t used)
{
	size_t n = ring_drain(ring, events->buf + used, events->room - used);

	if (n + RECORD_MAX >= ring->size)
		source->was_full = true;
	return n;
}

/*
 * The kernel reports lost records with the next record of that ring. It may be long until there is
 * one, and what a target mapped meanwhile would be missing. So after a ring was found full its
 * counters are read. There may be tens of thousands: false if the time is over before all are read.
 */
static bool report_lost(struct sideband_events *events, struct source *source, uint64_t deadline)
{
	struct perfabi_lost record_lost = {
		.header = {.type = PERF_RECORD_LOST, .size = sizeof(record_lost)}};
	struct sideband_record record = {.header = &record_lost.header};
	const size_t total = source->set.n_subjects * source->set.n_cpus;
	uint64_t lost;

	if (source->n_counted == 0) {
		source->was_full = false;
		source->counting = 0;
	}
	while (source->n_counted < total) {
		source->counting += eventset_lost_of(&source->set, source->read_format,
						     source->n_counted, COUNT_AT_ONCE);
		source->n_counted += COUNT_AT_ONCE;
		if (source->n_counted < total && loop_is_over(deadline))
			return false;
	}
	source->n_counted = 0;
	lost = source->counting;
	if (lost <= source->lost)
		return true;
	record_lost.lost = lost - source->lost;
	source->lost = lost;
	events->lost += record_lost.lost;
	record.time = clock_raw_ns();
	events->fn(events->arg, &record);
	return true;
}

static struct source *next_full(struct sideband_events *events)
{
	struct source *source;

	LIST_FOREACH(source, &events->sources, link)
		if (source->was_full || source->n_counted)
			break;
	return source;
}

/*
 * Drains all rings once. Records of one CPU are in order; those of several must be put in order. A
 * record that is newer than the begin of the round waits for the next round, because an older one
 * may come to a ring that has been read already (a fork, and what its child did on another CPU).
 */
static bool drain_round(struct sideband_events *events, uint64_t deadline)
{
	uint64_t horizon = clock_raw_ns();
	size_t used = events->held, n = 0, at;
	struct source *source;

	LIST_FOREACH(source, &events->sources, link)
		for (size_t i = 0; i < source->set.n_cpus; i++)
			if (source->set.rings[i].base)
				used += drain_ring(events, source, &source->set.rings[i], used);
	for (at = 0; at < used;) {
		const struct perf_event_header *h = (const void *)(events->buf + at);

		if (h->size >= sizeof(*h) + sizeof(struct perfabi_sample_id) &&
		    sideband_log_time(h) <= horizon) {
			if (pending_add(events, n, sideband_log_time(h), at) < 0)
				events->lost++;
			else
				n++;
		}
		at += h->size;
	}
	if (n > 1)
		qsort(events->pending, n, sizeof(*events->pending), pending_cmp);
	for (size_t i = 0; i < n; i++)
		dispatch(events, (const void *)(events->buf + events->pending[i].offset),
			 events->pending[i].time);
	events->held = sideband_events_hold(events->buf, used, horizon);
	/* Begins at the front after each, because the callback may close any of them. */
	while ((source = next_full(events)) != NULL)
		if (!report_lost(events, source, deadline))
			return true;
	events->whole_ns = horizon;
	return used > 0;
}

/* ---- sources that a callback closes */

static void source_free(struct source *source)
{
	free(source->watches);
	free(source);
}

static void enter(struct sideband_events *events)
{
	events->busy++;
}

static void leave(struct sideband_events *events)
{
	struct source *source;

	if (--events->busy > 0)
		return;
	while ((source = LIST_FIRST(&events->dying)) != NULL) {
		LIST_REMOVE(source, link);
		source_free(source);
	}
}

/* Closes its rings at once; frees it when no function on the stack uses it. */
static void source_close(struct source *source, struct closer *closer)
{
	struct sideband_events *events = source->events;

	for (size_t i = 0; source->watches && i < source->set.n_cpus; i++) {
		if (source->watches[i].event)
			event_free(source->watches[i].event);
		source->watches[i].event = NULL;
	}
	eventset_close_all(&source->set, 1, closer);
	source->closed = true;
	if (events)
		LIST_REMOVE(source, link);
	if (events && events->busy > 0)
		LIST_INSERT_HEAD(&events->dying, source, link);
	else
		source_free(source);
}

void sideband_events_drain(struct sideband_events *events)
{
	const struct timeval now = {0};
	uint64_t deadline = loop_deadline();
	bool more;

	/* A callback may arm or disarm, which drains. */
	if (events->draining || LIST_EMPTY(&events->sources))
		return;
	events->draining = true;
	enter(events);
	/* The first round has all that was there; the second what the first held back. */
	do
		more = drain_round(events, deadline);
	while (more && !loop_is_over(deadline));
	events->draining = false;
	events->behind = more;
	/* The kernel wakes us only once for what is there to read. */
	if (more)
		(void)event_add(events->more, &now);
	leave(events);
}

bool sideband_events_behind(const struct sideband_events *events)
{
	return events->behind;
}

static int watch_next(struct watch *watch);
static void watch_again(struct sideband_events *events);

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct watch *watch = arg;
	struct source *source = watch->source;
	struct sideband_events *events = source->events;
	struct pollfd p = {.fd = fd, .events = POLLIN};

	enter(events);
	sideband_events_drain(events);
	/* An ended task's fd is readable for ever; the ring may have other writers. */
	if (!source->closed && poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR))) {
		event_free(watch->event);
		watch->event = NULL;
		watch->subject++;
		if (watch_next(watch) < 0)
			watch_again(events);
	}
	leave(events);
}

/* Watches the ring by the next event that is open, if there is one. */
static int watch_next(struct watch *watch)
{
	const struct eventset *set = &watch->source->set;

	for (; watch->subject < set->n_subjects; watch->subject++) {
		int fd = set->fds[watch->subject * set->n_cpus + watch->cpu];

		if (fd < 0)
			continue;
		watch->event = event_new(watch->source->events->base, fd, EV_READ | EV_PERSIST,
					 on_readable, watch);
		if (watch->event && event_add(watch->event, NULL) == 0)
			return 0;
		if (watch->event)
			event_free(watch->event);
		watch->event = NULL;
		return -ENOMEM;
	}
	return 0;
}

/* Tries again to watch rings; they are drained meanwhile, too. */
static void watch_again(struct sideband_events *events)
{
	const struct timeval later = {.tv_usec = WATCH_AGAIN_US};
	struct source *source;

	events->unwatched = false;
	LIST_FOREACH(source, &events->sources, link)
		for (size_t i = 0; i < source->set.n_cpus; i++)
			if (!source->watches[i].event && watch_next(&source->watches[i]) < 0)
				events->unwatched = true;
	if (events->unwatched && !event_pending(events->more, EV_TIMEOUT, NULL))
		(void)event_add(events->more, &later);
}

static void on_more(evutil_socket_t fd, short what, void *arg)
{
	struct sideband_events *events = arg;

	sideband_events_drain(events);
	if (events->unwatched)
		watch_again(events);
}

/* Any thread: hands on no record yet. */
static int source_open(const struct eventset_spec *spec, struct source **ret)
{
	struct eventset_spec counting = *spec;
	struct source *source = calloc(1, sizeof(*source));
	int r;

	if (!source)
		return -ENOMEM;
	counting.attr.read_format = source->read_format = PERFABI_FORMAT_LOST;
	r = eventset_open(&counting, &source->set);
	if (r == -EINVAL) {
		source->read_format = 0;
		r = eventset_open(spec, &source->set);
	}
	if (r < 0) {
		free(source);
		return r;
	}
	eventset_ioctl(&source->set, PERF_EVENT_IOC_ENABLE);
	*ret = source;
	return 0;
}

static int source_begin(struct sideband_events *events, struct source *source)
{
	const struct timeval now = {0};
	size_t need =
		source->set.ring_bytes + (events->machine ? events->machine->set.ring_bytes : 0);
	int r;

	source->watches = calloc(source->set.n_cpus, sizeof(*source->watches));
	if (!source->watches)
		return -ENOMEM;
	/* Room for all rings at once, so that one round sees everything. */
	if (need > events->room) {
		uint8_t *bigger = realloc(events->buf, need);

		if (!bigger)
			return -ENOMEM;
		events->buf = bigger;
		events->room = need;
	}
	source->events = events;
	events->counted = source->read_format != 0;
	LIST_INSERT_HEAD(&events->sources, source, link);
	for (size_t i = 0; i < source->set.n_cpus; i++) {
		source->watches[i] = (struct watch){.source = source, .cpu = i};
		r = watch_next(&source->watches[i]);
		if (r < 0) {
			LIST_REMOVE(source, link);
			source->events = NULL;
			return r;
		}
	}
	/* It has recorded since it was opened. */
	return event_add(events->more, &now) < 0 ? -ENOMEM : 0;
}

int sideband_events_start(struct sideband_events *events)
{
	struct eventset_spec spec = {
		.ring_bytes = CPU_RING_BYTES, .ring_bytes_min = 64u << 10, .overwrite = false};
	struct source *source;
	int r;

	if (events->machine)
		return 0;
	sideband_events_attr(&spec.attr);
	spec.attr.disabled = 1;
	r = source_open(&spec, &source);
	if (r < 0)
		return r;
	r = source_begin(events, source);
	if (r < 0) {
		source_close(source, events->closer);
		return r;
	}
	events->machine = source;
	return 0;
}

void sideband_events_stop(struct sideband_events *events)
{
	if (!events->machine)
		return;
	source_close(events->machine, events->closer);
	events->machine = NULL;
}

int sideband_events_restart(struct sideband_events *events)
{
	struct source *old = events->machine;
	int r;

	if (!old)
		return 0;
	events->machine = NULL;
	r = sideband_events_start(events);
	if (r < 0) {
		events->machine = old;
		return r;
	}
	/* What both have is seen twice, which says nothing new. */
	sideband_events_drain(events);
	source_close(old, events->closer);
	return 0;
}

int sideband_follow_open(int proc_dirfd, pid_t tid, bool children, const atomic_bool *cancel,
			 struct sideband_follow **ret)
{
	_cleanup_free_ pid_t *tids = NULL;
	struct eventset_spec spec = {.ring_bytes = TASK_RING_BYTES,
				     .ring_bytes_min = 4096,
				     .overwrite = false,
				     .cancel = cancel};
	struct source *source;
	int r;

	if (tid) {
		tids = malloc(sizeof(*tids));
		if (!tids)
			return -ENOMEM;
		tids[0] = tid;
		spec.n_subjects = 1;
	} else {
		r = proc_tasks_read(proc_dirfd, &tids, &spec.n_subjects);
		if (r < 0)
			return r;
	}
	sideband_events_attr(&spec.attr);
	spec.attr.disabled = 1;
	spec.attr.inherit = tid == 0;
	spec.attr.inherit_thread = tid == 0 && !children;
	/* The kernel reports namespaces to CAP_PERFMON only, which rarely comes here. */
	spec.attr.namespaces = 0;
	spec.subjects = tids;
	r = source_open(&spec, &source);
	if (r < 0)
		return r;
	*ret = (struct sideband_follow *)source;
	return 0;
}

int sideband_follow_begin(struct sideband_events *events, struct sideband_follow *follow)
{
	return source_begin(events, &follow->source);
}

struct sideband_follow *sideband_follow_free(struct sideband_follow *follow, struct closer *closer)
{
	if (follow)
		source_close(&follow->source, closer);
	return NULL;
}

size_t sideband_follow_fds(const struct sideband_follow *follow)
{
	return follow->source.set.n_fds;
}

size_t sideband_follow_bytes(const struct sideband_follow *follow)
{
	return follow->source.set.ring_bytes;
}
