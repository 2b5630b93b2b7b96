// SPDX-License-Identifier: Apache-2.0
/*
 * HTTP by hand, because two GETs are all of it: the parser looks at the request line only, and
 * compares it with what it knows. A library's server (evhttp) would keep a connection, timers and
 * growing buffers for each client, and parse headers, bodies and chunks that nothing here needs.
 */
#include "daemon/status/server.h"

#include <errno.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "common/base/io.h"
#include "daemon/config.h"
#include "daemon/control/quota.h"
#include "daemon/status/picture.h"

#define REQUEST_MAX 4096

struct waiter {
	LIST_ENTRY(waiter) entry;
	struct status_server *server; /* not owned */
	int fd;
	struct quota_charge charge;
	struct event *event, *deadline;
	size_t have;
	char request[REQUEST_MAX + 1];
	struct picture *picture; /* keeps `text` */
	const char *text;        /* NULL: still reading */
	size_t len, sent;
};

struct status_server {
	struct status_server_context ctx;
	LIST_HEAD(, waiter) waiters;
	struct status_server_stats stats;
};

static const char not_found[] =
	"HTTP/1.0 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 20\r\n\r\n/status or /metrics\n";
static const char bad_request[] =
	"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 12\r\n\r\nbad request\n";
static const char no_method[] =
	"HTTP/1.0 405 Method Not Allowed\r\nAllow: GET\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\nGET only\n";
static const char no_memory[] = "HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";

static struct waiter *waiter_free(struct waiter *w)
{
	struct status_server *s;

	if (!w)
		return NULL;
	s = w->server;
	if (w->event)
		event_free(w->event);
	if (w->deadline)
		event_free(w->deadline);
	(void)close_fd(w->fd);
	picture_unref(w->picture);
	quota_release(&w->charge);
	LIST_REMOVE(w, entry);
	s->stats.waiting--;
	free(w);
	s->ctx.on_change(s->ctx.arg);
	return NULL;
}

/* The head is whole where an empty line ends it; a lone request line of HTTP/0.9 is not taken. */
static bool is_whole(const char *request, size_t len)
{
	return memmem(request, len, "\r\n\r\n", 4) || memmem(request, len, "\n\n", 2);
}

static bool is_path(const char *at, const char *path)
{
	size_t n = strlen(path);

	return strncmp(at, path, n) == 0 && (at[n] == ' ' || at[n] == '?');
}

/* What to answer: static text, or a picture's with a reference to it. */
static const char *choose(struct status_server *s, const char *request,
			  struct picture **ret_picture, size_t *ret_len)
{
	bool status, metrics;

	if (strncmp(request, "GET ", 4) != 0) {
		s->stats.bad++;
		if (strncmp(request, "HEAD ", 5) == 0 || strncmp(request, "POST ", 5) == 0 ||
		    strncmp(request, "PUT ", 4) == 0) {
			*ret_len = sizeof(no_method) - 1;
			return no_method;
		}
		*ret_len = sizeof(bad_request) - 1;
		return bad_request;
	}
	status = is_path(request + 4, "/status");
	metrics = is_path(request + 4, "/metrics");
	if (!status && !metrics) {
		s->stats.bad++;
		*ret_len = sizeof(not_found) - 1;
		return not_found;
	}
	*ret_picture = pictures_get(s->ctx.pictures);
	if (!*ret_picture) {
		*ret_len = sizeof(no_memory) - 1;
		return no_memory;
	}
	s->stats.polls++;
	return status ? picture_status(*ret_picture, ret_len)
		      : picture_metrics(*ret_picture, ret_len);
}

/* NULL while the request is not whole and may still become so. */
static const char *decide(struct status_server *s, const char *request, size_t have,
			  struct picture **ret_picture, size_t *ret_len)
{
	if (is_whole(request, have))
		return choose(s, request, ret_picture, ret_len);
	if (have < REQUEST_MAX)
		return NULL;
	s->stats.bad++;
	*ret_len = sizeof(bad_request) - 1;
	return bad_request;
}

static void on_event(evutil_socket_t fd, short what, void *arg);

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
	struct waiter *w = arg;

	(void)fd;
	(void)what;
	w->server->stats.timeouts++;
	(void)waiter_free(w);
}

/* The time for reading runs over the whole request; that for writing from the last bytes taken. */
static bool wait_for(struct waiter *w, short what)
{
	const struct config *cfg = w->server->ctx.config;
	struct timeval tv = {.tv_sec = (time_t)(what == EV_READ ? cfg->client_read_timeout_s
								: cfg->client_write_timeout_s)};

	if (w->event)
		event_free(w->event);
	w->event = event_new(w->server->ctx.base, w->fd, (short)(what | EV_PERSIST), on_event, w);
	if (!w->deadline)
		w->deadline = evtimer_new(w->server->ctx.base, on_deadline, w);
	return w->event && w->deadline && event_add(w->event, NULL) == 0 &&
	       event_add(w->deadline, &tv) == 0;
}

/* 1: all is sent; 0: wait for more room; -1: the client is gone. */
static int send_some(int fd, const char *text, size_t len, size_t *sent)
{
	ssize_t n = io_send_fds(fd, text + *sent, len - *sent, NULL, 0, MSG_DONTWAIT);

	if (n == -EAGAIN || n == -EWOULDBLOCK)
		return 0;
	if (n < 0)
		return -1;
	*sent += (size_t)n;
	return *sent == len;
}

static void on_event(evutil_socket_t fd, short what, void *arg)
{
	struct waiter *w = arg;
	int r;

	(void)what;
	if (!w->text) {
		ssize_t n = recv(fd, w->request + w->have, REQUEST_MAX - w->have, MSG_DONTWAIT);

		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
			(void)waiter_free(w);
			return;
		}
		w->have += n > 0 ? (size_t)n : 0;
		w->request[w->have] = '\0';
		w->text = decide(w->server, w->request, w->have, &w->picture, &w->len);
		if (!w->text)
			return;
	}
	r = send_some(fd, w->text, w->len, &w->sent);
	if (r != 0 || !wait_for(w, EV_WRITE))
		(void)waiter_free(w);
}

/* The slow way: keeps what was read or is to be written. */
static struct waiter *waiter_new(struct status_server *s, int *fd)
{
	struct quota_charge charge = {0};
	struct ucred cred;
	socklen_t len = sizeof(cred);
	struct waiter *w;

	if (s->ctx.room(s->ctx.arg) == 0 ||
	    getsockopt(*fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0 ||
	    quota_charge(s->ctx.quota, cred.uid, QUOTA_CONNECTIONS, 1, &charge) != 0) {
		s->stats.refused++;
		return NULL;
	}
	w = calloc(1, sizeof(*w));
	if (!w) {
		quota_release(&charge);
		return NULL;
	}
	w->server = s;
	w->charge = charge;
	w->fd = take_fd(fd);
	LIST_INSERT_HEAD(&s->waiters, w, entry);
	s->stats.waiting++;
	s->ctx.on_change(s->ctx.arg);
	return w;
}

void status_server_accept(struct status_server *s, int fd_in)
{
	_cleanup_close_ int fd = fd_in;
	char request[REQUEST_MAX + 1];
	struct picture *picture = NULL;
	const char *text = NULL;
	size_t len = 0, sent = 0;
	struct waiter *w;
	ssize_t n;

	n = recv(fd, request, REQUEST_MAX, MSG_DONTWAIT);
	if (n == 0 || (n < 0 && errno != EAGAIN))
		return;
	if (n < 0)
		n = 0;
	request[n] = '\0';
	text = decide(s, request, (size_t)n, &picture, &len);
	if (text && send_some(fd, text, len, &sent) != 0) {
		picture_unref(picture);
		return;
	}
	w = waiter_new(s, &fd);
	if (!w) {
		picture_unref(picture);
		return;
	}
	memcpy(w->request, request, (size_t)n);
	w->have = (size_t)n;
	w->picture = picture;
	w->text = text;
	w->len = len;
	w->sent = sent;
	if (!wait_for(w, text ? EV_WRITE : EV_READ))
		(void)waiter_free(w);
}

int status_server_new(const struct status_server_context *context, struct status_server **ret)
{
	struct status_server *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->ctx = *context;
	LIST_INIT(&s->waiters);
	*ret = s;
	return 0;
}

struct status_server *status_server_free(struct status_server *s)
{
	if (!s)
		return NULL;
	while (!LIST_EMPTY(&s->waiters))
		(void)waiter_free(LIST_FIRST(&s->waiters));
	free(s);
	return NULL;
}

void status_server_get_stats(const struct status_server *s, struct status_server_stats *ret)
{
	*ret = s->stats;
}
