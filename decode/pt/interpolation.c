// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/pt/interpolation.h"

/* They happened from the stamp on, and before `time`, when `insns` had been executed. */
static void spread(const struct interpolation *s, struct ptflow_event *events, size_t n,
		   uint64_t time, uint64_t insns)
{
	const double ticks = (double)(time - s->time), all = (double)(insns - s->insns);

	if (time <= s->time || insns <= s->insns)
		return;
	for (size_t i = 0; i < n; i++) {
		const uint64_t done = events[i].insns > s->insns ? events[i].insns - s->insns : 0;
		const uint64_t at = s->time + (uint64_t)(ticks * (double)done / all);

		if (done == 0)
			continue;
		events[i].time = at < time ? at : time;
		events[i].interpolated = true;
	}
}

static void begin(struct interpolation *s, const struct ptflow_event *e)
{
	*s = (struct interpolation){.max = s->max,
				    .on = e->time != 0,
				    .time = e->time,
				    .insns = e->insns};
}

size_t interpolation_events(struct interpolation *s, struct ptflow_event *events, size_t n)
{
	size_t first = 0; /* that waits for the next stamp */

	for (size_t i = 0; i < n; i++) {
		const struct ptflow_event *e = &events[i];

		switch (e->kind) {
		case PTFLOW_ENABLE:
		case PTFLOW_RESYNC:
			begin(s, e);
			first = i + 1;
			continue;
		case PTFLOW_OVERFLOW:
		case PTFLOW_DESYNC:
			/* when it happened is not known: no time is taken from it */
			s->on = false;
			first = i + 1;
			continue;
		default:
			break;
		}
		if (!s->on) {
			first = i + 1;
			continue;
		}
		/* what was taken for a stamp was an estimate, and too late */
		if (e->time < s->time && e->time) {
			begin(s, e);
			first = i + 1;
		} else if (e->time > s->time) {
			if (!s->too_many)
				spread(s, events + first, i - first, e->time, e->insns);
			begin(s, e);
			first = i + 1;
		}
		if (e->kind == PTFLOW_DISABLE || e->kind == PTFLOW_DISABLE_ASYNC) {
			s->on = false;
			first = i + 1;
		} else if (i + 1 - first > s->max) {
			s->too_many = true;
		}
		if (s->too_many)
			first = i + 1;
	}
	return first;
}

void interpolation_end(struct interpolation *s, struct ptflow_event *events, size_t n,
		       uint64_t time, uint64_t insns)
{
	if (s->on && !s->too_many)
		spread(s, events, n, time, insns);
	s->on = false;
}

void interpolation_round(uint64_t from, struct ptflow_event *events, size_t n)
{
	const uint64_t most = n && events[n - 1].time > from
				      ? (events[n - 1].time - from) / n / INTERPOLATION_STEPS
				      : 0;
	uint64_t digits, last = from, before = from;

	if (most < INTERPOLATION_FINE)
		return;
	digits = UINT64_MAX << (63 - __builtin_clzll(most));
	for (size_t i = 0; i < n; i++) {
		const uint64_t exact = events[i].time, rounded = from + ((exact - from) & digits);

		if (rounded > last)
			last = rounded;
		else if (exact > before)
			last++;
		events[i].time = last;
		before = exact;
	}
}
