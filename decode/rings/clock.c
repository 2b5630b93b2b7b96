// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/rings/clock.h"

#include <errno.h>

#define SECOND UINT64_C(1000000000)
/* Field 22 of /proc/PID/stat counts these: USER_HZ, which is 100 on all that we run on. */
#define START_TICK_NS UINT64_C(10000000)
/* CPUs whose counters differ, and a pair of readings that took its time. */
#define SLACK_NS UINT64_C(10000000)

void ringclock_fini(struct ringclock *c)
{
	free(c->points);
	*c = (struct ringclock){0};
}

static int point_compare(const void *a, const void *b)
{
	const struct ringclock_point *x = a, *y = b;

	if (x->stamp != y->stamp)
		return x->stamp < y->stamp ? -1 : 1;
	return x->raw < y->raw ? -1 : x->raw > y->raw;
}

/*
 * Keeps what rises, looking back from the copy's own readings: a counter that was reset, in a
 * suspend, makes what came before it useless.
 */
static void points_settle(struct ringclock *c, const struct ringfile_header *h)
{
	const struct ringclock_point own[] = {
		{h->begin_tsc, h->begin_raw_ns}, {h->end_tsc, h->end_raw_ns}};
	size_t kept;

	if (c->n)
		qsort(c->points, c->n, sizeof(*c->points), point_compare);
	c->points[c->n] = own[0];
	c->points[c->n + 1] = own[1];
	c->n += 2;
	kept = c->n - 1;
	for (size_t i = c->n - 1; i-- > 0;) {
		const struct ringclock_point p = c->points[i];

		if (p.stamp && p.raw && p.stamp < c->points[kept].stamp &&
		    p.raw < c->points[kept].raw)
			c->points[--kept] = p;
	}
	c->n -= kept;
	for (size_t i = 0; i < c->n; i++)
		c->points[i] = c->points[kept + i];
}

static uint64_t rescale(uint64_t value, uint64_t num, uint64_t den)
{
	__uint128_t v = ((__uint128_t)value * num + den / 2) / den;

	return v > UINT64_MAX ? UINT64_MAX : (uint64_t)v;
}

static uint64_t convert(struct ringclock *c, uint64_t stamp)
{
	const struct ringclock_point *first, *last, *a, *b;
	uint64_t d;

	if (c->n == 0)
		return stamp;
	first = &c->points[0];
	last = &c->points[c->n - 1];
	if (stamp < first->stamp || stamp > last->stamp) {
		/*
		 * The whole series' rate: two readings close to each other give one made of their
		 * errors.
		 */
		if (c->n == 1)
			return 0;
		if (stamp < first->stamp) {
			d = rescale(first->stamp - stamp, last->raw - first->raw,
				    last->stamp - first->stamp);
			return d < first->raw ? first->raw - d : 0;
		}
		d = rescale(stamp - last->stamp, last->raw - first->raw,
			    last->stamp - first->stamp);
		return d < UINT64_MAX - last->raw ? last->raw + d : UINT64_MAX;
	}
	if (c->n == 1)
		return first->raw;
	if (stamp < c->points[c->last].stamp || stamp > c->points[c->last + 1].stamp) {
		size_t lo = 0, hi = c->n - 1;

		while (hi - lo > 1) {
			size_t mid = lo + (hi - lo) / 2;

			if (c->points[mid].stamp <= stamp)
				lo = mid;
			else
				hi = mid;
		}
		c->last = lo;
	}
	a = &c->points[c->last];
	b = a + 1;
	return a->raw + rescale(stamp - a->stamp, b->raw - a->raw, b->stamp - a->stamp);
}

/*
 * The start time of the process is of BOOTTIME; a bracket that has both clocks gives the distance.
 * It was less before a suspend, and adjusting of the clock has moved it by a part in a thousand at
 * most: the bound errs to the early side.
 */
static uint64_t process_start(const struct ringfile_header *h, const struct clock_bracket *brackets,
			      size_t n)
{
	const struct clock_bracket *b = NULL;
	uint64_t start, back, age;

	for (size_t i = 0; i < n; i++)
		if (brackets[i].boottime && brackets[i].monotonic &&
		    (!b || brackets[i].monotonic > b->monotonic))
			b = &brackets[i];
	if (!b || h->start_time == 0 || h->start_time > UINT64_MAX / START_TICK_NS)
		return 0;
	start = h->start_time * START_TICK_NS;
	if (start > b->boottime)
		return 0;
	age = b->boottime - start;
	back = age + age / 1000 + SECOND;
	return back < b->monotonic ? b->monotonic - back : 0;
}

int ringclock_init(struct ringclock *ret, const struct ringfile_header *h,
	const struct clock_bracket *brackets, size_t n_brackets, uint64_t started_u)
{
	struct ringclock c = {.newest = h->end_raw_ns};
	uint64_t started;

	if (h->clock == RING_CLOCK_TSC) {
		c.points = calloc(n_brackets + 2, sizeof(*c.points));
		if (!c.points)
			return -ENOMEM;
		for (; c.n < n_brackets; c.n++)
			c.points[c.n] = (struct ringclock_point){brackets[c.n].source,
								 brackets[c.n].monotonic};
		points_settle(&c, h);
	}
	c.oldest = process_start(h, brackets, n_brackets);
	c.newest += SLACK_NS < UINT64_MAX - c.newest ? SLACK_NS : UINT64_MAX - c.newest;
	if (c.oldest == 0 && started_u) {
		started = convert(&c, started_u);
		if (started > SECOND && started <= h->end_raw_ns)
			c.oldest = started - SECOND;
	}
	if (c.oldest == 0)
		c.oldest = 1;
	*ret = c;
	return 0;
}

bool ringclock_place(struct ringclock *c, uint64_t stamp_u, uint64_t *ret_ns)
{
	uint64_t ns;

	if (stamp_u == 0)
		return false;
	ns = convert(c, stamp_u);
	if (ns < c->oldest || ns > c->newest)
		return false;
	*ret_ns = ns;
	return true;
}
