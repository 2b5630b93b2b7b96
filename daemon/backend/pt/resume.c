// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/pt/resume.h"

#include <errno.h>
#include <event2/event.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/raw_clock.h"
#include "common/bundle/perfabi.h"
#include "daemon/backend/pt/events.h"
#include "daemon/backend/pt/pauses.h"
#include "daemon/backend/pt/stopper.h"
#include "daemon/perf/pausable.h"

/* Whoever has paused it takes a snapshot first: the trace is to end with the hit. */
#define RESUME_AFTER_MS 10
#define LOOK_MS 100
/*
 * Of CPU time: a thread that runs is traced again after that. Whom it interrupts it costs one or
 * two thousandths; who sleeps may be waited for for long, and is to be traced when he comes back.
 */
#define PERIOD_NS 1000000
/*
 * Threads that have inherited their events may have any of their parents' by now (context_equiv()
 * of the kernel). So many are tried in one go, and for one thread; the others are stopped by the
 * daemon.
 */
#define ATTEMPTS_MAX 65536u
#define ATTEMPTS_MAX_OF_ONE 256u
#define ON_MIN_NS 1000000000ULL
/* Of what does not fit the last report is another time. */
#define RING_BYTES 16384u

/* Opened together. */
struct resume_set {
	STAILQ_ENTRY(resume_set) link;
	struct eventset set;
};

struct pt_resume {
	struct pausable pausable; /* first */
	struct pt_events *events; /* back pointer */
	struct stopper *stopper;
	struct event *timer;
	struct pt_pauses pauses;
	/* the first has the rings; under the events' `switching` and `lock`, each enough to read */
	struct resume_sets sets;
	atomic_bool wanted;
	uint64_t on_until_ns;
	bool on; /* under the events' `switching` */
};

struct resumed {
	struct perf_event_header header;
	uint32_t pid, tid;
	uint64_t time;
};

/* ---- opening */

/*
 * Which of all tracing events of the CPU, the thread's own first; of those that are, or are not,
 * resumable.
 */
struct search {
	struct pt_events *events;
	bool resumable;
	size_t left; /* attempts at others' events */
};

/* The same in all batches. */
static size_t cpu_index(const struct pt_events *events, int cpu)
{
	const struct eventset *set = &events->first->sets[PT_EVENT_TRACE];
	size_t at = 0;

	while (at < set->n_cpus && set->cpus[at] != cpu)
		at++;
	return at;
}

/* The next of them from (*batch, *subject) on, -1 at the end; `tid` 0: of any thread. */
static int next_leader(const struct search *search, size_t cpu, pid_t tid,
		       const struct pt_batch **batch, size_t *subject)
{
	for (; *batch; *batch = STAILQ_NEXT(*batch, link), *subject = 0) {
		const struct pt_batch *b = *batch;
		const struct eventset *set = &b->sets[PT_EVENT_TRACE];

		while (*subject < set->n_subjects) {
			const size_t i = (*subject)++, at = i * set->n_cpus + cpu;

			if ((!tid || b->tids[i] == tid) && set->fds[at] >= 0 &&
			    (b->resumable && b->resumable[at]) == search->resumable)
				return set->fds[at];
		}
	}
	return -1;
}

/* Under `switching`. */
static int find_leader(struct search *search, pid_t tid, int cpu, size_t attempt)
{
	const size_t at = cpu_index(search->events, cpu);
	const struct pt_batch *batch = STAILQ_FIRST(&search->events->batches);
	size_t subject = 0;
	int own, fd;

	if (at == search->events->first->sets[PT_EVENT_TRACE].n_cpus)
		return -1;
	own = next_leader(search, at, tid, &batch, &subject);
	if (own >= 0 && attempt-- == 0)
		return own;
	if (search->left == 0)
		return -1;
	search->left--;
	batch = STAILQ_FIRST(&search->events->batches);
	subject = 0;
	do
		fd = next_leader(search, at, 0, &batch, &subject);
	while (fd >= 0 && (fd == own || attempt-- > 0));
	return fd;
}

struct opening {
	struct search search;
	const pid_t *tids;
};

static int leader_without(void *arg, size_t subject, int cpu, size_t attempt)
{
	struct opening *opening = arg;
	int fd;

	(void)pthread_mutex_lock(&opening->search.events->switching);
	fd = find_leader(&opening->search, opening->tids[subject], cpu, attempt);
	(void)pthread_mutex_unlock(&opening->search.events->switching);
	return fd;
}

static struct pt_events *events_of(struct pausable *pausable)
{
	return ((struct pt_resume *)pausable)->events;
}

static void set_attr(const struct perf_event_attr *trace, struct perf_event_attr *ret)
{
	*ret = (struct perf_event_attr){
		.size = sizeof(*ret),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_TASK_CLOCK,
		/*
		 * With READ, threads that have inherited the event do not exchange it as they take
		 * turns: what is paused is the event, and it must stay with the thread that was.
		 */
		.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_READ,
		.sample_period = PERIOD_NS,
		.disabled = 1,
		.inherit = trace->inherit,
		.inherit_thread = trace->inherit_thread,
		.exclude_kernel = 1,
		.exclude_hv = 1,
		.use_clockid = trace->use_clockid,
		.clockid = trace->clockid,
		/* The rings are looked at, not waited for. */
		.watermark = 1,
		.wakeup_watermark = UINT32_MAX,
	};
	perfabi_set_aux_action(ret, PERFABI_AUX_RESUME);
}

/* Under `switching`: what has found an event to go on now. 0, -ENOMEM. */
static int mark(struct pt_events *events, const struct eventset *resumes)
{
	struct pt_batch *batch;

	STAILQ_FOREACH(batch, &events->batches, link) {
		const struct eventset *set = &batch->sets[PT_EVENT_TRACE];
		const size_t total = set->n_subjects * set->n_cpus;

		if (!batch->resumable)
			batch->resumable = calloc(total, sizeof(*batch->resumable));
		if (!batch->resumable)
			return -ENOMEM;
		/* Both have the same CPUs. */
		for (size_t i = 0; i < resumes->n_subjects * resumes->n_cpus; i++)
			for (size_t at = i % set->n_cpus; resumes->groups[i] >= 0 && at < total;
			     at += set->n_cpus)
				batch->resumable[at] |= set->fds[at] == resumes->groups[i];
	}
	return 0;
}

static bool all_resumable(const struct pt_events *events)
{
	const struct pt_batch *batch;

	STAILQ_FOREACH(batch, &events->batches, link) {
		const struct eventset *set = &batch->sets[PT_EVENT_TRACE];

		for (size_t i = 0; i < set->n_subjects * set->n_cpus; i++)
			if (set->fds[i] >= 0 && (!batch->resumable || !batch->resumable[i]))
				return false;
	}
	return true;
}

static int open_set(struct pt_events *events, const pid_t *tids, size_t n, struct resume_set *ret)
{
	struct pt_resume *resume = events->resume;
	const struct resume_set *first = STAILQ_FIRST(&resume->sets);
	struct opening opening = {.search = {.events = events, .left = ATTEMPTS_MAX}, .tids = tids};
	struct perf_event_attr attr;
	const struct eventset_spec spec = {
		.subjects = tids,
		.n_subjects = n,
		.cpus_of = &events->first->sets[PT_EVENT_TRACE],
		.leader = leader_without,
		.leader_arg = &opening,
		.grouped = &attr,
		.grouped_only = true,
		.ring_bytes = RING_BYTES,
		.join = first ? &first->set : NULL,
	};

	set_attr(&events->attrs[PT_EVENT_TRACE], &attr);
	return eventset_open(&spec, &ret->set);
}

/* Under `growing`. */
static int add_set(struct pt_events *events, const pid_t *tids, size_t n)
{
	struct pt_resume *resume = events->resume;
	struct resume_set *set = calloc(1, sizeof(*set));
	int r = set ? open_set(events, tids, n, set) : -ENOMEM;

	if (r < 0) {
		free(set);
		return r;
	}
	(void)pthread_mutex_lock(&events->switching);
	r = mark(events, &set->set);
	if (resume->on)
		eventset_ioctl(&set->set, PERF_EVENT_IOC_ENABLE);
	(void)pthread_mutex_lock(&events->lock);
	STAILQ_INSERT_TAIL(&resume->sets, set, link);
	events->n_fds += set->set.n_fds;
	(void)pthread_mutex_unlock(&events->lock);
	(void)pthread_mutex_unlock(&events->switching);
	return r;
}

/* Those that have been prepared before stay so. */
static int prepare(struct pausable *pausable, const pid_t *tids, size_t n)
{
	struct pt_events *events = events_of(pausable);
	int r = 0;

	/* Nothing else adds tracing events. */
	(void)pthread_mutex_lock(&events->growing);
	if (events->of_cpus)
		r = -EINVAL;
	else if (!all_resumable(events))
		r = add_set(events, tids, n);
	(void)pthread_mutex_unlock(&events->growing);
	return r == -ESRCH ? 0 : r; /* none of these has such an event now */
}

static int leader(struct pausable *pausable, pid_t tid, int cpu, size_t attempt)
{
	struct pt_events *events = events_of(pausable);
	struct search search = {.events = events,
				.resumable = true,
				.left = attempt < ATTEMPTS_MAX_OF_ONE};
	int fd;

	(void)pthread_mutex_lock(&events->switching);
	fd = find_leader(&search, tid, cpu, attempt);
	(void)pthread_mutex_unlock(&events->switching);
	return fd;
}

/* ---- who is paused */

static void take(struct pt_resume *resume)
{
	struct pt_events *events = resume->events;
	_Alignas(8) uint8_t buf[RING_BYTES];
	const struct resume_set *first;
	const struct eventset *set;

	/* Once it is open it stays as it is. */
	(void)pthread_mutex_lock(&events->lock);
	first = STAILQ_FIRST(&resume->sets);
	(void)pthread_mutex_unlock(&events->lock);
	set = first ? &first->set : NULL;
	for (size_t i = 0; set && i < set->n_cpus; i++) {
		const size_t n = set->rings[i].base ? ring_drain(&set->rings[i], buf, sizeof(buf))
						    : 0;
		const struct perf_event_header *h;

		for (size_t at = 0; at + sizeof(*h) <= n; at += h->size) {
			const struct resumed *s = (const void *)(buf + at);

			h = &s->header;
			if (h->size < sizeof(*h) || h->size > n - at)
				break;
			if (h->type == PERF_RECORD_SAMPLE && h->size >= sizeof(*s))
				pt_pauses_end(&resume->pauses, set->cpus[i], s->tid, s->time);
		}
	}
}

static void look_in(struct pt_resume *resume, long ms)
{
	const struct timeval tv = {.tv_usec = ms * 1000};

	if (!event_pending(resume->timer, EV_TIMEOUT, NULL))
		(void)event_add(resume->timer, &tv);
}

void pt_resume_switch(struct pt_events *events)
{
	struct pt_resume *resume = events->resume;
	const struct resume_set *set;
	bool on;

	(void)pthread_mutex_lock(&events->switching);
	on = atomic_load(&resume->wanted);
	if (on != resume->on)
		STAILQ_FOREACH(set, &resume->sets, link)
	eventset_ioctl(&set->set, on ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE);
	resume->on = on;
	(void)pthread_mutex_unlock(&events->switching);
}

/* As long as somebody is paused, and where nobody knows who is, for good. */
static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct pt_resume *resume = arg;
	bool wanted;

	take(resume);
	wanted = pt_pauses_count(&resume->pauses) > 0 || resume->pauses.unknown_ns ||
		 clock_raw_ns() < resume->on_until_ns;
	if (wanted)
		look_in(resume, LOOK_MS);
	if (wanted == atomic_load(&resume->wanted))
		return;
	atomic_store(&resume->wanted, wanted);
	stopper_switch_resumes(resume->stopper, resume->events);
}

static void paused(struct pausable *pausable, int cpu, uint32_t tid, uint64_t ns)
{
	struct pt_resume *resume = (struct pt_resume *)pausable;

	/* It may have gone on since it was paused the last time. */
	if (atomic_load(&resume->wanted))
		take(resume);
	pt_pauses_begin(&resume->pauses, cpu, tid, ns);
	/*
	 * It is let go on also if it has another number by then, as who executes a program, or
	 * nobody hears of it.
	 */
	resume->on_until_ns = clock_raw_ns() + ON_MIN_NS;
	look_in(resume, RESUME_AFTER_MS);
}

static void lost(struct pausable *pausable, uint64_t ns)
{
	struct pt_resume *resume = (struct pt_resume *)pausable;

	pt_pauses_lose(&resume->pauses, ns);
	look_in(resume, RESUME_AFTER_MS);
}

const struct pt_pauses *pt_resume_pauses(struct pt_events *events)
{
	static const struct pt_pauses none;

	if (!events->resume)
		return &none;
	take(events->resume);
	return &events->resume->pauses;
}

/* ---- life */

static void ref(struct pausable *pausable)
{
	(void)pt_events_ref(events_of(pausable));
}

static void put(struct pausable *pausable)
{
	(void)pt_events_put(events_of(pausable));
}

static struct closer *closer(struct pausable *pausable)
{
	return events_of(pausable)->closer;
}

struct pausable *pt_resume_pausable(struct pt_resume *resume)
{
	return &resume->pausable;
}

int pt_resume_new(struct event_base *base, struct stopper *stopper, struct pt_events *events)
{
	static const struct pausable_ops ops = {.ref = ref,
						.put = put,
						.closer = closer,
						.prepare = prepare,
						.leader = leader,
						.paused = paused,
						.lost = lost};
	struct pt_resume *resume;

	if (events->resume)
		return 0;
	resume = calloc(1, sizeof(*resume));
	if (!resume)
		return -ENOMEM;
	resume->pausable.ops = &ops;
	resume->events = events;
	resume->stopper = stopper;
	STAILQ_INIT(&resume->sets);
	atomic_init(&resume->wanted, false);
	resume->timer = evtimer_new(base, on_timer, resume);
	if (!resume->timer) {
		free(resume);
		return -ENOMEM;
	}
	events->resume = resume;
	return 0;
}

void pt_resume_free(struct pt_resume *resume, struct resume_sets *ret)
{
	STAILQ_INIT(ret);
	if (!resume)
		return;
	event_free(resume->timer);
	STAILQ_CONCAT(ret, &resume->sets);
	free(resume);
}

void resume_sets_close(struct resume_sets *sets)
{
	struct resume_set *set;

	while ((set = STAILQ_FIRST(sets)) != NULL) {
		STAILQ_REMOVE_HEAD(sets, link);
		eventset_close(&set->set);
		free(set);
	}
}
