// SPDX-License-Identifier: Apache-2.0
/*
 * The registration against a daemon that the test plays, in one thread: each step of the one is
 * followed by a step of the other. The timer is the test's: what it is set to is looked at, and it
 * expires when the test says so.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/lib/registration.h"
#include "common/base/io.h"
#include "common/control/frame.h"
#include "common/control/json.h"
#include "tests/unit/cmocka_names.h"
#include "tracerd.h"

static struct {
	char dir[64], path[80];
	int listener, conn; /* the daemon's */
	int rings, wake;
	int page_fd; /* writable */
	struct registration *r;
	/* what was called back */
	int prepare_error;
	unsigned int prepared, changes, controls;
	bool live, has_control;
	int error;
	struct ring_control control;
	/* the timer */
	int timer;
	unsigned int timer_ms;
	bool timer_armed;
} f;

int __real_timerfd_settime(int fd, int flags, const struct itimerspec *t, struct itimerspec *old);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *t, struct itimerspec *old);

int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *t, struct itimerspec *old)
{
	static const struct itimerspec never = {0};

	f.timer = fd;
	f.timer_ms = (unsigned int)(t->it_value.tv_sec * 1000 + t->it_value.tv_nsec / 1000000);
	f.timer_armed = t->it_value.tv_sec != 0 || t->it_value.tv_nsec != 0;
	return __real_timerfd_settime(fd, flags, &never, old);
}

static int on_prepare(void *arg, int *ret_rings, int *ret_wake)
{
	f.prepared++;
	if (f.prepare_error)
		return f.prepare_error;
	*ret_rings = f.rings;
	*ret_wake = f.wake;
	return 0;
}

static void on_control(void *arg, const struct ring_control *control)
{
	f.controls++;
	f.has_control = control != NULL;
	if (control)
		f.control = *control;
}

static void on_changed(void *arg, bool live, int error)
{
	f.changes++;
	f.live = live;
	f.error = error;
}

static void daemon_listen(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	(void)unlink(f.path);
	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", f.path);
	f.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_true(f.listener >= 0);
	assert_int_equal(bind(f.listener, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(f.listener, 1), 0);
}

static int page_new(void)
{
	struct ring_control c = {.version = RING_VERSION, .request_interval_ns = 5};
	int fd = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	memcpy(c.magic, RING_CONTROL_MAGIC, sizeof(c.magic));
	assert_int_equal(ftruncate(fd, RING_CONTROL_BYTES), 0);
	assert_int_equal(io_pwrite_all(fd, &c, sizeof(c), 0), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	return fd;
}

static int setup(void **state)
{
	static const struct registration_callbacks callbacks = {on_prepare, on_control, on_changed,
								NULL};

	memset(&f, 0, sizeof(f));
	(void)snprintf(f.dir, sizeof(f.dir), "/tmp/test-registration.XXXXXX");
	assert_non_null(mkdtemp(f.dir));
	(void)snprintf(f.path, sizeof(f.path), "%s/sock", f.dir);
	f.rings = io_memfd("rings");
	f.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	f.page_fd = page_new();
	f.conn = f.listener = -1;
	assert_int_equal(registration_new(f.path, &callbacks, &f.r), 0);
	assert_true(f.timer_armed);
	return 0;
}

static int teardown(void **state)
{
	registration_free(f.r);
	(void)close_fd(f.listener);
	(void)close_fd(f.conn);
	(void)close_fd(f.rings);
	(void)close_fd(f.wake);
	(void)close_fd(f.page_fd);
	(void)unlink(f.path);
	(void)rmdir(f.dir);
	return 0;
}

/* The timer expires. */
static void expire(void)
{
	const struct itimerspec now = {.it_value = {.tv_nsec = 1}};
	struct pollfd p = {.fd = registration_fd(f.r), .events = POLLIN};

	assert_true(f.timer_armed);
	f.timer_armed = false;
	assert_int_equal(__real_timerfd_settime(f.timer, 0, &now, NULL), 0);
	assert_int_equal(poll(&p, 1, 10000), 1);
	assert_int_equal(registration_dispatch(f.r), 0);
}

/* Something was sent: it is there at once, the sockets are local. */
static void turn(void)
{
	struct pollfd p = {.fd = registration_fd(f.r), .events = POLLIN};

	assert_int_equal(poll(&p, 1, 10000), 1);
	assert_int_equal(registration_dispatch(f.r), 0);
}

static void accept_one(void)
{
	f.conn = close_fd(f.conn);
	f.conn = accept4(f.listener, NULL, NULL, SOCK_CLOEXEC);
	assert_true(f.conn >= 0);
}

static uint64_t soon(void)
{
	return io_now_ns() + 10000000000;
}

static void say_fds(const char *text, const int *fds, size_t n)
{
	assert_int_equal(frame_send(f.conn, text, strlen(text), fds, n, soon()), 0);
}

static void say(const char *text)
{
	say_fds(text, NULL, 0);
}

static struct json_object *heard(int fds[FRAME_FDS_MAX], size_t *ret_n)
{
	_cleanup_free_ char *text = NULL;
	struct json_object *o = NULL;
	size_t len = 0;

	assert_int_equal(frame_recv(f.conn, FRAME_REQUEST_MAX, &text, &len, fds, ret_n, soon()), 0);
	assert_int_equal(json_parse(text, len, FRAME_REQUEST_MAX, &o, NULL, 0), 0);
	return o;
}

static void close_all(int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++)
		(void)close_fd(fds[i]);
}

/* The first step up to the request. */
static void ask(void)
{
	_cleanup_json_ struct json_object *request = NULL;
	int fds[FRAME_FDS_MAX];
	size_t n = 0;

	if (f.listener < 0)
		daemon_listen();
	expire();
	accept_one();
	request = heard(fds, &n);
	assert_int_equal(n, 2);
	close_all(fds, n);
}

static const char accepted[] =
	"{\"v\":1,\"id\":1,\"result\":{\"target\":{\"id\":\"t1\"}},\"nfds\":1}";

static void register_it(void)
{
	ask();
	say_fds(accepted, &f.page_fd, 1);
	turn();
	assert_true(f.live);
}

/* The connection is gone, and for that reason; what comes next is due within about that time. */
static void expect_failed(int error, unsigned int ms)
{
	char c;

	assert_false(f.live);
	assert_int_equal(f.error, error);
	assert_true(f.timer_armed);
	assert_uint_in_range(f.timer_ms, ms, ms + ms / 7);
	if (f.conn >= 0)
		assert_true(recv(f.conn, &c, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET);
}

static void test_registers(void **state)
{
	_cleanup_json_ struct json_object *request = NULL;
	struct json_object *names;
	int fds[FRAME_FDS_MAX];
	struct stat a, b;
	size_t n = 0;

	daemon_listen();
	expire();
	assert_int_equal(f.prepared, 1);
	accept_one();
	request = heard(fds, &n);
	assert_string_equal(json_get_string(request, "method"), "target.register");
	names = json_get_array(json_get_object(request, "params"), "fds");
	assert_int_equal(json_object_array_length(names), 2);
	assert_string_equal(json_object_get_string(json_object_array_get_idx(names, 0)), "rings");
	assert_string_equal(json_object_get_string(json_object_array_get_idx(names, 1)), "wake");
	assert_int_equal(n, 2);
	assert_int_equal(fstat(fds[0], &a) | fstat(f.rings, &b), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	close_all(fds, n);
	/* the owner keeps its own */
	assert_true(fcntl(f.rings, F_GETFD) >= 0 && fcntl(f.wake, F_GETFD) >= 0);
	assert_false(f.live);
	assert_true(f.timer_armed); /* the answer's deadline */

	say_fds(accepted, &f.page_fd, 1);
	turn();
	assert_true(f.live);
	assert_int_equal(f.error, 0);
	assert_int_equal(f.controls, 1);
	assert_true(f.has_control);
	assert_int_equal(f.control.request_interval_ns, 5);
	assert_false(f.timer_armed);
}

static void test_control_changes(void **state)
{
	struct ring_threshold t = {.id = 7, .length = 1, .name = "x", .threshold_ns = 1000};
	uint32_t generation = 1;

	register_it();
	/* standing in the middle of a change: what was known stays */
	assert_int_equal(io_pwrite_all(f.page_fd, &generation, 4,
				       offsetof(struct ring_control, generation)),
			 0);
	assert_int_equal(io_pwrite_all(f.page_fd, &t, sizeof(t),
				       offsetof(struct ring_control, thresholds)),
			 0);
	say("{\"v\":1,\"event\":\"control.changed\",\"seq\":1,\"missed\":0,\"data\":{}}");
	turn();
	assert_int_equal(f.controls, 1);
	generation = 2;
	assert_int_equal(io_pwrite_all(f.page_fd, &generation, 4,
				       offsetof(struct ring_control, generation)),
			 0);
	say("{\"v\":1,\"event\":\"control.changed\",\"seq\":2,\"missed\":0,\"data\":{}}");
	say("{\"v\":1,\"event\":\"something.else\",\"seq\":3,\"missed\":0,\"data\":{}}");
	turn();
	assert_int_equal(f.controls, 2);
	assert_int_equal(f.control.thresholds[0].id, 7);
	assert_true(f.live);

	/* a page that is none any more */
	assert_int_equal(io_pwrite_all(f.page_fd, "garbage!", 8, 0), 0);
	say("{\"v\":1,\"event\":\"control.changed\",\"seq\":4,\"missed\":0,\"data\":{}}");
	turn();
	expect_failed(-EPROTO, 100);
	assert_false(f.has_control);
}

static void test_answers_pings(void **state)
{
	_cleanup_json_ struct json_object *pong = NULL, *other = NULL;
	int fds[FRAME_FDS_MAX];
	size_t n = 0;
	int64_t id = 0;

	register_it();
	say("{\"v\":1,\"id\":-3,\"method\":\"ping\",\"params\":{}}");
	say("{\"v\":1,\"id\":-4,\"method\":\"dance\",\"params\":{}}");
	turn();
	pong = heard(fds, &n);
	assert_true(json_get_int(pong, "id", &id));
	assert_int_equal(id, -3);
	assert_non_null(json_get_object(pong, "result"));
	other = heard(fds, &n);
	assert_string_equal(json_get_string(json_get_object(other, "error"), "code"),
			    "unknown_method");
	assert_true(f.live);
}

static int open_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void test_no_daemon(void **state)
{
	static const unsigned int waits[] = {1000, 2000, 4000, 8000, 10000, 10000};
	int before = open_fds();

	for (size_t i = 0; i < ARRAY_SIZE(waits); i++) {
		expire();
		expect_failed(-ENOENT, waits[i]);
	}
	/* nothing was made for a daemon that is not there, and nothing is left over */
	assert_int_equal(f.prepared, 0);
	assert_int_equal(open_fds(), before);
	assert_int_equal(f.controls, 0);
	/* one that comes is found, and the waits are short again when it goes */
	register_it();
	f.conn = close_fd(f.conn);
	turn();
	expect_failed(-ECONNRESET, 100);
	assert_false(f.has_control);
	(void)unlink(f.path);
	expire();
	expect_failed(-ENOENT, 1000);
	/* and again */
	f.listener = close_fd(f.listener);
	register_it();
}

static void test_full_backlog(void **state)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int others[8], n = 0;

	daemon_listen();
	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", f.path);
	for (; n < 8; n++) {
		others[n] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (connect(others[n], (struct sockaddr *)&a, sizeof(a)) < 0)
			break;
	}
	assert_uint_in_range(n, 1, 7);
	expire();
	expect_failed(-EAGAIN, 1000);
	for (int i = 0; i <= n; i++)
		(void)close_fd(others[i]);
}

static void test_refusals(void **state)
{
	static const struct {
		const char *code;
		int error;
		unsigned int ms;
	} cases[] = {
		{"busy", TRACERD_E_BUSY, 1000},
		{"quota", TRACERD_E_QUOTA, 2000},
		{"shutting_down", TRACERD_E_SHUTTING_DOWN, 4000},
		{"unknown_method", TRACERD_E_UNKNOWN_METHOD, 60000},
		{"too_large", TRACERD_E_TOO_LARGE, 60000},
		{"brand_new", TRACERD_E_UNKNOWN, 8000},
	};

	int before;

	daemon_listen();
	before = open_fds();
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char text[128];

		ask();
		(void)snprintf(text, sizeof(text),
			       "{\"v\":1,\"id\":%s,\"error\":{\"code\":\"%s\",\"message\":\"no\"}}",
			       i % 2 ? "null" : "1", cases[i].code);
		say(text);
		turn();
		expect_failed(cases[i].error, cases[i].ms);
		f.conn = close_fd(f.conn);
	}
	assert_int_equal(f.controls, 0);
	assert_int_equal(open_fds(), before);
	/* a refusal is not for ever */
	register_it();
}

/* An answer that is none: the connection ends, nothing is kept. */
static void expect_bad(const char *text, const int *fds, size_t n, unsigned int *ms)
{
	int before;

	if (f.listener < 0)
		daemon_listen();
	before = open_fds();
	ask();
	say_fds(text, fds, n);
	turn();
	expect_failed(-EPROTO, *ms);
	f.conn = close_fd(f.conn);
	assert_int_equal(open_fds(), before);
	assert_int_equal(f.controls, 0);
	*ms = *ms * 2 < 10000 ? *ms * 2 : 10000;
}

static void test_bad_answers(void **state)
{
	unsigned int ms = 1000;
	int two[2] = {f.page_fd, f.page_fd};

	expect_bad("{}", NULL, 0, &ms);
	expect_bad("[1,2", NULL, 0, &ms);
	expect_bad("{\"v\":1,\"id\":1,\"result\":{}}", NULL, 0, &ms);
	expect_bad("{\"v\":1,\"id\":1,\"result\":{},\"nfds\":1}", NULL, 0, &ms);
	expect_bad("{\"v\":1,\"id\":1,\"result\":{}}", &f.page_fd, 1, &ms);
	expect_bad("{\"v\":1,\"id\":1,\"result\":[],\"nfds\":1}", &f.page_fd, 1, &ms);
	expect_bad("{\"v\":1,\"id\":2,\"result\":{},\"nfds\":1}", &f.page_fd, 1, &ms);
	expect_bad("{\"v\":1,\"id\":1,\"result\":{},\"nfds\":2}", two, 2, &ms);
}

static void test_bad_pages(void **state)
{
	_cleanup_close_ int empty = memfd_create("empty", MFD_CLOEXEC | MFD_ALLOW_SEALING),
			    blank = -1, unsealed = -1;
	_cleanup_close_ int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	_cleanup_free_ char *zeroes = calloc(1, RING_CONTROL_BYTES);
	uint32_t version = RING_VERSION + 1;
	unsigned int ms = 1000;
	int ends[2];

	expect_bad(accepted, &null, 1, &ms);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	expect_bad(accepted, &ends[0], 1, &ms);
	close_all(ends, 2);
	assert_int_equal(fcntl(empty, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	expect_bad(accepted, &empty, 1, &ms);
	blank = page_new();
	assert_int_equal(io_pwrite_all(blank, zeroes, RING_CONTROL_BYTES, 0), 0);
	expect_bad(accepted, &blank, 1, &ms);
	/* what can shrink under the reader */
	unsealed = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(unsealed, RING_CONTROL_BYTES), 0);
	expect_bad(accepted, &unsealed, 1, &ms);
	assert_int_equal(io_pwrite_all(f.page_fd, &version, 4,
				       offsetof(struct ring_control, version)),
			 0);
	expect_bad(accepted, &f.page_fd, 1, &ms);
}

static void test_huge_frame(void **state)
{
	ask();
	assert_int_equal(io_write_all(f.conn, "\x7f\xff\xff\xff", 4), 0);
	turn();
	expect_failed(-EPROTO, 1000);
	/* also later */
	register_it();
	assert_int_equal(io_write_all(f.conn, "\0\2\0\0", 4), 0);
	turn();
	expect_failed(-EPROTO, 100);
}

static void test_silence(void **state)
{
	ask();
	assert_int_equal(f.timer_ms, 10000);
	expire();
	expect_failed(-ETIMEDOUT, 1000);
	/* hangs up without a word */
	ask();
	f.conn = close_fd(f.conn);
	turn();
	expect_failed(-ECONNRESET, 2000);
	/* half an answer */
	ask();
	assert_int_equal(io_write_all(f.conn, "\0\0\0\x10{\"v\"", 8), 0);
	turn();
	assert_true(f.timer_armed);
	expire();
	expect_failed(-ETIMEDOUT, 4000);
	/* half a message of one that was good: silence is fine, but not in the middle */
	register_it();
	assert_false(f.timer_armed);
	assert_int_equal(io_write_all(f.conn, "\0\0\0\x10{\"v\"", 8), 0);
	turn();
	assert_true(f.live && f.timer_armed);
	expire();
	expect_failed(-ETIMEDOUT, 100);
}

/* It asks all the time and does not read the answers. */
static void test_flood(void **state)
{
	static const char ping[] = "{\"v\":1,\"id\":-3,\"method\":\"ping\",\"params\":{}}";
	int size = 1;

	register_it();
	assert_int_equal(setsockopt(f.conn, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)), 0);
	for (int i = 0; i < 100000 && f.live; i++) {
		say(ping);
		assert_int_equal(registration_dispatch(f.r), 0);
	}
	assert_false(f.live);
	assert_int_equal(f.error, -ENOBUFS);
}

static void test_prepare_fails(void **state)
{
	daemon_listen();
	f.prepare_error = -ENOMEM;
	expire();
	expect_failed(-ENOMEM, 1000);
	accept_one();
	f.prepare_error = 0;
	f.conn = close_fd(f.conn);
	register_it();
}

/*
 * What a forked child does, in each state: the same number of descriptors as before there was any.
 */
static void test_abandon(void **state)
{
	static const struct registration_callbacks callbacks = {on_prepare, on_control, on_changed,
								NULL};
	struct registration *r = NULL;
	int before;

	register_it();
	before = open_fds();
	registration_abandon(f.r);
	/* epoll, timer, socket, page */
	assert_int_equal(open_fds(), before - 4);
	free(take_ptr(f.r));

	before = open_fds();
	assert_int_equal(registration_new(f.path, &callbacks, &r), 0);
	registration_abandon(r);
	assert_int_equal(open_fds(), before);
	free(r);
}

static void test_long_path(void **state)
{
	static const struct registration_callbacks callbacks = {on_prepare, on_control, on_changed,
								NULL};
	char path[sizeof(((struct sockaddr_un *)0)->sun_path) + 1];
	struct registration *r = NULL;

	memset(path, 'a', sizeof(path) - 1);
	path[sizeof(path) - 1] = 0;
	assert_int_equal(registration_new(path, &callbacks, &r), -ENAMETOOLONG);
	assert_null(r);
	registration_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_registers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_control_changes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_answers_pings, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_daemon, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full_backlog, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_answers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_pages, setup, teardown),
		cmocka_unit_test_setup_teardown(test_huge_frame, setup, teardown),
		cmocka_unit_test_setup_teardown(test_silence, setup, teardown),
		cmocka_unit_test_setup_teardown(test_flood, setup, teardown),
		cmocka_unit_test_setup_teardown(test_prepare_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(test_abandon, setup, teardown),
		cmocka_unit_test_setup_teardown(test_long_path, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
