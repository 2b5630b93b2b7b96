// SPDX-License-Identifier: Apache-2.0
/* The order of time: which stamps of a ring cannot be right, and all records sorted. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "decode/rings/events_internal.h"

/* ---- stamps that are out of the order of their ring */

/*
 * Marks the longest rising sequence of a ring's times: `prev` links it, and `tails` holds the
 * last of the best of each length.
 */
static void longest_rising(const struct ringrec *v, uint32_t n, uint32_t *tails, uint32_t *prev)
{
	uint32_t len = 0, at;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t lo = 0, hi = len;

		while (lo < hi) {
			uint32_t mid = lo + (hi - lo) / 2;

			if (v[tails[mid]].ts <= v[i].ts)
				lo = mid + 1;
			else
				hi = mid;
		}
		prev[i] = lo ? tails[lo - 1] : UINT32_MAX;
		tails[lo] = i;
		if (lo == len)
			len++;
	}
	/* From here on prev[i] says whether i is of the sequence: i itself. */
	at = len ? tails[len - 1] : UINT32_MAX;
	for (uint32_t i = n; i-- > 0;) {
		uint32_t next = prev[i];

		if (i == at) {
			at = next;
			prev[i] = i;
		} else {
			prev[i] = UINT32_MAX;
		}
	}
}

void ringevents_drop_disorder(struct ringevents *r, size_t first)
{
	struct ringrec *v = r->recs + first;
	const uint32_t n = (uint32_t)(r->n_recs - first);
	const uint64_t bytes = (uint64_t)n * 2 * sizeof(uint32_t);
	_cleanup_free_ uint32_t *tails = NULL;
	uint32_t *prev;
	uint64_t low = 0;

	if (!budget_take(r->budget, bytes))
		return;
	tails = calloc((size_t)n + 1, 2 * sizeof(*tails));
	if (tails) {
		prev = tails + n;
		longest_rising(v, n, tails, prev);
		for (uint32_t i = 0; i < n; i++) {
			if (prev[i] == i)
				low = v[i].ts;
			else if (v[i].ts < low && low - v[i].ts > RINGEVENTS_DISORDER_NS)
				v[i].flags |= RINGREC_DROPPED;
		}
		low = UINT64_MAX;
		for (uint32_t i = n; i-- > 0;) {
			if (prev[i] == i)
				low = v[i].ts;
			else if (v[i].ts > low && v[i].ts - low > RINGEVENTS_DISORDER_NS)
				v[i].flags |= RINGREC_DROPPED;
		}
	}
	budget_give(r->budget, bytes);
}

/* ---- all of them */

struct key {
	uint64_t ts;
	uint32_t rec;
};

/*
 * Sorts by time, equal ones as they are: eleven bits in each round, as many rounds as the times
 * differ in.
 */
static void keys_sort(struct key *v, struct key *spare, size_t n)
{
	enum { BITS = 11, BINS = 1 << BITS };
	uint64_t all_or = 0, all_and = UINT64_MAX, differ;
	struct key *from = v, *to = spare;

	for (size_t i = 0; i < n; i++) {
		all_or |= v[i].ts;
		all_and &= v[i].ts;
	}
	differ = all_or ^ all_and;
	for (unsigned shift = 0; shift < 64; shift += BITS) {
		size_t count[BINS] = {0}, sum = 0;

		if (!(differ >> shift & (BINS - 1)))
			continue;
		for (size_t i = 0; i < n; i++)
			count[from[i].ts >> shift & (BINS - 1)]++;
		for (size_t b = 0; b < BINS; b++) {
			size_t c = count[b];

			count[b] = sum;
			sum += c;
		}
		for (size_t i = 0; i < n; i++)
			to[count[from[i].ts >> shift & (BINS - 1)]++] = from[i];
		struct key *t = from;

		from = to;
		to = t;
	}
	if (from != v && n)
		memcpy(v, from, n * sizeof(*v));
}

int ringevents_sort(struct ringevents *r)
{
	_cleanup_free_ struct key *keys = calloc(r->n_recs + 1, sizeof(*keys));
	_cleanup_free_ struct key *spare = calloc(r->n_recs + 1, sizeof(*spare));
	struct ringrec *recs;
	size_t n = 0;

	if (!keys || !spare)
		return -ENOMEM;
	for (size_t i = 0; i < r->n_recs; i++)
		if (!(r->recs[i].flags & RINGREC_DROPPED))
			keys[n++] = (struct key){r->recs[i].ts, (uint32_t)i};
	keys_sort(keys, spare, n);
	free(take_ptr(spare));
	recs = calloc(n + 1, sizeof(*recs));
	if (!recs)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		recs[i] = r->recs[keys[i].rec];
	free(r->recs);
	r->recs = recs;
	r->n_recs = n;
	r->cap_recs = n + 1;
	return 0;
}
