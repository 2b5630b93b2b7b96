/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "decode/base/clockmap.h"

#include <errno.h>

/*
 * Beyond the series' ends a pair's rate is carried on. A pair closer than this would give a rate
 * made of reading errors, so then the clocks are taken to run alike.
 */
#define RATE_BASE_NS 100000000ull
/* Of the distance: no clock of a machine goes wrong by more. */
#define REALTIME_OFF 1000u

struct clock_map {
	enum clock_source source;
	struct clock_bracket *brackets; /* sorted by source after clock_map_finish() */
	size_t n, max;
	size_t last; /* segment of the previous conversion: times come nearly sorted */
	uint64_t error;
	uint64_t dropped;
};

int clock_map_new(enum clock_source source, struct clock_map **ret)
{
	struct clock_map *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->source = source;
	*ret = m;
	return 0;
}

struct clock_map *clock_map_free(struct clock_map *m)
{
	if (!m)
		return NULL;
	free(m->brackets);
	free(m);
	return NULL;
}

int clock_map_add(struct clock_map *m, const struct clock_bracket *b)
{
	if (m->n == CLOCK_MAP_MAX) {
		m->dropped++;
		return 0;
	}
	if (m->n == m->max) {
		size_t max = m->max ? m->max * 2 : 64;
		struct clock_bracket *p = reallocarray(m->brackets, max, sizeof(*p));

		if (!p)
			return -ENOMEM;
		m->brackets = p;
		m->max = max;
	}
	m->brackets[m->n++] = *b;
	return 0;
}

static int bracket_compare(const void *a, const void *b)
{
	const struct clock_bracket *x = a, *y = b;

	if (x->source != y->source)
		return x->source < y->source ? -1 : 1;
	return x->monotonic < y->monotonic ? -1 : x->monotonic > y->monotonic;
}

static uint64_t rescale(uint64_t value, uint64_t num, uint64_t den)
{
	return (uint64_t)(((__uint128_t)value * num + den / 2) / den);
}

/*
 * How far a bracket is from the line between its neighbours: what interpolation may have missed
 * inside a segment of that length.
 */
static uint64_t curvature(const struct clock_bracket *a, const struct clock_bracket *b,
			  const struct clock_bracket *c)
{
	uint64_t line = a->monotonic + rescale(b->source - a->source, c->monotonic - a->monotonic,
					       c->source - a->source);

	return line > b->monotonic ? line - b->monotonic : b->monotonic - line;
}

void clock_map_finish(struct clock_map *m)
{
	size_t kept = 0;

	if (m->n > 1)
		qsort(m->brackets, m->n, sizeof(*m->brackets), bracket_compare);
	for (size_t i = 0; i < m->n; i++) {
		struct clock_bracket b = m->brackets[i];

		if (m->source == CLOCK_SOURCE_MONOTONIC && b.monotonic == 0)
			b.monotonic = b.source;
		if (b.source == 0 || b.monotonic == 0 ||
		    (kept > 0 && (b.source <= m->brackets[kept - 1].source ||
				  b.monotonic <= m->brackets[kept - 1].monotonic))) {
			m->dropped++;
			continue;
		}
		m->brackets[kept++] = b;
	}
	m->n = kept;
	m->last = 0;
	m->error = 0;
	for (size_t i = 0; i < m->n; i++) {
		uint64_t e = m->brackets[i].width / 2 + 1;

		if (i > 0 && i + 1 < m->n && m->source != CLOCK_SOURCE_MONOTONIC)
			e += curvature(&m->brackets[i - 1], &m->brackets[i], &m->brackets[i + 1]);
		if (e > m->error)
			m->error = e;
	}
	if (m->source == CLOCK_SOURCE_MONOTONIC)
		m->error = 0;
}

bool clock_map_known(const struct clock_map *m)
{
	return m->source == CLOCK_SOURCE_MONOTONIC || m->n > 0;
}

/* The last bracket at or before `source`, or 0. */
static size_t segment_find(const struct clock_map *m, uint64_t source)
{
	size_t lo = 0, hi = m->n;

	while (hi - lo > 1) {
		size_t mid = lo + (hi - lo) / 2;

		if (m->brackets[mid].source <= source)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

uint64_t clock_map_monotonic(struct clock_map *m, uint64_t source)
{
	const struct clock_bracket *a, *b;
	size_t i = m->last;

	if (m->source == CLOCK_SOURCE_MONOTONIC || m->n == 0)
		return source;
	if (source < m->brackets[i].source || (i + 1 < m->n && source >= m->brackets[i + 1].source))
		m->last = i = segment_find(m, source);
	/* The segment's pair; outside of the series, the nearest one. */
	if (m->n > 1) {
		if (i + 1 == m->n)
			i--;
		a = &m->brackets[i];
		b = &m->brackets[i + 1];
		if (source >= a->source && source <= b->source)
			return a->monotonic + rescale(source - a->source,
						      b->monotonic - a->monotonic,
						      b->source - a->source);
		if (b->source - a->source >= RATE_BASE_NS) {
			if (source > b->source)
				return b->monotonic + rescale(source - b->source,
							      b->monotonic - a->monotonic,
							      b->source - a->source);
			uint64_t back = rescale(a->source - source, b->monotonic - a->monotonic,
						b->source - a->source);
			return back < a->monotonic ? a->monotonic - back : 0;
		}
	}
	a = &m->brackets[source >= m->brackets[m->n - 1].source ? m->n - 1 : 0];
	if (source >= a->source)
		return a->monotonic + (source - a->source);
	return a->source - source < a->monotonic ? a->monotonic - (a->source - source) : 0;
}

/*
 * Both clocks rise together, and run alike to some parts in a million: a step from a near guess,
 * and a search of what is left.
 */
uint64_t clock_map_from_monotonic(struct clock_map *m, uint64_t monotonic)
{
	uint64_t source = monotonic, at;

	if (m->source == CLOCK_SOURCE_MONOTONIC || m->n == 0)
		return monotonic;
	for (unsigned int i = 0; i < 64; i++) {
		at = clock_map_monotonic(m, source);
		if (at == monotonic)
			break;
		if (at < monotonic)
			source += monotonic - at;
		else
			source = source > at - monotonic ? source - (at - monotonic) : 0;
	}
	return source;
}

uint64_t clock_map_error(const struct clock_map *m)
{
	return m->error;
}

uint64_t clock_map_dropped(const struct clock_map *m)
{
	return m->dropped;
}

enum clock_source clock_map_source(const struct clock_map *m)
{
	return m->source;
}

const struct clock_bracket *clock_map_nearest(const struct clock_map *m, uint64_t source)
{
	size_t i;

	if (m->n == 0)
		return NULL;
	i = segment_find(m, source);
	if (i + 1 < m->n && source > m->brackets[i].source &&
	    m->brackets[i + 1].source - source < source - m->brackets[i].source)
		i++;
	return &m->brackets[i];
}

uint64_t clock_map_realtime(const struct clock_map *m, uint64_t source, uint64_t *ret_doubt)
{
	const struct clock_bracket *b = clock_map_nearest(m, source);
	uint64_t apart, ret;

	if (!b || !b->realtime)
		return 0;
	apart = source > b->source ? source - b->source : b->source - source;
	if (source > b->source ? __builtin_add_overflow(b->realtime, apart, &ret)
			       : __builtin_sub_overflow(b->realtime, apart, &ret))
		return 0;
	*ret_doubt = apart / REALTIME_OFF + b->width;
	return ret;
}

const char *clock_source_to_string(enum clock_source source)
{
	static const char *const names[] = {
		[CLOCK_SOURCE_UNKNOWN] = "perf",
		[CLOCK_SOURCE_MONOTONIC] = "monotonic",
		[CLOCK_SOURCE_MONOTONIC_RAW] = "monotonic_raw",
		[CLOCK_SOURCE_BOOTTIME] = "boottime",
		[CLOCK_SOURCE_REALTIME] = "realtime",
		[CLOCK_SOURCE_TSC] = "tsc",
	};

	return (unsigned int)source < ARRAY_SIZE(names) ? names[source] : "unknown";
}
