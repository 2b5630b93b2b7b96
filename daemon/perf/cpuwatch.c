// SPDX-License-Identifier: Apache-2.0
#include "daemon/perf/cpuwatch.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/raw_clock.h"
#include "common/bundle/perfabi.h"
#include "daemon/perf/eventset.h"

/*
 * Two readings of an event that lives differ; a third and fourth are taken where it was just taken
 * off its CPU for others' sake.
 */
#define READINGS 4

static bool read_time(int fd, uint64_t *ret)
{
	uint64_t v[2];

	if (fd < 0 || read(fd, v, sizeof(v)) != sizeof(v))
		return false;
	*ret = v[1];
	return true;
}

/* What cannot be read does not live. */
static struct cpuwatch_reading read_event(int fd)
{
	struct cpuwatch_reading r = {.at_ns = clock_raw_ns()};
	uint64_t next;

	if (!read_time(fd, &r.lived_ns))
		return r;
	for (int i = 1; i < READINGS && !r.goes_on; i++)
		r.goes_on = read_time(fd, &next) && next != r.lived_ns;
	return r;
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
	w.last = calloc(n, sizeof(*w.last));
	w.away_ns = calloc(n, sizeof(*w.away_ns));
	if (!w.fds || !w.last || !w.away_ns)
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
		w.last[i] = read_event(w.fds[i]);
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
	free(w->last);
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

size_t cpuwatch_compare(struct cpuwatch *w, uint64_t at, const struct cpuwatch_reading *now,
			const int *online, size_t n_online, struct cpuwatch_change *ret,
			size_t room)
{
	size_t found = 0;

	for (size_t i = 0; i < w->n && found < room; i++) {
		/* Its time goes slower than ours: rather too early. */
		const uint64_t more = now[i].lived_ns > w->last[i].lived_ns
					      ? now[i].lived_ns - w->last[i].lived_ns
					      : 0,
			       ended = w->last[i].at_ns + more;

		if (!has(online, n_online, w->cpus[i]))
			w->away_ns[i] = at;
		else if (now[i].goes_on)
			w->last[i] = now[i];
		else
			ret[found++] = (struct cpuwatch_change){.cpu = w->cpus[i],
								.since_ns = w->away_ns[i] > ended
										    ? w->away_ns[i]
										    : ended};
	}
	for (size_t i = 0; i < n_online && found < room; i++)
		if (!has(w->cpus, w->n, online[i]))
			ret[found++] =
				(struct cpuwatch_change){.cpu = online[i], .since_ns = w->seen_ns};
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
		now[i] = read_event(w->fds[i]);
	return cpuwatch_compare(w, clock_raw_ns(), now, online, n_online, ret, room);
}
