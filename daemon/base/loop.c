// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/loop.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <stdlib.h>

#include "common/base/cleanup.h"

static struct event_base *base_new(void)
{
	struct event_config *cfg = event_config_new();
	struct event_base *base;

	if (!cfg)
		return NULL;
	/* One thread uses it; the copier comes back through an eventfd. */
	(void)event_config_set_flag(cfg, EVENT_BASE_FLAG_NOLOCK);
	base = event_base_new_with_config(cfg);
	event_config_free(cfg);
	return base;
}

static void on_reserved(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)arg;
}

/*
 * The heap of timers grows by realloc() and never shrinks. It grows here to its largest size, so
 * that arming a timer later cannot fail: code that waits for a time in the middle of something has
 * no way out. Events on descriptors are checked where they are made; adding one again allocates
 * nothing.
 */
static int reserve_timers(struct event_base *base, size_t n)
{
	_cleanup_free_ struct event *timers = calloc(n, sizeof(*timers));
	static const struct timeval later = {.tv_sec = 3600};
	size_t added = 0;
	int r = timers ? 0 : -ENOMEM;

	while (r == 0 && added < n) {
		if (evtimer_assign(&timers[added], base, on_reserved, NULL) < 0 ||
		    event_add(&timers[added], &later) < 0)
			r = -ENOMEM;
		else
			added++;
	}
	while (added > 0)
		(void)event_del(&timers[--added]);
	return r;
}

int loop_new(size_t n_timers, struct event_base **ret)
{
	struct event_base *base = base_new();

	if (!base)
		return -ENOMEM;
	if (reserve_timers(base, n_timers) < 0) {
		event_base_free(base);
		return -ENOMEM;
	}
	*ret = base;
	return 0;
}
