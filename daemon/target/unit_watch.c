// SPDX-License-Identifier: Apache-2.0
#include "daemon/target/unit_watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "common/base/log.h"
#include "daemon/target/target_internal.h"

/* Reads of one turn of the loop: what is left comes at the next. */
#define READS_MAX 16

struct unit_watch {
	struct targets *targets; /* back pointer */
	int fd;
	struct event *event;
};

static bool is_of(const struct target *target, const struct inotify_event *ev)
{
	const char *name = strrchr(target->cgroup.path, '/');

	if (ev->mask & IN_Q_OVERFLOW)
		return target->watched.events >= 0;
	if (ev->wd == target->watched.events)
		return true;
	/* Others come and go beside it. */
	return ev->wd == target->watched.parent && ev->len && name &&
	       strcmp(ev->name, name + 1) == 0;
}

static void on_event(struct unit_watch *watch, const struct inotify_event *ev)
{
	struct target *target;

	TAILQ_FOREACH(target, &watch->targets->list, link)
		if (target->scope == TARGET_UNIT && target->state == TARGET_ARMED &&
		    is_of(target, ev))
			unit_look(target);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	union {
		struct inotify_event align;
		char bytes[4096];
	} buf;
	struct unit_watch *watch = arg;

	for (unsigned int i = 0; i < READS_MAX; i++) {
		const ssize_t n = read(watch->fd, buf.bytes, sizeof(buf.bytes));

		if (n <= 0)
			return;
		for (size_t at = 0; at + sizeof(struct inotify_event) <= (size_t)n;) {
			const struct inotify_event *ev = (const void *)(buf.bytes + at);

			on_event(watch, ev);
			at += sizeof(*ev) + ev->len;
		}
	}
}

static int add(const struct unit_watch *watch, const struct target *target, const char *what,
	       uint32_t mask)
{
	char path[64];
	int wd;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", target->cgroup.dirfd, what);
	wd = inotify_add_watch(watch->fd, path, mask);
	if (wd < 0)
		log_debug("%s: its control group is looked at once a second: %s", target->name,
			  strerror(errno));
	return wd;
}

void unit_watch_set(struct unit_watch *watch, struct target *target)
{
	unit_watch_clear(watch, target);
	if (target->scope != TARGET_UNIT || watch->fd < 0)
		return;
	target->watched.events = add(watch, target, "cgroup.events", IN_MODIFY);
	target->watched.parent = add(watch, target, "..", IN_CREATE | IN_ONLYDIR);
}

/* Those of one directory have one number. */
static bool is_needed(const struct unit_watch *watch, int wd)
{
	const struct target *target;

	TAILQ_FOREACH(target, &watch->targets->list, link)
		if (target->watched.events == wd || target->watched.parent == wd)
			return true;
	return false;
}

static void drop(struct unit_watch *watch, int *wd)
{
	const int old = *wd;

	*wd = -1;
	if (old >= 0 && !is_needed(watch, old))
		/* the kernel has done so where the directory is gone */
		(void)inotify_rm_watch(watch->fd, old);
}

void unit_watch_clear(struct unit_watch *watch, struct target *target)
{
	drop(watch, &target->watched.events);
	drop(watch, &target->watched.parent);
}

int unit_watch_new(struct targets *targets, struct unit_watch **ret)
{
	struct unit_watch *watch = calloc(1, sizeof(*watch));

	if (!watch)
		return -ENOMEM;
	watch->targets = targets;
	watch->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (watch->fd < 0) {
		log_debug("units are looked at once a second: %s", strerror(errno));
	} else {
		watch->event = event_new(targets->base, watch->fd, EV_READ | EV_PERSIST,
					 on_readable, watch);
		if (!watch->event || event_add(watch->event, NULL) < 0)
			return unit_watch_free(watch), -ENOMEM;
	}
	*ret = watch;
	return 0;
}

struct unit_watch *unit_watch_free(struct unit_watch *watch)
{
	if (!watch)
		return NULL;
	if (watch->event)
		event_free(watch->event);
	(void)close_fd(watch->fd);
	free(watch);
	return NULL;
}
