// SPDX-License-Identifier: Apache-2.0
#include "daemon/perf/cpuwatch.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/raw_clock.h"
#include "common/bundle/perfabi.h"
#include "daemon/perf/eventset.h"

/* The clocks of two CPUs, and of the events and the system, may be apart by so much. */
#define SLACK_NS 20000000
/* A reading within this is as good as any. */
#define TIGHT_NS 1000000u
#define TRIES 8

/* The best of a few tries. What cannot be read has not lived. */
static void read_event(int fd, struct cpuwatch_reading *ret)
{
	for (int i = 0; i < TRIES; i++) {
		struct cpuwatch_reading r = {.before_ns = clock_raw_ns()};
		uint64_t v[2];

		if (fd >= 0 && read(fd, v, sizeof(v)) == sizeof(v))
			r.lived_ns = v[1];
		r.after_ns = clock_raw_ns();
		if (i == 0 || r.after_ns - r.before_ns < ret->after_ns - ret->before_ns)
			*ret = r;
		if (ret->after_ns - ret->before_ns < TIGHT_NS)
			break;
	}
}

int cpuwatch_open(struct cpuwatch *ret)
{
	_cleanup_(cpuwatch_close) struct cpuwatch w = CPUWATCH_INIT;
	size_t n;
	int r;

	r = cpus_online(&w.cpus, &n);
	if (r < 0)
		return r;
	w.fds = calloc(n, sizeof(*w.fds));
	w.begun = calloc(n, sizeof(*w.begun));
	w.away_ns = calloc(n, sizeof(*w.away_ns));
	if (!w.fds || !w.begun || !w.away_ns)
		return -ENOMEM;
	for (; w.n < n; w.n++) {
		struct perf_event_attr attr = {
			.type = PERF_TYPE_SOFTWARE,
			.size = sizeof(attr),
			.config = PERF_COUNT_SW_DUMMY,
			.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED,
		};

		w.fds[w.n] = perfabi_open(&attr, -1, w.cpus[w.n], -1, 0);
		/* It has just gone offline: the next look says so. */
		if (w.fds[w.n] < 0 && errno != ENODEV)
			return -errno;
	}
	for (size_t i = 0; i < n; i++)
		read_event(w.fds[i], &w.begun[i]);
	w.seen_ns = clock_raw_ns();
	*ret = w;
	w = (struct cpuwatch)CPUWATCH_INIT;
	return 0;
}

void cpuwatch_close(struct cpuwatch *w)
{
	for (size_t i = 0; i < w->n; i++)
		(void)close_fd(w->fds[i]);
	free(w->fds);
	free(w->begun);
	free(w->away_ns);
	free(w->cpus);
	*w = (struct cpuwatch)CPUWATCH_INIT;
}

static bool has(const int *cpus, size_t n, int cpu)
{
	for (size_t i = 0; i < n; i++)
		if (cpus[i] == cpu)
			return true;
	return false;
}

/* By how much less than the system's clock the event went on since `begun`: at least, and at most. */
static int64_t least_lag(const struct cpuwatch_reading *begun, const struct cpuwatch_reading *now)
{
	return (int64_t)(now->before_ns - begun->after_ns) - (int64_t)(now->lived_ns - begun->lived_ns);
}

static int64_t greatest_lag(const struct cpuwatch_reading *begun, const struct cpuwatch_reading *now)
{
	return (int64_t)(now->after_ns - begun->before_ns) - (int64_t)(now->lived_ns - begun->lived_ns);
}

size_t cpuwatch_compare(struct cpuwatch *w, uint64_t at, const struct cpuwatch_reading *now, const int *online, size_t n_online,
			struct cpuwatch_change *ret, size_t room)
{
	int64_t drift_least = INT64_MAX, drift_greatest = INT64_MAX;
	size_t found = 0;

	/* One at least lives on, since the kernel refuses that the last CPU goes offline: its lag is that of the clocks. */
	for (size_t i = 0; i < w->n; i++) {
		const int64_t least = least_lag(&w->begun[i], &now[i]), greatest = greatest_lag(&w->begun[i], &now[i]);

		drift_least = least < drift_least ? least : drift_least;
		drift_greatest = greatest < drift_greatest ? greatest : drift_greatest;
	}
	for (size_t i = 0; i < w->n && found < room; i++) {
		const uint64_t missing = (uint64_t)(greatest_lag(&w->begun[i], &now[i]) - drift_least);
		const uint64_t ended = missing < at ? at - missing : 0;

		if (!has(online, n_online, w->cpus[i]))
			w->away_ns[i] = at;
		else if (least_lag(&w->begun[i], &now[i]) - drift_greatest > SLACK_NS)
			ret[found++] = (struct cpuwatch_change){
				.cpu = w->cpus[i], .since_ns = w->away_ns[i] > ended ? w->away_ns[i] : ended};
	}
	for (size_t i = 0; i < n_online && found < room; i++)
		if (!has(w->cpus, w->n, online[i]))
			ret[found++] = (struct cpuwatch_change){.cpu = online[i], .since_ns = w->seen_ns};
	if (!found)
		w->seen_ns = at;
	return found;
}

size_t cpuwatch_look(struct cpuwatch *w, struct cpuwatch_change *ret, size_t room)
{
	_cleanup_free_ struct cpuwatch_reading *now = NULL;
	_cleanup_free_ int *online = NULL;
	size_t n_online;

	if (!w->n || cpus_online(&online, &n_online) < 0)
		return 0;
	now = calloc(w->n, sizeof(*now));
	if (!now)
		return 0;
	for (size_t i = 0; i < w->n; i++)
		read_event(w->fds[i], &now[i]);
	return cpuwatch_compare(w, clock_raw_ns(), now, online, n_online, ret, room);
}
