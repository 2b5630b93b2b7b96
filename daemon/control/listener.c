// SPDX-License-Identifier: Apache-2.0
/* accept() with a budget, a reserve and a pause. */
#include "daemon/control/listener.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "common/base/log.h"

#define ACCEPT_BUDGET 64 /* connections a tick */

struct listener {
	int fd;
	struct event *event;
	struct event *retry; /* while paused: descriptors are also closed where we cannot see it */
	char *unlink_path;
	listener_accept accept;
	void *arg;
	struct listener_stats stats;
};

DEFINE_CLEANUP(struct listener *, listener_free)

int listener_bind(const struct listener_place *place, int *ret_fd)
{
	_cleanup_close_ int fd = -1;
	mode_t mode = place->mode;
	struct sockaddr_un tmp = {.sun_family = AF_UNIX}, final = {.sun_family = AF_UNIX};
	int n, r;

	n = snprintf(tmp.sun_path, sizeof(tmp.sun_path), "%s/.%s.new", place->dir, place->name);
	if (n < 0 || (size_t)n >= sizeof(tmp.sun_path))
		return -ENAMETOOLONG;
	(void)snprintf(final.sun_path, sizeof(final.sun_path), "%s/%s", place->dir, place->name);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (unlink(tmp.sun_path) < 0 && errno != ENOENT)
		return -errno;
	if (bind(fd, (struct sockaddr *)&tmp, sizeof(tmp)) < 0)
		return -errno;
	/* Group first: the mode must never be given to the wrong one. */
	r = place->gid == (gid_t)-1 ? -1 : lchown(tmp.sun_path, (uid_t)-1, place->gid);
	/*
	 * Where the group cannot be given, its permissions must not go to the one that the file
	 * has.
	 */
	if (r < 0)
		mode = (mode & ~(mode_t)070) | (mode & 07) << 3;
	r = chmod(tmp.sun_path, mode);
	if (r == 0)
		r = listen(fd, SOMAXCONN);
	if (r == 0)
		r = rename(tmp.sun_path, final.sun_path);
	if (r < 0) {
		r = -errno;
		(void)unlink(tmp.sun_path);
		return r;
	}
	*ret_fd = take_fd(&fd);
	return 0;
}

static void pause_accepting(struct listener *l)
{
	static const struct timeval retry_after = {.tv_sec = 1};

	if (l->stats.is_paused)
		return;
	l->stats.is_paused = true;
	l->stats.paused++;
	log_debug("out of descriptors: not accepting connections for now");
	(void)event_del(l->event);
	(void)event_add(l->retry, &retry_after);
}

void listener_resume(struct listener *l)
{
	if (!l || !l->stats.is_paused)
		return;
	l->stats.is_paused = false;
	(void)event_del(l->retry);
	(void)event_add(l->event, NULL);
}

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	listener_resume(arg);
}

/* Where few descriptors are allowed the reserve is a third of them, or nobody would be let in. */
static bool is_in_reserve(int fd)
{
	struct rlimit rl;
	rlim_t reserve = LISTENER_RESERVE;

	if (getrlimit(RLIMIT_NOFILE, &rl) < 0 || rl.rlim_cur == RLIM_INFINITY)
		return false;
	if (reserve > rl.rlim_cur / 3)
		reserve = rl.rlim_cur / 3;
	return (rlim_t)fd >= rl.rlim_cur - reserve;
}

static void on_readable(evutil_socket_t lfd, short what, void *arg)
{
	struct listener *l = arg;

	(void)what;
	for (int i = 0; i < ACCEPT_BUDGET; i++) {
		int fd = accept4(lfd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0) {
			/*
			 * EAGAIN: the backlog is empty. EMFILE, ENFILE, ENOBUFS, ENOMEM: wait for
			 * better times, or the loop would spin on a socket that stays readable.
			 * Others (ECONNABORTED, EINTR) concern one connection.
			 */
			if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
			    errno == ENOMEM)
				pause_accepting(l);
			if (errno == ECONNABORTED || errno == EINTR)
				continue;
			return;
		}
		/*
		 * The lowest free number is what a new descriptor gets: it says how many are open.
		 */
		if (is_in_reserve(fd)) {
			(void)close_fd(fd);
			pause_accepting(l);
			return;
		}
		l->stats.accepted++;
		l->accept(l->arg, fd);
		if (l->stats.is_paused)
			return;
	}
}

static int check_socket(int fd)
{
	int value;
	socklen_t len = sizeof(value);

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &len) < 0)
		return -errno;
	if (value != AF_UNIX)
		return -EINVAL;
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &len) < 0)
		return -errno;
	if (value != SOCK_STREAM)
		return -EINVAL;
	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &len) < 0)
		return -errno;
	return value ? 0 : -EINVAL;
}

int listener_new(struct event_base *base, int fd, const char *unlink_path, listener_accept accept,
		 void *arg, struct listener **ret)
{
	_cleanup_(listener_freep) struct listener *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	l->fd = -1;
	r = check_socket(fd);
	if (r < 0)
		return r;
	(void)evutil_make_socket_nonblocking(fd);
	(void)evutil_make_socket_closeonexec(fd);
	if (unlink_path) {
		l->unlink_path = strdup(unlink_path);
		if (!l->unlink_path)
			return -ENOMEM;
	}
	l->accept = accept;
	l->arg = arg;
	l->event = event_new(base, fd, EV_READ | EV_PERSIST, on_readable, l);
	l->retry = evtimer_new(base, on_retry, l);
	if (!l->event || !l->retry || event_add(l->event, NULL) < 0)
		return -ENOMEM;
	l->fd = fd;
	*ret = take_ptr(l);
	return 0;
}

struct listener *listener_free(struct listener *l)
{
	if (!l)
		return NULL;
	if (l->event)
		event_free(l->event);
	if (l->retry)
		event_free(l->retry);
	(void)close_fd(l->fd);
	if (l->unlink_path && l->fd >= 0)
		(void)unlink(l->unlink_path);
	free(l->unlink_path);
	free(l);
	return NULL;
}

void listener_get_stats(const struct listener *l, struct listener_stats *ret)
{
	*ret = l ? l->stats : (struct listener_stats){0};
}
