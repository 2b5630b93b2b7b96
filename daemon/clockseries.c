// SPDX-License-Identifier: Apache-2.0
#include "daemon/clockseries.h"

#include <errno.h>

struct clockseries {
	struct event *timer;
	clockseries_wanted_fn wanted;
	void *arg;
	struct clocks clocks;
};

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct clockseries *s = arg;

	clocks_take(&s->clocks);
	if (!s->wanted(s->arg))
		(void)event_del(s->timer);
}

int clockseries_new(struct event_base *base, clockseries_wanted_fn wanted, void *arg, struct clockseries **ret)
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
	clocks_take(&s->clocks);
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
	clocks_take(&s->clocks);
	(void)event_add(s->timer, &second);
}

void clockseries_take(struct clockseries *s)
{
	clocks_take(&s->clocks);
}

const struct clocks *clockseries_get(const struct clockseries *s)
{
	return &s->clocks;
}
