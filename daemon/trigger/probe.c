// SPDX-License-Identifier: Apache-2.0
#include "daemon/trigger/probe.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "common/base/raw_clock.h"
#include "common/bundle/perfabi.h"
#include "daemon/base/closer.h"
#include "daemon/control/quota.h"
#include "daemon/perf/pausable.h"
#include "daemon/trigger/probe_internal.h"

#define UPROBE_TYPE "/sys/bus/event_source/devices/uprobe/type"
/*
 * Opens no events while more than this wait to be closed: adding and removing in turn must not use
 * up descriptors.
 */
#define CLOSING_FDS_MAX 4096u
/* After it was switched off by a thread, which may take long. */
#define SETTLE_MS 100
#define SETTLE_LOOKS 10u
/* So many are switched on the loop, when they are opened and closed. */
#define AT_ONCE_FDS 1024u

struct probes {
	struct event_base *base;
	struct quota *quota;
	struct readers *readers;
	struct closer *closer;
	uint32_t uprobe_type; /* 0: there are none */
};

struct watched {
	struct event *event;
	struct probe *probe; /* back pointer */
	size_t cpu;          /* its index */
	size_t next;         /* of all sets' subjects, the first that was not tried */
};

struct probe {
	struct probes *ps;
	struct probe_process process;
	const struct probe_callbacks *callbacks;
	void *arg;
	enum probe_state state;
	bool on;
	struct opening *opening; /* NULL: none is under way */
	struct probe_events *events;   /* owned; NULL: not open */
	enum probe_by used;
	struct probe_copies copies;
	struct watched *watched; /* one for each CPU */
	/* looks for who was paused while the events were switched off; NULL: nobody can be */
	struct event *settle;
	unsigned int looks;
	uint64_t missed; /* hits that it found */
	uint64_t drained_ns; /* when the rings were empty for sure */
	struct quota_charge charge;
	char why[160];
};

const char *probe_by_name(enum probe_by by)
{
	static const char *const names[] = {[PROBE_AUTO] = "auto",
					    [PROBE_BREAKPOINT] = "breakpoint",
					    [PROBE_UPROBE] = "uprobe"};

	return names[by];
}

/* ---- the trace that they pause */

static void put_trace(struct pausable *trace)
{
	if (trace)
		trace->ops->put(trace);
}

/* What is in the trace's groups must be closed before it is. */
static struct closer *closer_of(const struct probes *ps, const struct probe_process *process)
{
	return process->trace ? process->trace->ops->closer(process->trace) : ps->closer;
}

/* ---- events that are open */

static void events_put(void *data)
{
	struct probe_events *e = *(struct probe_events **)data;

	if (atomic_fetch_sub(&e->refs, 1) > 1)
		return;
	probe_events_close(e);
	free(e);
}

/* By the thread, also if they are few: closing a uprobe takes long. */
static void events_free(struct probe_events *e, struct closer *closer)
{
	if (e)
		closer_call(closer, events_put, &e, sizeof(e), e->n_fds);
}

/*
 * As they are to be by now: the loop and the closer may both be at it, and whoever was told first
 * may come last. `data` is a pointer to the referenced events.
 */
static void switch_events(void *data)
{
	struct probe_events *e = *(struct probe_events **)data;
	bool on;

	do {
		on = atomic_load(&e->on);
		for (size_t i = 0; i < e->n_sets; i++)
			eventset_ioctl(&e->sets[i],
				       on ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE);
		atomic_store(&e->is_on, on);
	} while (atomic_load(&e->on) != on);
	events_put(data);
}

/*
 * The fd of a CPU that is asked whether its ring has something: any that is not over tells. -1: all
 * are.
 */
static int next_fd(struct watched *w)
{
	const struct probe_events *e = w->probe->events;
	size_t skip = 0;

	for (size_t i = 0; i < e->n_sets; skip += e->sets[i++].n_subjects) {
		const struct eventset *set = &e->sets[i];

		for (size_t s = w->next > skip ? w->next - skip : 0; s < set->n_subjects; s++) {
			struct pollfd p = {.fd = set->fds[s * set->n_cpus + w->cpu]};

			w->next = skip + s + 1;
			if (p.fd >= 0 && poll(&p, 1, 0) >= 0 && !(p.revents & (POLLHUP | POLLNVAL)))
				return p.fd;
		}
	}
	return -1;
}

static void set_state(struct probe *p, enum probe_state state)
{
	p->state = state;
	p->callbacks->changed(p->arg, p);
}

/*
 * The kernel says once that a ring has something, to whoever asks first: also to next_fd() and to
 * the adding of an event. So after these somebody must look, or what came before them waits for the
 * next hit.
 */
static void drain(struct probe *p);

static void on_ready(evutil_socket_t fd, short what, void *arg)
{
	struct watched *w = arg;
	struct probe *p = w->probe;
	struct pollfd state = {.fd = fd};
	int next;

	drain(p);
	/* The thread has ended, and so have those that inherited the event from it. */
	if (poll(&state, 1, 0) < 0 || !(state.revents & POLLHUP) || !p->on)
		return;
	(void)event_del(w->event);
	next = next_fd(w);
	if (next >= 0 &&
	    event_assign(w->event, p->ps->base, next, EV_READ | EV_PERSIST, on_ready, w) == 0 &&
	    event_add(w->event, NULL) == 0) {
		drain(p);
		return;
	}
	if (p->state == PROBE_OPEN)
		set_state(p, PROBE_ENDED);
}

static int watch(struct probe *p)
{
	const size_t n = p->events->sets[0].n_cpus;

	p->watched = calloc(n, sizeof(*p->watched));
	if (!p->watched)
		return -ENOMEM;
	for (size_t cpu = 0; cpu < n; cpu++) {
		struct watched *w = &p->watched[cpu];
		int fd;

		*w = (struct watched){.probe = p, .cpu = cpu};
		fd = next_fd(w);
		if (fd < 0)
			continue; /* offline, or all have ended: the other CPUs say so */
		w->event = event_new(p->ps->base, fd, EV_READ | EV_PERSIST, on_ready, w);
		if (!w->event || event_add(w->event, NULL) < 0)
			return -ENOMEM;
	}
	return 0;
}

static void unwatch(struct probe *p)
{
	for (size_t cpu = 0; p->watched && cpu < p->events->sets[0].n_cpus; cpu++)
		if (p->watched[cpu].event)
			event_free(p->watched[cpu].event);
	free(p->watched);
	p->watched = NULL;
}

/* ---- hits */

struct sample {
	struct perf_event_header header;
	uint32_t pid, tid;
	uint64_t time, addr, id;
};

struct hits {
	struct probe_hit first;
	uint64_t n;
	/* of the same CPU */
	uint32_t last_tid;
	uint64_t last_addr, last_id;
};

/* Whether the event is one that pauses the trace. */
static bool is_pausing(const struct probe *p, size_t cpu, uint64_t id)
{
	for (size_t i = 0; p->process.trace && i < p->events->n_sets; i++) {
		const struct eventset *set = &p->events->sets[i];

		for (size_t at = cpu; set->groups && at < set->n_subjects * set->n_cpus;
		     at += set->n_cpus)
			if (set->fds[at] >= 0 && set->ids[at] == id)
				return set->groups[at] >= 0;
	}
	return false;
}

static void take_lost(const struct probe *p, struct hits *hits, const struct perfabi_lost *lost)
{
	if (lost->header.size < sizeof(*lost))
		return;
	hits->n += lost->lost;
	if (p->events->n_pausing)
		p->process.trace->ops->lost(p->process.trace, p->drained_ns);
}

static void take_sample(const struct probe *p, struct hits *hits, const struct sample *s,
			size_t cpu)
{
	const bool paused = is_pausing(p, cpu, s->id);

	if (paused)
		p->process.trace->ops->paused(p->process.trace, p->events->sets[0].cpus[cpu],
					      s->tid, s->time);
	/*
	 * A thread that was created while others were opened may have inherited the event and have
	 * its own: both report the hit.
	 */
	if (s->tid == hits->last_tid && s->addr == hits->last_addr && s->id != hits->last_id) {
		hits->first.paused |= paused && s->tid == hits->first.tid;
		return;
	}
	hits->last_tid = s->tid;
	hits->last_addr = s->addr;
	hits->last_id = s->id;
	if (!hits->first.time_ns || s->time < hits->first.time_ns)
		hits->first = (struct probe_hit){.pid = s->pid,
						 .tid = s->tid,
						 .time_ns = s->time,
						 .paused = paused};
	hits->n++;
}

/* The rings are small, and what does not fit is a count. */
static struct hits take_hits(struct probe *p)
{
	const struct eventset *set = &p->events->sets[0];
	_Alignas(8) uint8_t buf[PROBE_PAUSING_RING_BYTES];
	const uint64_t now = clock_raw_ns();
	struct hits hits = {0};

	for (size_t cpu = 0; cpu < set->n_cpus; cpu++) {
		const size_t n =
			set->rings[cpu].base ? ring_drain(&set->rings[cpu], buf, sizeof(buf)) : 0;

		hits.last_tid = 0;
		for (size_t at = 0; at + sizeof(struct perf_event_header) <= n;) {
			const struct perf_event_header *h = (const void *)(buf + at);

			if (h->size < sizeof(*h) || h->size > n - at)
				break;
			if (h->type == PERF_RECORD_LOST)
				take_lost(p, &hits, (const void *)h);
			else if (h->type == PERF_RECORD_SAMPLE && h->size >= sizeof(struct sample))
				take_sample(p, &hits, (const void *)h, cpu);
			at += h->size;
		}
	}
	p->drained_ns = now;
	return hits;
}

/*
 * Until it is off it goes on to pause threads: of them the trace's owner must hear, or they stay
 * so.
 */
static void on_settle(evutil_socket_t fd, short what, void *arg)
{
	const struct timeval tv = {.tv_usec = SETTLE_MS * 1000};
	struct probe *p = arg;

	if (p->on || p->state != PROBE_OPEN)
		return;
	p->missed += take_hits(p).n;
	if (++p->looks < SETTLE_LOOKS)
		(void)event_add(p->settle, &tv);
}

static void settle(struct probe *p)
{
	p->looks = 0;
	on_settle(-1, 0, p);
}

static void drain(struct probe *p)
{
	const struct hits hits = take_hits(p);

	if (hits.first.time_ns)
		p->callbacks->hit(p->arg, p, &hits.first, hits.n);
}

uint64_t probe_enable(struct probe *p, bool on, bool at_once)
{
	uint64_t late = 0;
	struct probe_events *e = p->events;

	if (p->on == on)
		return 0;
	p->on = on;
	if (p->state != PROBE_OPEN)
		return 0;
	/* Until it is off it may go on to report: nobody listens. */
	for (size_t cpu = 0; cpu < p->events->sets[0].n_cpus; cpu++) {
		struct event *readable = p->watched[cpu].event;

		if (readable && !on)
			(void)event_del(readable);
		if (readable && on)
			(void)event_add(readable, NULL);
	}
	if (on) {
		late = take_hits(p).n + p->missed;
		p->missed = 0;
	}
	atomic_store(&e->on, on);
	(void)atomic_fetch_add(&e->refs, 1);
	if (at_once)
		switch_events(&e);
	else
		closer_call(closer_of(p->ps, &p->process), switch_events, &e, sizeof(e), 0);
	if (!on && p->settle)
		settle(p);
	return late;
}

/* ---- opened */

static void fail(struct probe *p, const char *why)
{
	(void)snprintf(p->why, sizeof(p->why), "%s", why);
	set_state(p, PROBE_FAILED);
}

static void take_over(struct probe *p, struct opening *o)
{
	int r;

	p->events = take_ptr(o->events);
	p->used = o->used;
	p->copies = o->copies;
	p->drained_ns = clock_raw_ns();
	/* Each that pauses has one more that lets the trace go on. */
	r = quota_charge(p->ps->quota, p->process.uid, QUOTA_FDS,
			 p->events->n_fds + p->events->n_grouped, &p->charge);
	if (r == 0)
		r = watch(p);
	if (r == 0 && p->events->n_grouped) {
		p->settle = evtimer_new(p->ps->base, on_settle, p);
		r = p->settle ? 0 : -ENOMEM;
	}
	if (r != 0) {
		unwatch(p);
		events_free(take_ptr(p->events), closer_of(p->ps, &p->process));
		quota_release(&p->charge);
		fail(p, r > 0 ? "this user may have no more descriptors (uid_fds)" : strerror(-r));
		return;
	}
	p->state = PROBE_OPEN;
	if (!p->on) {
		p->on = true;
		(void)probe_enable(p, false, false);
	} else if (p->events->n_grouped) {
		/* They were opened disabled: whom they pause somebody must hear of. */
		p->on = false;
		atomic_store(&p->events->is_on, false);
		(void)probe_enable(p, true, p->events->n_fds <= AT_ONCE_FDS);
	}
	set_state(p, PROBE_OPEN);
	if (p->on)
		drain(p);
}

static struct opening *opening_free(struct opening *o)
{
	events_free(o->events, o->closer);
	put_trace(o->process.trace);
	pid_set_fini(&o->tids);
	free(o);
	return NULL;
}
DEFINE_CLEANUP(struct opening *, opening_free)

static void done(struct reader_job *job)
{
	_cleanup_(opening_freep) struct opening *o = (struct opening *)job;
	struct probe *p = o->probe;

	if (!p)
		return;
	p->opening = NULL;
	if (o->result == 0)
		take_over(p, o);
	else if (o->result > 0 || o->result == -ESRCH)
		set_state(p, PROBE_ENDED);
	else if (o->result == -ENOENT && !o->used)
		set_state(p, PROBE_NOT_MAPPED);
	else
		fail(p, opening_explain(o));
}

static void hangs(struct reader_job *job)
{
	const struct opening *o = (const struct opening *)job;

	if (o->probe)
		log_notice("breakpoints of pid %d wait: the process hangs whoever reads it",
			   (int)o->process.pid);
}

int probe_new(struct probes *ps, const struct probe_place *place,
	      const struct probe_process *process, const struct probe_callbacks *callbacks,
	      void *arg, struct probe **ret)
{
	_cleanup_(opening_freep) struct opening *o = NULL;
	struct probe *p;

	if (!readers_may(ps->readers, process->of) || closer_waiting(ps->closer) > CLOSING_FDS_MAX)
		return -EBUSY;
	o = calloc(1, sizeof(*o));
	if (!o)
		return -ENOMEM;
	o->closer = closer_of(ps, process);
	o->events = calloc(1, sizeof(*o->events));
	p = o->events ? calloc(1, sizeof(*p)) : NULL;
	if (!p)
		return -ENOMEM;
	*p = (struct probe){.ps = ps,
			    .process = *process,
			    .callbacks = callbacks,
			    .arg = arg,
			    .on = true,
			    .opening = o};
	o->job = (struct reader_job){.run = opening_run,
				     .done = done,
				     .hangs = hangs,
				     .uid = process->of};
	atomic_init(&o->cancel, false);
	atomic_init(&o->events->refs, 1);
	atomic_init(&o->events->on, true);
	atomic_init(&o->events->is_on, true);
	/* One for the opening, which may outlive the probe, and one for the probe. */
	for (int i = 0; process->trace && i < 2; i++)
		process->trace->ops->ref(process->trace);
	o->probe = p;
	o->place = *place;
	o->process = *process;
	o->uprobe_type = ps->uprobe_type;
	o->fds_left = quota_left(ps->quota, process->uid, QUOTA_FDS);
	readers_submit(ps->readers, &take_ptr(o)->job);
	*ret = p;
	return 0;
}

struct probe *probe_free(struct probe *p)
{
	if (!p)
		return NULL;
	if (p->opening) {
		p->opening->probe = NULL;
		atomic_store(&p->opening->cancel, true);
	}
	if (p->settle)
		event_free(p->settle);
	if (p->events) {
		/* Who is paused must be known before nobody can say so any more. */
		if (p->events->n_grouped) {
			(void)atomic_fetch_add(&p->events->refs, 1);
			atomic_store(&p->events->on, false);
			switch_events(&p->events);
			(void)take_hits(p);
		}
		unwatch(p);
		events_free(p->events, closer_of(p->ps, &p->process));
	}
	quota_release(&p->charge);
	put_trace(p->process.trace);
	free(p);
	return NULL;
}

enum probe_state probe_state(const struct probe *p)
{
	return p->state;
}

bool probe_is_on(const struct probe *p)
{
	return p->state != PROBE_OPEN || atomic_load(&p->events->is_on);
}

pid_t probe_pid(const struct probe *p)
{
	return p->process.pid;
}

uint64_t probe_start_time(const struct probe *p)
{
	return p->process.start_time;
}

size_t probe_threads(const struct probe *p)
{
	return p->events ? p->events->n_threads : 0;
}

size_t probe_fds(const struct probe *p)
{
	return p->events ? p->events->n_fds : 0;
}

size_t probe_unsure(const struct probe *p)
{
	return p->events ? p->events->n_unsure : 0;
}

size_t probe_pausing(const struct probe *p)
{
	return p->events ? p->events->n_pausing : 0;
}

enum probe_by probe_used(const struct probe *p)
{
	return p->used;
}

const struct probe_copies *probe_copies(const struct probe *p)
{
	return &p->copies;
}

const char *probe_why(const struct probe *p)
{
	return p->why;
}

/* ---- all of them */

int probes_new(struct event_base *base, struct quota *quota, struct probes **ret)
{
	_cleanup_(probes_freep) struct probes *ps = calloc(1, sizeof(*ps));
	_cleanup_free_ char *text = NULL;
	size_t len;
	int r;

	if (!ps)
		return -ENOMEM;
	ps->base = base;
	ps->quota = quota;
	if (io_read_file_at(AT_FDCWD, UPROBE_TYPE, 64, &text, &len) == 0)
		ps->uprobe_type = (uint32_t)strtoul(text, NULL, 10);
	r = closer_new(base, &ps->closer);
	if (r == 0)
		r = readers_new(base, &ps->readers);
	if (r < 0)
		return r;
	*ret = take_ptr(ps);
	return 0;
}

struct probes *probes_free(struct probes *ps)
{
	if (!ps)
		return NULL;
	/* What a job opened goes to the closer, which closes at once after its thread has ended. */
	if (ps->closer)
		closer_stop(ps->closer);
	if (ps->readers)
		(void)readers_free(ps->readers);
	if (ps->closer)
		(void)closer_free(ps->closer);
	free(ps);
	return NULL;
}
