// SPDX-License-Identifier: Apache-2.0
/*
 * The connection: it sends requests, and receives replies, events and the daemon's own requests.
 *
 * The socket is non-blocking and read frame by frame, so a deadline in the middle of a frame loses
 * nothing: the next call continues where this one stopped. Only a timeout in the middle of sending
 * breaks the connection. What the daemon sends is not trusted: a program must not crash because of
 * a daemon that it does not control.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "client/lib/client_internal.h"
#include "common/base/io.h"

#define MAX_EVENTS 1024
#define ANSWER_TIMEOUT_NS 5000000000ULL

_Static_assert(TRACERD_MAX_FDS == FRAME_FDS_MAX, "the public limit is the protocol's");

/*
 * The deadline of a call without a limit: 146 years after the start, so that additions do not
 * overflow.
 */
#define NEVER (UINT64_MAX / 4)

const char *tracerd_version(void)
{
	return PACKAGE_VERSION;
}

const char *tracerd_default_socket(void)
{
	const char *path = secure_getenv("TRACERD_SOCKET");

	return path && *path ? path : TRACERD_RUNDIR "/control.sock";
}

static uint64_t deadline_from(int timeout_ms)
{
	return timeout_ms < 0 ? NEVER : io_now_ns() + (uint64_t)timeout_ms * 1000000;
}

int tracerd_connect_fd(int fd, tracerd_client **ret_client)
{
	tracerd_client *c;
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
		fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return -errno;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->fd = fd;
	c->next_id = 1;
	frame_reader_init(&c->reader, FRAME_REPLY_MAX);
	STAILQ_INIT(&c->events);
	*ret_client = c;
	return 0;
}

int tracerd_connect(const char *path, int timeout_ms, tracerd_client **ret_client)
{
	_cleanup_close_ int fd = -1;
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct timeval tv = {0};
	size_t len;
	int r;

	if (!path)
		path = tracerd_default_socket();
	len = strlen(path);
	if (len >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	memcpy(addr.sun_path, path, len + 1);

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	/*
	 * poll() does not report when a full backlog has room, but connect() respects the send
	 * timeout
	 */
	if (timeout_ms >= 0) {
		tv.tv_sec = timeout_ms / 1000;
		tv.tv_usec = timeout_ms ? timeout_ms % 1000 * 1000 : 1;
		if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)) < 0)
			return -errno;
	}
	do
		r = connect(fd, (const struct sockaddr *)&addr, (socklen_t)sizeof(addr));
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	r = tracerd_connect_fd(fd, ret_client);
	if (r < 0)
		return r;
	(void)take_fd(&fd);
	return 0;
}

void tracerd_close(tracerd_client *c)
{
	tracerd_event *e;

	if (!c)
		return;
	while ((e = STAILQ_FIRST(&c->events))) {
		STAILQ_REMOVE_HEAD(&c->events, link);
		tracerd_event_free(e);
	}
	frame_reader_fini(&c->reader);
	(void)close_fd(c->fd);
	free(c);
}

int tracerd_get_fd(const tracerd_client *c)
{
	return c->fd;
}

const char *tracerd_error_message(const tracerd_client *c)
{
	return c->message;
}

/* From here on the stream is useless: it is not known where the next frame begins. */
static int client_break(tracerd_client *c, int error)
{
	c->broken = error;
	return error;
}

static int client_send(tracerd_client *c, struct json_object *message, const int *fds, size_t n_fds,
	uint64_t deadline)
{
	size_t len = 0;
	const char *text = json_text(message, &len);
	int r;

	if (!text)
		return -ENOMEM;
	if (len > FRAME_REQUEST_MAX)
		return -EMSGSIZE;
	r = frame_send(c->fd, text, len, fds, n_fds, deadline);
	if (r == -EPIPE)
		r = -ECONNRESET;
	/* it is not known how much of the frame was sent */
	return r < 0 ? client_break(c, r) : 0;
}

/* Waits until the socket is readable. 0, -ETIMEDOUT or -errno. */
static int client_wait(const tracerd_client *c, uint64_t deadline)
{
	struct pollfd p = {.fd = c->fd, .events = POLLIN};

	for (;;) {
		uint64_t now = io_now_ns();
		int ms = deadline <= now ? 0
			 : deadline - now > 3600000000000ULL
				 ? 3600000
				 : (int)((deadline - now + 999999) / 1000000);
		int r = poll(&p, 1, ms);

		if (r > 0)
			return 0;
		if (r < 0 && errno != EINTR)
			return -errno;
		if (r == 0 && io_now_ns() >= deadline)
			return -ETIMEDOUT;
	}
}

static int event_take_in(tracerd_client *c, struct json_object *message)
{
	const char *name = json_get_string(message, "event");
	struct json_object *data = json_get_object(message, "data");
	tracerd_event *e = calloc(1, sizeof(*e));

	if (!e)
		return -ENOMEM;
	e->name = strdup(name);
	e->data = data ? json_object_get(data) : json_object_new_object();
	e->text = json_text(e->data, NULL);
	if (!e->name || !e->text) {
		tracerd_event_free(e);
		return -ENOMEM;
	}
	(void)json_get_uint(message, "seq", &e->seq);
	(void)json_get_uint(message, "missed", &e->missed);
	STAILQ_INSERT_TAIL(&c->events, e, link);
	if (++c->n_events > MAX_EVENTS) {
		e = STAILQ_FIRST(&c->events);
		STAILQ_REMOVE_HEAD(&c->events, link);
		c->n_events--;
		c->dropped += 1 + e->missed;
		tracerd_event_free(e);
	}
	return 0;
}

struct json_object *request_answer(struct json_object *message, int64_t id)
{
	struct json_object *answer = json_object_new_object(), *error;

	if (!answer)
		return NULL;
	json_add_int(answer, "v", 1);
	json_add_int(answer, "id", id);
	if (!strcmp(json_get_string(message, "method"), "ping")) {
		(void)json_add_new_object(answer, "result");
	} else {
		error = json_add_new_object(answer, "error");
		json_add_string(error, "code", "unknown_method");
		json_add_string(error, "message", "this client does not know that method");
	}
	return answer;
}

static int reply_take_in(tracerd_client *c, struct json_object *message, tracerd_reply **ret_reply)
{
	struct json_object *result = json_get_object(message, "result");
	struct json_object *error = json_get_object(message, "error");
	const char *code = error ? json_get_string(error, "code") : NULL;
	const char *text = error ? json_get_string(error, "message") : NULL;
	uint64_t n_fds = 0;
	tracerd_reply *reply;

	(void)json_get_uint(message, "nfds", &n_fds);
	if (n_fds != c->reader.n_fds || (!result && !code))
		return client_break(c, -EPROTO);
	if (code) {
		size_t n = strnlen(text ? text : code, sizeof(c->message) - 1);

		memcpy(c->message, text ? text : code, n);
		c->message[n] = 0;
		return (int)code_from_name(code);
	}
	reply = calloc(1, sizeof(*reply));
	if (!reply)
		return -ENOMEM;
	reply->result = json_object_get(result);
	reply->text = json_text(reply->result, NULL);
	if (!reply->text) {
		tracerd_reply_free(reply);
		return -ENOMEM;
	}
	for (; reply->n_fds < c->reader.n_fds; reply->n_fds++)
		reply->fds[reply->n_fds] = take_fd(&c->reader.fds[reply->n_fds]);
	*ret_reply = reply;
	return 0;
}

/*
 * Handles the frame that is in the reader. If it is the answer to `want`, sets *ret_got and returns
 * what reply_take_in() returned; else 0 or -errno.
 */
static int frame_handle(tracerd_client *c, int64_t want, tracerd_reply **ret_reply, bool *ret_got)
{
	_cleanup_json_ struct json_object *message = NULL;
	int64_t id = 0;
	int r;

	r = json_parse(c->reader.body, c->reader.len, FRAME_REPLY_MAX, &message, NULL, 0);
	if (r < 0)
		return client_break(c, r);
	if (r > 0)
		return client_break(c, -EPROTO);
	if (json_get_string(message, "event"))
		return event_take_in(c, message);
	if (!json_get_int(message, "id", &id)) {
		/* an error without an id is the daemon's last word before it hangs up */
		r = json_get_object(message, "error") ? reply_take_in(c, message, ret_reply)
						      : -EPROTO;
		*ret_got = r > 0;
		(void)client_break(c, -EPROTO);
		return r;
	}
	if (json_get_string(message, "method")) {
		_cleanup_json_ struct json_object *answer = request_answer(message, id);

		return answer ? client_send(c, answer, NULL, 0, io_now_ns() + ANSWER_TIMEOUT_NS)
			      : -ENOMEM;
	}
	if (want && id == want) {
		*ret_got = true;
		return reply_take_in(c, message, ret_reply);
	}
	/* the late answer to a call that timed out: dropped, with its descriptors */
	return 0;
}

/*
 * Handles one frame, waiting for it until the deadline. Returns like frame_handle(); also
 * -ETIMEDOUT, -ECONNRESET, -EPROTO.
 */
static int client_step(tracerd_client *c, uint64_t deadline, int64_t want,
	tracerd_reply **ret_reply, bool *ret_got)
{
	int r;

	for (;;) {
		r = frame_reader_read(&c->reader, c->fd);
		switch (r) {
		case FRAME_DONE:
			r = frame_handle(c, want, ret_reply, ret_got);
			frame_reader_reset(&c->reader);
			return r;
		case FRAME_AGAIN:
			r = client_wait(c, deadline);
			if (r < 0)
				return r;
			break;
		case FRAME_EOF:
		case FRAME_E_HALF:
			return client_break(c, -ECONNRESET);
		case FRAME_E_TOO_LARGE:
		case FRAME_E_FDS:
			return client_break(c, -EPROTO);
		default:
			return client_break(c, r < 0 ? r : -EPROTO);
		}
	}
}

int tracerd_call(tracerd_client *c, const char *method, const char *params, const int *fds,
	size_t n_fds, int timeout_ms, tracerd_reply **ret_reply)
{
	_cleanup_json_ struct json_object *request = json_object_new_object();
	_cleanup_json_ struct json_object *object = NULL;
	uint64_t deadline = deadline_from(timeout_ms);
	tracerd_reply *reply = NULL;
	bool got = false;
	int64_t id;
	int r;

	if (n_fds > TRACERD_MAX_FDS || (n_fds && !fds))
		return -EINVAL;
	if (c->broken)
		return -ENOTCONN;
	c->message[0] = 0;
	if (params && strlen(params) > FRAME_REQUEST_MAX)
		return -EMSGSIZE;
	r = json_parse(params ? params : "{}", params ? strlen(params) : 2, FRAME_REQUEST_MAX,
		&object, NULL, 0);
	if (r != 0)
		return r < 0 ? r : -EINVAL;
	if (!json_object_is_type(object, json_type_object))
		return -EINVAL;
	if (!request)
		return -ENOMEM;
	id = c->next_id++;
	json_add_int(request, "v", 1);
	json_add_int(request, "id", id);
	json_add_string(request, "method", method);
	json_add(request, "params", take_ptr(object));
	json_add_uint(request, "nfds", n_fds);
	r = client_send(c, request, fds, n_fds, deadline);
	/* a daemon that hangs up may have said why before: it is read below */
	if (r < 0 && r != -ECONNRESET)
		return r;
	do
		r = client_step(c, deadline, id, &reply, &got);
	while (r == 0 && !got);
	if (r != 0)
		return r;
	if (ret_reply)
		*ret_reply = reply;
	else
		tracerd_reply_free(reply);
	return 0;
}

const char *tracerd_reply_json(const tracerd_reply *reply)
{
	return reply->text;
}

size_t tracerd_reply_fd_count(const tracerd_reply *reply)
{
	return reply->n_fds;
}

int tracerd_reply_take_fd(tracerd_reply *reply, size_t index)
{
	if (index >= reply->n_fds || reply->fds[index] < 0)
		return -EBADF;
	return take_fd(&reply->fds[index]);
}

void tracerd_reply_free(tracerd_reply *reply)
{
	if (!reply)
		return;
	for (size_t i = 0; i < reply->n_fds; i++)
		(void)close_fd(reply->fds[i]);
	(void)json_object_put(reply->result);
	free(reply);
}

int tracerd_next_event(tracerd_client *c, int timeout_ms, tracerd_event **ret_event)
{
	uint64_t deadline = deadline_from(timeout_ms);
	tracerd_reply *none = NULL;
	bool got = false;
	tracerd_event *e;
	int r;

	while (!(e = STAILQ_FIRST(&c->events))) {
		if (c->broken)
			return -ENOTCONN;
		r = client_step(c, deadline, 0, &none, &got);
		if (r == -ETIMEDOUT && timeout_ms == 0)
			return -EAGAIN;
		if (r != 0)
			return r < 0 ? r : -ECONNRESET;
	}
	STAILQ_REMOVE_HEAD(&c->events, link);
	c->n_events--;
	e->missed += c->dropped;
	c->dropped = 0;
	*ret_event = e;
	return 0;
}

const char *tracerd_event_name(const tracerd_event *event)
{
	return event->name;
}

const char *tracerd_event_json(const tracerd_event *event)
{
	return event->text;
}

uint64_t tracerd_event_seq(const tracerd_event *event)
{
	return event->seq;
}

uint64_t tracerd_event_missed(const tracerd_event *event)
{
	return event->missed;
}

void tracerd_event_free(tracerd_event *event)
{
	if (!event)
		return;
	free(event->name);
	(void)json_object_put(event->data);
	free(event);
}
