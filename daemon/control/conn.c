// SPDX-License-Identifier: Apache-2.0
/* One client of the control socket. */
#include "daemon/control/conn_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "daemon/config.h"
#include "daemon/control/subscribers.h"

#define READ_BUDGET 16                /* requests a tick */
#define WRITE_BUDGET (256u * 1024)    /* bytes a tick */
#define READ_PAUSE_BYTES (256u * 1024) /* waiting for a client: above this it is not read from */
#define READ_PAUSE_FDS FRAME_FDS_MAX   /* and this many descriptors */
/*
 * Descriptors that are on their way count against all of us: beyond RLIMIT_NOFILE the kernel takes
 * no more from this user, not even for a decoder. Each message may carry 16, so few fit in here.
 */
#define SEND_BUFFER (32 * 1024)
#define S_NS 1000000000ull

DEFINE_CLEANUP(struct conn *, conn_free)

static uint64_t seconds(unsigned int s)
{
	return (uint64_t)s * S_NS;
}

/* ---- deadlines: one timer a connection, at the earliest of what it may wait for */

/* A subscriber may be silent: it gets a ping now and then, and is not closed for silence. */
static bool may_be_silent(const struct conn *c)
{
	return c->subscriber || c->gone;
}

static uint64_t next_deadline(const struct conn *c)
{
	const struct config *cfg = c->conns->ctx.config;
	uint64_t at = UINT64_MAX, t;

	if (c->half_since) {
		t = c->half_since + seconds(cfg->client_read_timeout_s);
		at = t < at ? t : at;
	}
	if (c->write_since) {
		t = c->write_since + seconds(cfg->client_write_timeout_s);
		at = t < at ? t : at;
	}
	if (c->ping_id) {
		t = c->ping_since + seconds(cfg->client_read_timeout_s);
		at = t < at ? t : at;
	} else if (c->n_pendings == 0) {
		t = c->active + seconds(may_be_silent(c) ? cfg->client_ping_s : cfg->client_idle_s);
		at = t < at ? t : at;
	}
	return at;
}

/*
 * The loop has no memory to wait for this connection. shutdown() wakes it in the direction that it
 * waits for already, and the client sees the end in place of an answer.
 */
static void cut(struct conn *c)
{
	log_debug("client uid=%u pid=%d is cut off: the event loop has no memory to wait for it",
		  (unsigned int)c->peer.uid, (int)c->peer.pid);
	(void)shutdown(c->fd, SHUT_RDWR);
}

/* Arms the timer if it would fire too late; one that fires too early just looks again. */
static void update_timer(struct conn *c)
{
	uint64_t at = next_deadline(c), now, wait;
	struct timeval tv;

	if (at == UINT64_MAX || (c->timer_at && c->timer_at <= at))
		return;
	now = io_now_ns();
	wait = at > now ? at - now : 0;
	tv = (struct timeval){.tv_sec = (time_t)(wait / S_NS),
			      .tv_usec = (suseconds_t)(wait % S_NS / 1000) + 1};
	if (tv.tv_usec >= 1000000)
		tv = (struct timeval){.tv_sec = tv.tv_sec + 1};
	if (event_add(c->on_time, &tv) == 0)
		c->timer_at = at;
	else
		cut(c);
}

/* The caller looks at c->dead afterwards. */
static void set_reading(struct conn *c, bool on)
{
	if (on == c->reading)
		return;
	c->reading = on;
	if (!on)
		(void)event_del(c->on_read);
	else if (event_add(c->on_read, NULL) < 0)
		c->dead = true;
}

static size_t queue_limit(const struct conn *c)
{
	return (size_t)c->conns->ctx.config->client_queue_kib * 1024;
}

/*
 * So much waits for the client that it must read before it may ask again. Well below the limit at
 * which it is dropped.
 */
static bool has_enough(const struct conn *c)
{
	return c->queue.bytes >= READ_PAUSE_BYTES || c->queue.bytes >= queue_limit(c) / 2 ||
	       c->queue.n_fds >= READ_PAUSE_FDS;
}

static void drop(struct conn *c, const char *why)
{
	log_debug("client uid=%u pid=%d dropped: %s", (unsigned int)c->peer.uid, (int)c->peer.pid,
		  why);
	/* A handler on the stack may still hold it: then its caller frees it. */
	c->dead = true;
	set_reading(c, false);
	if (!c->in_callback)
		(void)conn_free(c);
}

/* ---- output */

/* Sends what the socket takes. The caller looks at c->dead afterwards. */
static void flush(struct conn *c)
{
	size_t before = c->queue.bytes;
	int r;

	if (c->dead)
		return;
	r = frame_queue_flush(&c->queue, c->fd, WRITE_BUDGET);
	if (r < 0) {
		c->dead = true;
		return;
	}
	if (r == FRAME_DONE) {
		(void)event_del(c->on_write);
		c->write_since = 0;
		if (c->draining)
			c->dead = true;
	} else {
		if (!c->write_since || c->queue.bytes != before)
			c->write_since = io_now_ns();
		if (event_add(c->on_write, NULL) < 0)
			c->dead = true;
	}
	if (!c->draining && !c->dead)
		set_reading(c, !has_enough(c));
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	struct conn *c = arg;

	(void)fd;
	(void)what;
	flush(c);
	if (c->dead)
		(void)conn_free(c);
	else
		update_timer(c);
}

/* 0, -E2BIG where it is longer than the protocol allows, -ENOMEM. */
static int push(struct conn *c, struct json_object *message, int *fds, size_t n_fds)
{
	size_t len = 0;
	const char *text = message ? json_text(message, &len) : NULL;

	if (!text) {
		for (size_t i = 0; i < n_fds; i++)
			fds[i] = close_fd(fds[i]);
		return -ENOMEM;
	}
	return frame_queue_push(&c->queue, text, len, fds, n_fds);
}

/* The answer that needs no memory: with it no accepted request goes without one. */
static int push_no_memory(struct conn *c, bool has_id, int64_t id)
{
	char text[FRAME_RESERVE_MAX], number[24] = "null";
	int n;

	if (has_id)
		(void)snprintf(number, sizeof(number), "%" PRId64, id);
	n = snprintf(
		text, sizeof(text),
		"{\"v\":%d,\"id\":%s,\"error\":{\"code\":\"%s\",\"message\":\"out of memory\"}}",
		PROTOCOL_VERSION, number, protocol_error_code(API_BUSY));
	c->conns->stats.no_memory++;
	return frame_queue_push_reserved(&c->queue, text, (size_t)n);
}

/*
 * Queues the answer to a request, or an error that says why there is none. Without room even for
 * that the connection ends, so that no client waits in vain. -ENOMEM: the client did not get
 * `message`.
 */
static int answer(struct conn *c, bool has_id, int64_t id, struct json_object *message, int *fds,
		  size_t n_fds)
{
	_cleanup_json_ struct json_object *m = message;
	bool had_memory;
	int r;

	if (c->dead || c->draining) {
		for (size_t i = 0; i < n_fds; i++)
			fds[i] = close_fd(fds[i]);
		return 0;
	}
	r = push(c, m, fds, n_fds);
	had_memory = r != -ENOMEM;
	if (r == -E2BIG) {
		_cleanup_json_ struct json_object *e =
			protocol_error(has_id, id, API_TOO_LARGE,
				       "the answer is too long for a message");

		c->conns->stats.errors++;
		r = push(c, e, NULL, 0);
	}
	if (r == -ENOMEM)
		r = push_no_memory(c, has_id, id);
	if (r < 0) {
		drop(c, "its answer could not be queued");
		return -ENOMEM;
	}
	/* What the socket takes does not wait, and one answer alone is never too much. */
	if (c->queue.bytes > queue_limit(c))
		flush(c);
	if (!c->dead && c->queue.count > 1 && c->queue.bytes > queue_limit(c)) {
		c->conns->stats.overflows++;
		drop(c, "too much waits for it");
		return 0;
	}
	/* Most answers go out at once; on_write is for what the socket does not take. */
	if (!c->in_callback) {
		flush(c);
		if (c->dead)
			(void)conn_free(c);
		else
			update_timer(c);
	}
	return had_memory ? 0 : -ENOMEM;
}

int conn_send_result(struct conn *c, int64_t id, struct json_object *result, int *fds, size_t n_fds)
{
	return answer(c, true, id, protocol_result(id, result, n_fds), fds, n_fds);
}

void conn_send_error(struct conn *c, bool has_id, int64_t id, enum protocol_error code,
		     const char *message)
{
	c->conns->stats.errors++;
	(void)answer(c, has_id, id, protocol_error(has_id, id, code, message), NULL, 0);
}

void conn_shut(struct conn *c, const char *why)
{
	if (c->dead || c->draining)
		return;
	log_debug("client uid=%u pid=%d is closed: %s", (unsigned int)c->peer.uid, (int)c->peer.pid,
		  why);
	c->conns->stats.bad_messages++;
	c->draining = true;
	set_reading(c, false);
}

/* ---- input */

static void end_of_input(struct conn *c, int r)
{
	/* A client that has closed its side does not wait for replies any more. */
	c->draining = true;
	set_reading(c, false);
	if (r == FRAME_EOF)
		return;
	c->conns->stats.bad_messages++;
	switch (r) {
	case FRAME_E_TOO_LARGE:
		c->draining = false; /* so that the answer is queued */
		conn_send_error(c, false, 0, API_TOO_LARGE, "a request must have 1 to 65536 bytes");
		c->draining = true;
		break;
	case FRAME_E_FDS:
		c->draining = false;
		conn_send_error(
			c, false, 0, API_BAD_REQUEST,
			"descriptors must come with the first byte of a message, at most 16");
		c->draining = true;
		break;
	default:
		break; /* half a frame, or a broken socket: nobody reads an answer */
	}
	frame_reader_reset(&c->reader);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct conn *c = arg;
	int r = FRAME_AGAIN;

	(void)what;
	c->in_callback = true;
	for (int i = 0; i < READ_BUDGET && !c->dead && !c->draining && !has_enough(c); i++) {
		r = frame_reader_read(&c->reader, fd);
		if (r == FRAME_AGAIN)
			break;
		if (r != FRAME_DONE) {
			end_of_input(c, r);
			break;
		}
		c->active = io_now_ns();
		c->half_since = 0; /* what follows has its own time */
		c->conns->stats.requests++;
		c->conns->ctx.on_message(c->conns->ctx.arg, c, c->reader.body, c->reader.len,
					 c->reader.fds, c->reader.n_fds);
		frame_reader_reset(&c->reader);
	}
	flush(c);
	c->in_callback = false;
	if (c->dead) {
		(void)conn_free(c);
		return;
	}
	if (!frame_reader_is_half(&c->reader))
		c->half_since = 0;
	else if (!c->half_since)
		c->half_since = io_now_ns();
	update_timer(c);
}

/* ---- events and requests of ours */

/* Without memory the ping is sent next time. The caller looks at c->dead afterwards. */
static void ping(struct conn *c, uint64_t now)
{
	_cleanup_json_ struct json_object *m =
		protocol_request(c->conns->next_ping - 1, "ping", NULL, 0);

	if (push(c, m, NULL, 0) < 0) {
		c->active = now;
		return;
	}
	c->ping_id = --c->conns->next_ping;
	c->ping_since = now;
	c->conns->stats.pings++;
	flush(c);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct conn *c = arg;
	const struct config *cfg = c->conns->ctx.config;
	uint64_t now = io_now_ns();

	(void)fd;
	(void)what;
	c->timer_at = 0;
	if (c->half_since && now >= c->half_since + seconds(cfg->client_read_timeout_s)) {
		c->conns->stats.timeouts++;
		drop(c, "half a message");
		return;
	}
	if (c->write_since && now >= c->write_since + seconds(cfg->client_write_timeout_s)) {
		c->conns->stats.timeouts++;
		drop(c, "does not read");
		return;
	}
	if (c->ping_id && now >= c->ping_since + seconds(cfg->client_read_timeout_s)) {
		c->conns->stats.timeouts++;
		drop(c, "does not answer");
		return;
	}
	if (!c->ping_id && !c->draining && c->n_pendings == 0) {
		if (!may_be_silent(c) && now >= c->active + seconds(cfg->client_idle_s)) {
			c->conns->stats.timeouts++;
			drop(c, "idle");
			return;
		}
		if (may_be_silent(c) && now >= c->active + seconds(cfg->client_ping_s)) {
			ping(c, now);
			if (c->dead) {
				(void)conn_free(c);
				return;
			}
		}
	}
	update_timer(c);
}

bool conn_queue(struct conn *c, struct json_object *message)
{
	bool was_empty = c->queue.count == 0;

	if (c->dead || c->draining || c->queue.count >= c->conns->ctx.config->client_events ||
		c->queue.bytes > queue_limit(c) / 2)
		return false;
	if (push(c, message, NULL, 0) < 0)
		return false;
	/*
	 * The loop sends it, not this call: a broken connection must not be freed while the hub
	 * walks its list.
	 */
	if (was_empty) {
		c->write_since = io_now_ns();
		if (event_add(c->on_write, NULL) < 0)
			cut(c);
		update_timer(c);
	}
	return true;
}

static bool deliver_event(void *arg, struct json_object *message)
{
	return conn_queue(arg, message);
}

void conn_post(struct conn *c, struct json_object *message)
{
	_cleanup_json_ struct json_object *m = message;

	(void)conn_queue(c, m);
}

int conn_attach(struct conn *c, void (*gone)(void *arg), void *arg)
{
	if (c->gone)
		return -EBUSY;
	c->gone = gone;
	c->gone_arg = arg;
	quota_release(&c->charge);
	return 0;
}

bool conn_is_attached(const struct conn *c)
{
	return c->gone != NULL;
}

void conn_detach(struct conn *c)
{
	c->gone = NULL;
}

void conn_close(struct conn *c, const char *why)
{
	log_debug("client uid=%u pid=%d is closed: %s", (unsigned int)c->peer.uid, (int)c->peer.pid,
		  why);
	conn_end(c);
}

bool conn_is_open(const struct conn *c)
{
	struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};

	return !c->dead && !c->draining && poll(&p, 1, 0) == 0;
}

bool conn_answered(struct conn *c, int64_t id, struct json_object *answer, int *fds, size_t n_fds)
{
	if (id != c->ping_id || id == 0)
		return asks_answered(c, id, answer, fds, n_fds);
	c->ping_id = 0;
	return n_fds == 0;
}

int conn_subscribe(struct conn *c, uint64_t mask)
{
	struct subscriber *s = NULL;

	if (mask) {
		int r = subscriber_new(c->conns->ctx.hub, c->peer.uid, c->peer.admin, mask,
				       deliver_event, c, &s);

		if (r < 0)
			return r;
	}
	subscriber_free(c->subscriber);
	c->subscriber = s;
	return 0;
}

/* ---- life */

struct conn *conn_free(struct conn *c)
{
	struct conns *cs;

	if (!c)
		return NULL;
	cs = c->conns;
	if (c->gone) {
		void (*gone)(void *arg) = c->gone;

		c->gone = NULL;
		gone(c->gone_arg);
	}
	pendings_end(c);
	asks_end(c);
	subscriber_free(c->subscriber);
	if (c->on_read)
		event_free(c->on_read);
	if (c->on_write)
		event_free(c->on_write);
	if (c->on_time)
		event_free(c->on_time);
	frame_reader_fini(&c->reader);
	frame_queue_fini(&c->queue);
	peer_fini(&c->peer);
	(void)close_fd(c->fd);
	quota_release(&c->charge);
	LIST_REMOVE(c, entry);
	cs->stats.connected--;
	free(c);
	cs->ctx.on_closed(cs->ctx.arg);
	return NULL;
}

int conn_new(struct conns *cs, int fd, const struct peer *peer, const struct quota_charge *charge)
{
	_cleanup_(conn_freep) struct conn *c = calloc(1, sizeof(*c));
	const int send_buffer = SEND_BUFFER;

	if (!c) {
		struct peer p = *peer;
		struct quota_charge q = *charge;

		(void)close_fd(fd);
		peer_fini(&p);
		quota_release(&q);
		return -ENOMEM;
	}
	c->fd = fd;
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof(send_buffer));
	c->peer = *peer;
	c->charge = *charge;
	c->conns = cs;
	frame_reader_init(&c->reader, FRAME_REQUEST_MAX);
	frame_queue_init(&c->queue);
	LIST_INIT(&c->pendings);
	LIST_INIT(&c->asks);
	LIST_INSERT_HEAD(&cs->list, c, entry);
	cs->stats.connected++;
	c->on_read = event_new(cs->ctx.base, c->fd, EV_READ | EV_PERSIST, on_readable, c);
	c->on_write = event_new(cs->ctx.base, c->fd, EV_WRITE | EV_PERSIST, on_writable, c);
	c->on_time = evtimer_new(cs->ctx.base, on_timer, c);
	if (!c->on_read || !c->on_write || !c->on_time || frame_queue_reserve(&c->queue) < 0)
		return -ENOMEM;
	c->active = io_now_ns();
	set_reading(c, true);
	if (c->dead)
		return -ENOMEM;
	update_timer(c);
	(void)take_ptr(c);
	return 0;
}

void conn_end(struct conn *c)
{
	c->draining = true;
	set_reading(c, false);
	flush(c);
	/* One of its own requests may have led here. */
	if (c->dead && !c->in_callback)
		(void)conn_free(c);
}

const struct peer *conn_peer(const struct conn *c)
{
	return &c->peer;
}
