// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/clockseries.h"

#include <errno.h>

/* Shorter than this, the width of two brackets is too much of it. */
#define RATE_MIN_NS 200000

struct clockseries {
	struct event *timer;
	clockseries_wanted_fn wanted;
	void *arg;
	struct clocks clocks;
	/* where the TSC's rate is measured from: forgotten by a suspend only */
	struct clocks_bracket first;
	uint64_t suspends;
};

/* All brackets are taken here. */
static void take(struct clockseries *s)
{
	clocks_take(&s->clocks);
	if (s->first.raw && s->suspends == s->clocks.suspends)
		return;
	s->first = s->clocks.brackets[s->clocks.n_brackets - 1];
	s->suspends = s->clocks.suspends;
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct clockseries *s = arg;

	take(s);
	if (!s->wanted(s->arg))
		(void)event_del(s->timer);
}

int clockseries_new(struct event_base *base, clockseries_wanted_fn wanted, void *arg,
		    struct clockseries **ret)
{
	_cleanup_(clockseries_freep) struct clockseries *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->wanted = wanted;
	s->arg = arg;
	s->clocks.tsc_usable = clocks_tsc_usable();
	s->timer = event_new(base, -1, EV_PERSIST, on_timer, s);
	if (!s->timer)
		return -ENOMEM;
	take(s);
	*ret = take_ptr(s);
	return 0;
}

void clockseries_free(struct clockseries *s)
{
	if (!s)
		return;
	if (s->timer)
		event_free(s->timer);
	free(s);
}

void clockseries_start(struct clockseries *s)
{
	const struct timeval second = {.tv_sec = 1};

	if (event_pending(s->timer, EV_TIMEOUT, NULL))
		return;
	/* Nobody looked at the clocks for a while: what is old says little about now. */
	clocks_forget(&s->clocks, UINT64_MAX);
	take(s);
	(void)event_add(s->timer, &second);
}

void clockseries_take(struct clockseries *s)
{
	take(s);
}

const struct clocks *clockseries_get(const struct clockseries *s)
{
	return &s->clocks;
}

uint64_t clockseries_ticks_per_second(const struct clockseries *s, const struct clocks_bracket *now)
{
	struct clocks_bracket own;
	uint64_t ns;

	if (!s->clocks.tsc_usable)
		return 0;
	if (!now) {
		clocks_read(true, &own);
		now = &own;
	}
	ns = now->raw - s->first.raw;
	if (now->tsc <= s->first.tsc || ns < RATE_MIN_NS)
		return 0;
	return (uint64_t)((unsigned __int128)(now->tsc - s->first.tsc) * 1000000000u / ns);
}
