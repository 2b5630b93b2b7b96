// SPDX-License-Identifier: Apache-2.0
#include "daemon/perf/cpuwatch.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/raw_clock.h"
#include "common/bundle/perfabi.h"
#include "daemon/perf/eventset.h"

/* So much may pass between the reading of two events. */
#define SLACK_NS 20000000u

/* For how long the event has lived. */
static bool read_time(int fd, uint64_t *ret)
{
	uint64_t v[2];

	if (fd < 0 || read(fd, v, sizeof(v)) != sizeof(v))
		return false;
	*ret = v[1];
	return true;
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
		(void)!read_time(w.fds[i], &w.begun[i]);
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

size_t cpuwatch_compare(struct cpuwatch *w, uint64_t now, const uint64_t *times, const int *online, size_t n_online,
			struct cpuwatch_change *ret, size_t room)
{
	uint64_t oldest = 0;
	size_t found = 0;

	/* One at least lives on: that the last CPU goes offline the kernel refuses. */
	for (size_t i = 0; i < w->n; i++)
		if (times[i] > w->begun[i] && times[i] - w->begun[i] > oldest)
			oldest = times[i] - w->begun[i];
	for (size_t i = 0; i < w->n && found < room; i++) {
		const uint64_t lived = times[i] > w->begun[i] ? times[i] - w->begun[i] : 0, missing = oldest - lived;
		const uint64_t ended = missing < now ? now - missing : 0;

		if (!has(online, n_online, w->cpus[i]))
			w->away_ns[i] = now;
		else if (missing > SLACK_NS)
			ret[found++] = (struct cpuwatch_change){
				.cpu = w->cpus[i], .since_ns = w->away_ns[i] > ended ? w->away_ns[i] : ended};
	}
	for (size_t i = 0; i < n_online && found < room; i++)
		if (!has(w->cpus, w->n, online[i]))
			ret[found++] = (struct cpuwatch_change){.cpu = online[i], .since_ns = w->seen_ns};
	if (!found)
		w->seen_ns = now;
	return found;
}

size_t cpuwatch_look(struct cpuwatch *w, struct cpuwatch_change *ret, size_t room)
{
	_cleanup_free_ uint64_t *times = NULL;
	_cleanup_free_ int *online = NULL;
	size_t n_online;

	if (!w->n || cpus_online(&online, &n_online) < 0)
		return 0;
	times = calloc(w->n, sizeof(*times));
	if (!times)
		return 0;
	for (size_t i = 0; i < w->n; i++)
		(void)!read_time(w->fds[i], &times[i]);
	return cpuwatch_compare(w, clock_raw_ns(), times, online, n_online, ret, room);
}
