// SPDX-License-Identifier: Apache-2.0
/*
 * Causes: what producers write where they want a snapshot (struct ring_cause). Nothing read here is
 * trusted: places and sequences are bounded, an entry counts only if it was complete before and
 * after it was copied, and times are forced into the order begin <= end <= now.
 */
#include <errno.h>
#include <string.h>

#include "common/base/escape.h"
#include "common/base/io.h"
#include "common/bundle/clocks.h"
#include "daemon/base/clockseries.h"
#include "daemon/producer/producer_internal.h"

void producer_causes_skip(struct producer *p, uint64_t head)
{
	/* The last sequence that can be at each place. */
	for (uint64_t i = 0; i < RING_CAUSES && i < head; i++)
		p->taken[(head - 1 - i) % RING_CAUSES] = head - i;
}

/* The moment of reading, and how fast the ring's clock counts. */
struct moment {
	struct clocks_bracket now;
	uint64_t rate;
};

static uint64_t to_raw(const struct producer *p, const struct moment *m, uint64_t stamp)
{
	uint64_t ago;

	if (p->clock == RING_CLOCK_MONOTONIC_RAW)
		return stamp < m->now.raw ? stamp : m->now.raw;
	if (stamp >= m->now.tsc || m->rate == 0)
		return m->now.raw;
	ago = (uint64_t)((unsigned __int128)(m->now.tsc - stamp) * 1000000000u / m->rate);
	return ago < m->now.raw ? m->now.raw - ago : 0;
}

static void cause_report(struct producer *p, const struct ring_cause *c, const struct moment *m)
{
	char text[RING_CAUSE_TEXT * 4 + 1];
	struct producer_cause cause = {.kind = (enum ring_cause_kind)c->kind,
				       .trigger = c->trigger,
				       .text = text};
	struct producers *ps = p->ps;
	size_t length = c->length;

	if ((c->kind != RING_CAUSE_REGION && c->kind != RING_CAUSE_REQUEST) ||
	    length > sizeof(c->text)) {
		ps->causes_bad++;
		return;
	}
	(void)escape_text(text, sizeof(text), (const char *)c->text, length);
	cause.tid = producer_tid_here(p, c->tid);
	cause.end_raw_ns = to_raw(p, m, c->end);
	cause.begin_raw_ns = to_raw(p, m, c->begin);
	if (cause.begin_raw_ns > cause.end_raw_ns)
		cause.begin_raw_ns = cause.end_raw_ns;
	ps->causes++;
	if (ps->callbacks.cause)
		ps->callbacks.cause(ps->callbacks.arg, p, &cause);
}

/* The place with the lowest sequence that was not taken yet; -1: none. */
static int next_place(const struct producer *p, const struct ring_cause *causes, uint64_t head)
{
	int found = -1;

	for (int i = 0; i < (int)RING_CAUSES; i++) {
		uint64_t sequence = causes[i].sequence;

		if (sequence <= p->taken[i] || sequence > head ||
		    (sequence - 1) % RING_CAUSES != (uint64_t)i)
			continue;
		if (found < 0 || sequence < causes[found].sequence)
			found = i;
	}
	return found;
}

/* Whether the entry still is the one that was copied. */
static bool is_whole(const struct producer *p, int place, const struct ring_cause *c)
{
	return producer_read_u64(p, RING_CAUSES_OFFSET + (size_t)place * sizeof(*c)) == c->sequence;
}

void producer_causes_take(struct producer *p)
{
	struct ring_cause causes[RING_CAUSES];
	struct moment m;
	uint64_t head = producer_read_u64(p, offsetof(struct ring_header, cause_head)), missed;
	int i;

	if (io_pread_full(p->memory_fd, causes, sizeof(causes), RING_CAUSES_OFFSET) !=
	    sizeof(causes))
		return;
	clocks_read(p->tsc, &m.now);
	m.rate = clockseries_ticks_per_second(p->ps->clocks, &m.now);
	/*
	 * Each turn takes one of at most RING_CAUSES places. One that is still being written wakes
	 * us again.
	 */
	while (p->ps && p->state == PRODUCER_LIVE && (i = next_place(p, causes, head)) >= 0) {
		missed = (causes[i].sequence - p->taken[i] - 1) / RING_CAUSES;
		p->ps->causes_lost += missed < UINT32_MAX ? missed : UINT32_MAX;
		p->taken[i] = causes[i].sequence;
		if (is_whole(p, i, &causes[i]))
			cause_report(p, &causes[i], &m);
		else
			p->ps->causes_lost++;
	}
}
