// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/pt/blind.h"

#include <stdlib.h>

#include "decode/pt/who_ran.h"

#define SPANS 32u

/* Whether it may have run there: also where nothing is known of the CPU. */
static bool ran(const struct who_ran *who, const struct pt_blind *b, uint32_t tid, uint64_t from,
		uint64_t to)
{
	struct who_ran_span spans[SPANS];

	if (b->unseen)
		return !who_ran_stayed(who, b->cpu, tid, from, to);
	if (!who_ran_knows(who, b->cpu, from))
		return true;
	for (;;) {
		const unsigned int n = who_ran_find(who, b->cpu, from, to, spans, SPANS);

		for (unsigned int i = 0; i < n; i++)
			if (spans[i].tid == tid && spans[i].from < to && spans[i].to > from)
				return true;
		if (n < SPANS || spans[n - 1].to >= to || spans[n - 1].to <= from)
			return false;
		from = spans[n - 1].to;
	}
}

static bool has_its_own(const struct pt_blind *v, size_t n, const struct pt_blind *any,
			uint32_t tid)
{
	for (size_t i = 0; i < n; i++)
		if (v[i].tid == tid && v[i].cpu == any->cpu && v[i].from >= any->from)
			return true;
	return false;
}

static int compare(const void *a, const void *b)
{
	const struct pt_blind *x = a, *y = b;

	return x->from < y->from ? -1 : x->from > y->from;
}

void pt_blind_sort(struct pt_blind *v, size_t n)
{
	uint64_t latest = 0;

	if (n)
		qsort(v, n, sizeof(*v), compare);
	for (size_t i = 0; i < n; i++) {
		if (v[i].to > latest)
			latest = v[i].to;
		v[i].latest = latest;
	}
}

/* How many begin before `to`. */
static size_t before(const struct pt_blind *v, size_t n, uint64_t to)
{
	size_t low = 0, high = n;

	while (low < high) {
		const size_t mid = low + (high - low) / 2;

		if (v[mid].from < to)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

const struct pt_blind *pt_blind_find(const struct pt_blind *v, size_t n, const struct who_ran *who,
				     uint32_t tid, uint64_t from, uint64_t to)
{
	const struct pt_blind *first = NULL;

	for (size_t i = before(v, n, to); i > 0 && v[i - 1].latest > from; i--) {
		const struct pt_blind *b = &v[i - 1];

		if (b->to <= from || (b->tid && b->tid != tid) ||
		    (b->unknown && has_its_own(v, n, b, tid)))
			continue;
		if (ran(who, b, tid, b->from > from ? b->from : from, b->to < to ? b->to : to))
			first = b;
	}
	return first;
}
