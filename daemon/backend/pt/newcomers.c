// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/pt/newcomers.h"

#include <errno.h>
#include <event2/event.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "daemon/backend/pt/events.h"
#include "daemon/perf/cpuwatch.h"

/* So many changes are heard of at once; the next look finds the others. */
#define CHANGES_MAX 1024

struct change {
	int cpu;
	unsigned int epoch; /* the last one that has it: whoever has begun before misses the CPU */
	uint64_t since_ns;  /* the first */
};

struct newcomers {
	struct event *timer, *telling;
	uint64_t since_ns; /* what is to be told */
	void (*changed)(void *arg, uint64_t since_ns);
	void *arg;
	struct cpuwatch watch; /* while there are recordings */
	bool warned; /* that it could not be opened */
	size_t users;
	unsigned int epoch;
	struct change *v; /* one of each CPU at most */
	size_t n;
};

static void look_again(struct newcomers *n)
{
	const struct timeval second = {.tv_sec = 1};

	(void)event_add(n->timer, &second);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct newcomers *n = arg;

	newcomers_look(n);
	look_again(n);
}

/* Not where it is found: that may be in the middle of a snapshot. */
static void on_telling(evutil_socket_t fd, short what, void *arg)
{
	struct newcomers *n = arg;
	const uint64_t since = n->since_ns;

	n->since_ns = UINT64_MAX;
	n->changed(n->arg, since);
}

int newcomers_new(struct event_base *base, void (*changed)(void *arg, uint64_t since_ns), void *arg,
		  struct newcomers **ret)
{
	struct newcomers *n = calloc(1, sizeof(*n));

	if (!n)
		return -ENOMEM;
	n->changed = changed;
	n->arg = arg;
	n->since_ns = UINT64_MAX;
	n->timer = evtimer_new(base, on_timer, n);
	n->telling = evtimer_new(base, on_telling, n);
	if (!n->timer || !n->telling) {
		(void)newcomers_free(n);
		return -ENOMEM;
	}
	*ret = n;
	return 0;
}

struct newcomers *newcomers_free(struct newcomers *n)
{
	if (!n)
		return NULL;
	if (n->timer)
		event_free(n->timer);
	if (n->telling)
		event_free(n->telling);
	cpuwatch_close(&n->watch);
	free(n->v);
	free(n);
	return NULL;
}

static void open_watch(struct newcomers *n)
{
	const int r = cpuwatch_open(&n->watch);

	if (r < 0 && !n->warned)
		log_warning("CPUs that come later are not noticed: %s", strerror(-r));
	n->warned = r < 0;
}

void newcomers_use(struct newcomers *n)
{
	if (n->users++ > 0) {
		newcomers_look(n);
		return;
	}
	open_watch(n);
	look_again(n);
}

void newcomers_leave(struct newcomers *n)
{
	if (--n->users > 0)
		return;
	(void)event_del(n->timer);
	(void)event_del(n->telling);
	n->since_ns = UINT64_MAX;
	cpuwatch_close(&n->watch);
	n->n = 0;
}

unsigned int newcomers_epoch(const struct newcomers *n)
{
	return n->epoch;
}

/* 0, -ENOMEM. */
static int note(struct newcomers *n, const struct cpuwatch_change *change)
{
	struct change *bigger;

	for (size_t i = 0; i < n->n; i++)
		if (n->v[i].cpu == change->cpu) {
			n->v[i].epoch = n->epoch;
			return 0;
		}
	bigger = reallocarray(n->v, n->n + 1, sizeof(*n->v));
	if (!bigger)
		return -ENOMEM;
	n->v = bigger;
	n->v[n->n++] = (struct change){.cpu = change->cpu,
				       .epoch = n->epoch,
				       .since_ns = change->since_ns};
	return 0;
}

void newcomers_look(struct newcomers *n)
{
	struct cpuwatch_change changes[CHANGES_MAX];
	size_t found;

	if (!n->users)
		return;
	if (!cpuwatch_is_open(&n->watch))
		open_watch(n); /* it could not be opened */
	found = cpuwatch_look(&n->watch, changes, CHANGES_MAX);
	if (!found)
		return;
	for (size_t i = 0; i < found; i++) {
		if (note(n, &changes[i]) < 0)
			return; /* no memory: the next look finds it, too */
		if (changes[i].since_ns < n->since_ns)
			n->since_ns = changes[i].since_ns;
		log_info("CPU %d came or went", changes[i].cpu);
	}
	if (found < CHANGES_MAX) {
		n->epoch++;
		cpuwatch_close(&n->watch);
		open_watch(n);
	}
	(void)event_add(n->telling, &(struct timeval){0});
}

static bool misses(const struct pt_events *events, const struct change *change)
{
	const struct eventset *set = &events->first->sets[PT_EVENT_TRACE];

	if (change->epoch < events->epoch)
		return false;
	for (size_t i = 0; i < set->n_cpus && !events->of_cpus; i++)
		if (set->cpus[i] == change->cpu && set->auxes[i].base)
			return false;
	return true;
}

size_t newcomers_count(const struct newcomers *n, const struct pt_events *events)
{
	size_t count = 0;

	for (size_t i = 0; i < n->n; i++)
		count += misses(events, &n->v[i]);
	return count;
}

int newcomers_missed(const struct newcomers *n, const struct pt_events *events,
		     struct pt_missed_cpu **ret, size_t *ret_n)
{
	struct pt_missed_cpu *v = calloc(n->n + 1, sizeof(*v));
	size_t count = 0;

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < n->n; i++) {
		const struct change *change = &n->v[i];

		if (misses(events, change))
			v[count++] =
				(struct pt_missed_cpu){.cpu = change->cpu,
						       .from_ns = change->since_ns >
										  events->begin.ns
									  ? change->since_ns
									  : events->begin.ns};
	}
	*ret = v;
	*ret_n = count;
	return 0;
}
