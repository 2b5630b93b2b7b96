// SPDX-License-Identifier: Apache-2.0
#include "client/lib/registration.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>

#include "client/lib/client_internal.h"
#include "common/base/io.h"

#define ANSWER_MS 10000	  /* for the daemon's answer, and for the rest of a frame that has begun */
#define LOST_MS 100	  /* after a connection that was good */
#define RETRY_MIN_MS 1000 /* after an attempt that failed, doubled each time ... */
#define RETRY_MAX_MS 10000
#define NEVER_MS 60000 /* after an answer that will not change by itself */
/* Messages to a registered program are short, but the answer describes a target. */
#define MESSAGE_MAX (64u * 1024)
#define FRAMES_A_TURN 16
#define PAGE_TRIES 100

#define REQUEST_ID 1

enum state { WAITING, ASKING, LIVE };

struct registration {
	struct registration_callbacks callbacks;
	struct sockaddr_un address;
	enum state state;
	int epoll, timer, sock, control;
	bool wants_out; /* the socket is watched for room, too */
	bool deadline;	/* LIVE: the timer runs for half a frame in or out */
	unsigned int retry_ms; /* the next wait after a failure */
	struct frame_reader reader;
	struct frame_queue queue;
	struct ring_control page;
};

static void timer_set(const struct registration *r, unsigned int ms)
{
	/* zero would disarm it */
	struct itimerspec t = {.it_value = {.tv_sec = (time_t)(ms / 1000),
					    .tv_nsec = (long)(ms % 1000) * 1000000 + 1}};

	(void)timerfd_settime(r->timer, 0, &t, NULL);
}

static void timer_clear(const struct registration *r)
{
	static const struct itimerspec never = {0};

	(void)timerfd_settime(r->timer, 0, &never, NULL);
}

static int watch(const struct registration *r, int op, int fd, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.fd = fd};

	return epoll_ctl(r->epoll, op, fd, &e) < 0 ? -errno : 0;
}

int registration_new(const char *socket_path, const struct registration_callbacks *callbacks,
	struct registration **ret)
{
	_cleanup_(registration_freep) struct registration *r = NULL;
	size_t len = strlen(socket_path);
	int k;

	if (len >= sizeof(r->address.sun_path))
		return -ENAMETOOLONG;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->epoll = r->timer = r->sock = r->control = -1;
	r->callbacks = *callbacks;
	r->address.sun_family = AF_UNIX;
	memcpy(r->address.sun_path, socket_path, len + 1);
	r->retry_ms = RETRY_MIN_MS;
	frame_reader_init(&r->reader, MESSAGE_MAX);
	frame_queue_init(&r->queue);
	r->epoll = io_above_stdio(epoll_create1(EPOLL_CLOEXEC));
	if (r->epoll < 0)
		return -errno;
	r->timer = io_above_stdio(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	if (r->timer < 0)
		return -errno;
	k = watch(r, EPOLL_CTL_ADD, r->timer, EPOLLIN);
	if (k < 0) {
		r->timer = close_fd(r->timer);
		return k;
	}
	timer_set(r, 0);
	*ret = take_ptr(r);
	return 0;
}

/*
 * A child that was made without the C library, by clone(), may have a copy of the socket. Then
 * close() neither ends the connection nor removes it from epoll.
 */
static void hang_up(struct registration *r)
{
	frame_reader_reset(&r->reader);
	frame_queue_fini(&r->queue);
	frame_queue_init(&r->queue);
	if (r->sock >= 0) {
		(void)epoll_ctl(r->epoll, EPOLL_CTL_DEL, r->sock, NULL);
		(void)shutdown(r->sock, SHUT_RDWR);
	}
	r->sock = close_fd(r->sock);
	r->control = close_fd(r->control);
	r->wants_out = false;
	r->deadline = false;
}

/* No other epoll watches our timer under that number. */
bool registration_is_intact(const struct registration *r)
{
	return watch(r, EPOLL_CTL_MOD, r->timer, EPOLLIN) == 0;
}

void registration_free(struct registration *r)
{
	if (!r)
		return;
	if (r->timer >= 0 && !registration_is_intact(r)) {
		r->sock = r->control = r->timer = r->epoll = -1;
		r->reader.n_fds = 0;
		frame_queue_init(&r->queue);
	}
	hang_up(r);
	(void)close_fd(r->timer);
	(void)close_fd(r->epoll);
	free(r);
}

void registration_abandon(struct registration *r)
{
	if (!registration_is_intact(r))
		return;
	for (size_t i = 0; i < r->reader.n_fds; i++)
		(void)close_fd(r->reader.fds[i]);
	frame_queue_abandon(&r->queue);
	(void)close_fd(r->sock);
	(void)close_fd(r->control);
	(void)close_fd(r->timer);
	(void)close_fd(r->epoll);
}

int registration_fd(const struct registration *r)
{
	return r->epoll;
}

/* Goes back to WAITING from any state. Only this function ends a connection. */
static void wait_again(struct registration *r, unsigned int ms, int error)
{
	bool was_live = r->state == LIVE;

	hang_up(r);
	r->state = WAITING;
	/* so that not all programs of a daemon come back at the same moment */
	timer_set(r, ms + (unsigned int)((uint64_t)getpid() * 2654435761u % 1024) * ms / 8192);
	if (was_live)
		r->callbacks.control(r->callbacks.arg, NULL);
	r->callbacks.changed(r->callbacks.arg, false, error);
}

static bool is_final(int error)
{
	return error == TRACERD_E_UNKNOWN_METHOD || error == TRACERD_E_BAD_PARAMS ||
	       error == TRACERD_E_TOO_LARGE || error == TRACERD_E_UNSUPPORTED ||
	       error == TRACERD_E_NOT_PERMITTED;
}

static void fail(struct registration *r, int error)
{
	unsigned int ms = r->retry_ms;

	if (r->state == LIVE) {
		ms = LOST_MS;
	} else if (is_final(error)) {
		ms = NEVER_MS;
	} else {
		r->retry_ms = ms * 2 < RETRY_MAX_MS ? ms * 2 : RETRY_MAX_MS;
	}
	wait_again(r, ms, error);
}

/* ---- out */

/* Sends what is queued. 0 or -errno. */
static int flush(struct registration *r)
{
	int k = frame_queue_flush(&r->queue, r->sock, MESSAGE_MAX);
	bool more = k == FRAME_AGAIN;

	if (k < 0)
		return k == -EPIPE ? -ECONNRESET : k;
	if (more == r->wants_out)
		return 0;
	k = watch(r, EPOLL_CTL_MOD, r->sock, EPOLLIN | (more ? EPOLLOUT : 0));
	if (k == 0)
		r->wants_out = more;
	return k;
}

/* Takes over the descriptors. 0 or -errno. */
static int send_message(struct registration *r, struct json_object *message, int *fds, size_t n_fds)
{
	size_t len = 0;
	const char *text = json_text(message, &len);
	int k;

	if (!text) {
		while (n_fds > 0)
			(void)close_fd(fds[--n_fds]);
		return -ENOMEM;
	}
	k = frame_queue_push(&r->queue, text, len, fds, n_fds);
	if (k < 0)
		return k;
	k = flush(r);
	/* the daemon asks and does not read the answers */
	return k == 0 && r->queue.bytes > MESSAGE_MAX ? -ENOBUFS : k;
}

static int send_request(struct registration *r)
{
	_cleanup_json_ struct json_object *request = json_object_new_object();
	struct json_object *params, *names;
	int fds[2] = {-1, -1}, rings = -1, wake = -1, k;

	if (!request)
		return -ENOMEM;
	k = r->callbacks.prepare(r->callbacks.arg, &rings, &wake);
	if (k < 0)
		return k;
	json_add_int(request, "v", 1);
	json_add_int(request, "id", REQUEST_ID);
	json_add_string(request, "method", "target.register");
	params = json_add_new_object(request, "params");
	names = json_add_new_array(params, "fds");
	json_append_string(names, "rings");
	json_append_string(names, "wake");
	json_add_uint(request, "nfds", 2);
	/* the queue closes what it has sent */
	fds[0] = fcntl(rings, F_DUPFD_CLOEXEC, 3);
	fds[1] = fcntl(wake, F_DUPFD_CLOEXEC, 3);
	if (fds[0] < 0 || fds[1] < 0) {
		k = -errno;
		(void)close_fd(fds[0]);
		(void)close_fd(fds[1]);
		return k;
	}
	return send_message(r, request, fds, 2);
}

/* Ends WAITING. connect() of a Unix socket succeeds at once, or fails because the queue is full. */
static void ask(struct registration *r)
{
	int k;

	r->sock = io_above_stdio(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (r->sock < 0 || connect(r->sock, (const struct sockaddr *)&r->address,
				   (socklen_t)sizeof(r->address)) < 0) {
		fail(r, -errno);
		return;
	}
	r->state = ASKING;
	k = watch(r, EPOLL_CTL_ADD, r->sock, EPOLLIN);
	if (k == 0)
		k = send_request(r);
	if (k < 0)
		fail(r, k);
	else
		timer_set(r, ANSWER_MS);
}

/* ---- the page */

/*
 * Whether this is a valid page. It must be memory that cannot shrink, because pread() of another
 * kind of file could block.
 */
static bool page_is_valid(int fd)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &st) == 0 &&
	       S_ISREG(st.st_mode) && st.st_size == RING_CONTROL_BYTES;
}

/*
 * Reads the whole page while the daemon does not write. 0; -EAGAIN: it wrote at each try; -EPROTO.
 */
static int page_read(struct registration *r)
{
	struct ring_control *c = &r->page;
	uint32_t before = 0, after = 0;
	const off_t at = offsetof(struct ring_control, generation);

	for (int i = 0; i < PAGE_TRIES; i++) {
		if (pread(r->control, &before, sizeof(before), at) != (ssize_t)sizeof(before) ||
		    pread(r->control, c, sizeof(*c), 0) != (ssize_t)sizeof(*c) ||
		    pread(r->control, &after, sizeof(after), at) != (ssize_t)sizeof(after) ||
		    memcmp(c->magic, RING_CONTROL_MAGIC, sizeof(c->magic)) != 0 ||
		    c->version != RING_VERSION)
			return -EPROTO;
		if (before % 2 == 0 && before == after)
			return 0;
	}
	return -EAGAIN;
}

/*
 * If the page is always being written, the daemon has stopped in the middle; it notifies us when it
 * has continued.
 */
static int page_changed(struct registration *r)
{
	int k = page_read(r);

	if (k == -EAGAIN)
		return 0;
	if (k == 0)
		r->callbacks.control(r->callbacks.arg, &r->page);
	return k;
}

/* ---- in */

/* Handles the answer to the request: 0, a positive code of the daemon, -errno. */
static int handle_answer(struct registration *r, struct json_object *message)
{
	struct json_object *error = json_get_object(message, "error");
	const char *code = error ? json_get_string(error, "code") : NULL;
	uint64_t n_fds = 0;
	int k;

	if (r->state != ASKING)
		return -EPROTO;
	if (code)
		return (int)code_from_name(code);
	(void)json_get_uint(message, "nfds", &n_fds);
	if (!json_get_object(message, "result") || n_fds != 1 || r->reader.n_fds != 1)
		return -EPROTO;
	r->reader.n_fds = 0;
	r->control = io_above_stdio(r->reader.fds[0]);
	if (!page_is_valid(r->control))
		return -EPROTO;
	k = page_read(r);
	if (k < 0 && k != -EAGAIN)
		return k;
	r->state = LIVE;
	r->retry_ms = RETRY_MIN_MS;
	timer_clear(r);
	if (k == 0)
		r->callbacks.control(r->callbacks.arg, &r->page);
	r->callbacks.changed(r->callbacks.arg, true, 0);
	return 0;
}

/*
 * Handles the frame in the reader. 0; a positive code or -errno: the connection cannot be used any
 * more.
 */
static int handle_frame(struct registration *r)
{
	_cleanup_json_ struct json_object *message = NULL;
	const char *event;
	int64_t id = 0;
	int k;

	k = json_parse(r->reader.body, r->reader.len, MESSAGE_MAX, &message, NULL, 0);
	if (k != 0)
		return k < 0 ? k : -EPROTO;
	event = json_get_string(message, "event");
	if (event)
		return r->state == LIVE && !strcmp(event, "control.changed") ? page_changed(r) : 0;
	if (json_get_int(message, "id", &id) && json_get_string(message, "method")) {
		_cleanup_json_ struct json_object *answer = request_answer(message, id);

		return answer ? send_message(r, answer, NULL, 0) : -ENOMEM;
	}
	/* an error without an id is the daemon's last word before it hangs up */
	if (id == REQUEST_ID || json_get_object(message, "error"))
		return handle_answer(r, message);
	return -EPROTO;
}

static int receive(struct registration *r)
{
	for (int i = 0; i < FRAMES_A_TURN; i++) {
		int k = frame_reader_read(&r->reader, r->sock);

		switch (k) {
		case FRAME_DONE:
			k = handle_frame(r);
			frame_reader_reset(&r->reader);
			r->deadline = false;
			if (k != 0)
				return k;
			break;
		case FRAME_AGAIN:
			return 0;
		case FRAME_EOF:
		case FRAME_E_HALF:
			return -ECONNRESET;
		default:
			return k < 0 ? k : -EPROTO;
		}
	}
	return 0;
}

/* LIVE: the daemon may be silent, but not in the middle of a frame. */
static void update_deadline(struct registration *r)
{
	bool wanted = frame_reader_is_half(&r->reader) || r->queue.count > 0;

	if (r->state != LIVE || (wanted && r->deadline))
		return;
	r->deadline = wanted;
	if (wanted)
		timer_set(r, ANSWER_MS);
	else
		timer_clear(r);
}

static void handle_socket(struct registration *r, uint32_t events)
{
	int k = 0;

	if (events & EPOLLOUT)
		k = flush(r);
	/* a daemon that hangs up may have said why before */
	if (k == 0 || k == -ECONNRESET) {
		int k2 = receive(r);

		k = k2 ? k2 : k;
	}
	if (k != 0)
		fail(r, k);
	else
		update_deadline(r);
}

static int handle_timer(struct registration *r)
{
	uint64_t n;

	if (read(r->timer, &n, sizeof(n)) != (ssize_t)sizeof(n))
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (r->state == WAITING)
		ask(r);
	else
		fail(r, -ETIMEDOUT);
	return 0;
}

int registration_dispatch(struct registration *r)
{
	struct epoll_event events[2];
	int n = epoll_wait(r->epoll, events, (int)ARRAY_SIZE(events), 0);
	bool timer = false;

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	/* a late answer still is an answer */
	for (int i = 0; i < n; i++) {
		if (events[i].data.fd == r->timer)
			timer = true;
		else if (events[i].data.fd == r->sock)
			handle_socket(r, events[i].events);
	}
	return timer ? handle_timer(r) : 0;
}

void registration_give_up(struct registration *r, int error)
{
	bool was_live = r->state == LIVE;

	if (registration_is_intact(r))
		hang_up(r);
	r->state = WAITING;
	if (was_live)
		r->callbacks.control(r->callbacks.arg, NULL);
	r->callbacks.changed(r->callbacks.arg, false, error);
}
