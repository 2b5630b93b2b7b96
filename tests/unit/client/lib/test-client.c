// SPDX-License-Identifier: Apache-2.0
/*
 * The library against a daemon that the test plays: what it says is written into the other end of
 * a socketpair before the call, so that no test depends on timing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cmocka.h>

#include "common/base/io.h"
#include "common/control/frame.h"
#include "common/control/json.h"
#include "tracerd.h"

struct fixture {
	tracerd_client *client;
	int daemon; /* our end */
};

static int setup(void **state)
{
	static struct fixture f;
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(tracerd_connect_fd(pair[0], &f.client), 0);
	f.daemon = pair[1];
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	tracerd_close(f->client);
	(void)close_fd(f->daemon);
	return 0;
}

static uint64_t soon(void)
{
	return io_now_ns() + 2000000000;
}

static void say_fds(struct fixture *f, const char *text, const int *fds, size_t n)
{
	assert_int_equal(frame_send(f->daemon, text, strlen(text), fds, n, soon()), 0);
}

static void say(struct fixture *f, const char *text)
{
	say_fds(f, text, NULL, 0);
}

/* The next message of the client; its descriptors are counted and closed. */
static struct json_object *heard(struct fixture *f, size_t want_fds)
{
	_cleanup_free_ char *text = NULL;
	struct json_object *o = NULL;
	int fds[FRAME_FDS_MAX];
	size_t len = 0, n_fds = 0;

	assert_int_equal(
		frame_recv(f->daemon, FRAME_REQUEST_MAX, &text, &len, fds, &n_fds, soon()), 0);
	assert_int_equal(n_fds, want_fds);
	for (size_t i = 0; i < n_fds; i++)
		(void)close_fd(fds[i]);
	assert_int_equal(json_parse(text, len, FRAME_REQUEST_MAX, &o, NULL, 0), 0);
	return o;
}

static void test_call(void **state)
{
	struct fixture *f = *state;
	_cleanup_json_ struct json_object *request = NULL;
	tracerd_reply *reply = NULL;
	int64_t id = 0;

	say(f, "{\"v\":1,\"id\":1,\"result\":{\"a\":[1,2]}}");
	assert_int_equal(
		tracerd_call(f->client, "hello", "{\"x\":true}", NULL, 0, 1000, &reply), 0);
	assert_string_equal(tracerd_reply_json(reply), "{\"a\":[1,2]}");
	assert_int_equal(tracerd_reply_fd_count(reply), 0);
	assert_int_equal(tracerd_reply_take_fd(reply, 0), -EBADF);
	tracerd_reply_free(reply);
	request = heard(f, 0);
	assert_true(json_get_int(request, "id", &id));
	assert_int_equal(id, 1);
	assert_string_equal(json_get_string(request, "method"), "hello");
	assert_non_null(json_get_object(request, "params"));

	/* no interest in the answer */
	say(f, "{\"v\":1,\"id\":2,\"result\":{}}");
	assert_int_equal(tracerd_call(f->client, "hello", NULL, NULL, 0, 1000, NULL), 0);
}

static void test_refusal(void **state)
{
	struct fixture *f = *state;
	tracerd_reply *reply = NULL;

	say(f, "{\"v\":1,\"id\":1,\"error\":{\"code\":\"gone\",\"message\":\"it has exited\"}}");
	assert_int_equal(tracerd_call(f->client, "x", NULL, NULL, 0, 1000, &reply), TRACERD_E_GONE);
	assert_null(reply);
	assert_string_equal(tracerd_error_message(f->client), "it has exited");
	say(f, "{\"v\":1,\"id\":2,\"error\":{\"code\":\"brand_new\",\"message\":\"?\"}}");
	assert_int_equal(
		tracerd_call(f->client, "x", NULL, NULL, 0, 1000, NULL), TRACERD_E_UNKNOWN);
	say(f, "{\"v\":1,\"id\":3,\"result\":{}}");
	assert_int_equal(tracerd_call(f->client, "x", NULL, NULL, 0, 1000, NULL), 0);
	assert_string_equal(tracerd_error_message(f->client), "");
}

static void test_own_mistakes(void **state)
{
	struct fixture *f = *state;
	static char big[FRAME_REQUEST_MAX + 2];
	int fds[TRACERD_MAX_FDS + 1] = {0};

	memset(big, ' ', sizeof(big) - 1);
	assert_int_equal(tracerd_call(f->client, "x", "[1]", NULL, 0, 100, NULL), -EINVAL);
	assert_int_equal(tracerd_call(f->client, "x", "{\"a\":", NULL, 0, 100, NULL), -EINVAL);
	assert_int_equal(
		tracerd_call(f->client, "x", "{\"a\":1,\"a\":2}", NULL, 0, 100, NULL), -EINVAL);
	assert_int_equal(tracerd_call(f->client, "x", big, NULL, 0, 100, NULL), -EMSGSIZE);
	assert_int_equal(
		tracerd_call(f->client, "x", NULL, fds, TRACERD_MAX_FDS + 1, 100, NULL), -EINVAL);
	/* nothing of it has reached the daemon, and the connection is as good as before */
	say(f, "{\"v\":1,\"id\":1,\"result\":{}}");
	assert_int_equal(tracerd_call(f->client, "x", NULL, NULL, 0, 1000, NULL), 0);
	json_object_put(heard(f, 0));
}

static void test_descriptors(void **state)
{
	struct fixture *f = *state;
	_cleanup_close_ int a = io_memfd("a"), b = io_memfd("b"), got = -1;
	int fds[2] = {a, b}, untaken;
	tracerd_reply *reply = NULL;

	assert_int_equal(io_write_all(b, "second", 6), 0);
	say_fds(f, "{\"v\":1,\"id\":1,\"result\":{},\"nfds\":2}", fds, 2);
	assert_int_equal(tracerd_call(f->client, "x", NULL, fds, 2, 1000, &reply), 0);
	json_object_put(heard(f, 2));
	assert_int_equal(tracerd_reply_fd_count(reply), 2);
	got = tracerd_reply_take_fd(reply, 1);
	assert_true(got >= 0);
	assert_true(fcntl(got, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(tracerd_reply_take_fd(reply, 1), -EBADF);
	assert_int_equal(tracerd_reply_take_fd(reply, 2), -EBADF);
	untaken = tracerd_reply_take_fd(reply, 0);
	assert_true(untaken >= 0);
	(void)close_fd(untaken);
	tracerd_reply_free(reply);

	/* a count that is not what came: not the protocol */
	say_fds(f, "{\"v\":1,\"id\":2,\"result\":{},\"nfds\":1}", fds, 2);
	assert_int_equal(tracerd_call(f->client, "x", NULL, NULL, 0, 1000, &reply), -EPROTO);
	assert_int_equal(tracerd_call(f->client, "x", NULL, NULL, 0, 1000, &reply), -ENOTCONN);
}

static void test_events_and_pings(void **state)
{
	struct fixture *f = *state;
	_cleanup_json_ struct json_object *pong = NULL, *refusal = NULL;
	tracerd_event *e = NULL;
	int64_t id = 0;

	assert_int_equal(tracerd_next_event(f->client, 0, &e), -EAGAIN);
	assert_int_equal(tracerd_next_event(f->client, 20, &e), -ETIMEDOUT);
	say(f, "{\"v\":1,\"event\":\"snapshot.state\",\"seq\":4,\"missed\":3,\"data\":{\"id\":"
	       "\"a\"}}");
	say(f, "{\"v\":1,\"id\":-7,\"method\":\"ping\",\"params\":{}}");
	say(f, "{\"v\":1,\"id\":-8,\"method\":\"dance\",\"params\":{}}");
	say(f, "{\"v\":1,\"event\":\"daemon.stopping\",\"seq\":5,\"missed\":0,\"data\":{}}");
	say(f, "{\"v\":1,\"id\":1,\"result\":{}}");
	assert_int_equal(tracerd_call(f->client, "x", NULL, NULL, 0, 1000, NULL), 0);

	json_object_put(heard(f, 0)); /* the call */
	pong = heard(f, 0);
	assert_true(json_get_int(pong, "id", &id));
	assert_int_equal(id, -7);
	assert_non_null(json_get_object(pong, "result"));
	refusal = heard(f, 0);
	assert_string_equal(
		json_get_string(json_get_object(refusal, "error"), "code"), "unknown_method");

	assert_int_equal(tracerd_next_event(f->client, 0, &e), 0);
	assert_string_equal(tracerd_event_name(e), "snapshot.state");
	assert_string_equal(tracerd_event_json(e), "{\"id\":\"a\"}");
	assert_int_equal(tracerd_event_seq(e), 4);
	assert_int_equal(tracerd_event_missed(e), 3);
	tracerd_event_free(e);
	assert_int_equal(tracerd_next_event(f->client, TRACERD_FOREVER, &e), 0);
	assert_string_equal(tracerd_event_name(e), "daemon.stopping");
	tracerd_event_free(e);
	assert_int_equal(tracerd_next_event(f->client, 0, &e), -EAGAIN);
}

/* Who does not fetch events loses the oldest ones, and is told how many. */
static void test_events_overflow(void **state)
{
	struct fixture *f = *state;
	tracerd_event *e = NULL;
	char text[128];

	for (int i = 1; i <= 1100; i++) {
		(void)snprintf(text, sizeof(text),
			"{\"v\":1,\"event\":\"x\",\"seq\":%d,\"missed\":%d,\"data\":{}}", i,
			i == 10 ? 5 : 0);
		say(f, text);
		if (i % 50)
			continue;
		(void)snprintf(text, sizeof(text), "{\"v\":1,\"id\":%d,\"result\":{}}", i / 50);
		say(f, text);
		assert_int_equal(tracerd_call(f->client, "x", NULL, NULL, 0, 1000, NULL), 0);
	}
	assert_int_equal(tracerd_next_event(f->client, 0, &e), 0);
	assert_int_equal(tracerd_event_seq(e), 1100 - 1024 + 1);
	assert_int_equal(tracerd_event_missed(e), 1100 - 1024 + 5);
	tracerd_event_free(e);
}

/* A deadline in the middle of a frame loses nothing; a late answer is not taken for another's. */
static void test_timeout(void **state)
{
	struct fixture *f = *state;
	static const char late[] = "{\"v\":1,\"id\":1,\"result\":{\"late\":1}}";
	uint8_t frame[sizeof(late) + 3] = {0, 0, 0, sizeof(late) - 1};
	tracerd_reply *reply = NULL;

	memcpy(frame + 4, late, sizeof(late) - 1);
	assert_int_equal(io_write_all(f->daemon, frame, 9), 0);
	assert_int_equal(tracerd_call(f->client, "x", NULL, NULL, 0, 30, &reply), -ETIMEDOUT);
	assert_int_equal(io_write_all(f->daemon, frame + 9, sizeof(frame) - 9), 0);
	say(f, "{\"v\":1,\"id\":2,\"result\":{\"mine\":1}}");
	assert_int_equal(tracerd_call(f->client, "x", NULL, NULL, 0, 1000, &reply), 0);
	assert_string_equal(tracerd_reply_json(reply), "{\"mine\":1}");
	tracerd_reply_free(reply);
}

static void test_hang_up(void **state)
{
	struct fixture *f = *state;

	f->daemon = close_fd(f->daemon);
	assert_int_equal(tracerd_call(f->client, "x", NULL, NULL, 0, 1000, NULL), -ECONNRESET);
	assert_int_equal(tracerd_call(f->client, "x", NULL, NULL, 0, 1000, NULL), -ENOTCONN);
}

/* What the daemon said before it hung up is the better error. */
static void test_last_words(void **state)
{
	struct fixture *f = *state;

	say(f, "{\"v\":1,\"id\":null,\"error\":{\"code\":\"busy\",\"message\":\"too many "
	       "connections\"}}");
	f->daemon = close_fd(f->daemon);
	assert_int_equal(tracerd_call(f->client, "x", NULL, NULL, 0, 1000, NULL), TRACERD_E_BUSY);
	assert_string_equal(tracerd_error_message(f->client), "too many connections");
	assert_int_equal(tracerd_call(f->client, "x", NULL, NULL, 0, 1000, NULL), -ENOTCONN);
}

static void nonsense(void **state, const char *text)
{
	struct fixture *f = *state;
	tracerd_reply *reply = NULL;

	say(f, text);
	assert_int_equal(tracerd_call(f->client, "x", NULL, NULL, 0, 1000, &reply), -EPROTO);
	assert_int_equal(teardown(state), 0);
	assert_int_equal(setup(state), 0);
}

static void test_nonsense(void **state)
{
	struct fixture *f = *state;
	static const uint8_t huge[4] = {0xff, 0xff, 0xff, 0xff};

	nonsense(state, "hello");
	nonsense(state, "[]");
	nonsense(state, "{}");
	nonsense(state, "{\"v\":1,\"id\":1}");
	nonsense(state, "{\"v\":1,\"id\":1,\"result\":7}");
	nonsense(state, "{\"v\":1,\"id\":1,\"error\":\"x\"}");
	nonsense(state, "{\"v\":1,\"id\":\"1\",\"result\":{}}");
	assert_int_equal(io_write_all(f->daemon, huge, sizeof(huge)), 0);
	assert_int_equal(tracerd_call(f->client, "x", NULL, NULL, 0, 1000, NULL), -EPROTO);
}

static void test_connect(void **state)
{
	char path[sizeof(((struct sockaddr_un *)0)->sun_path) + 8];
	tracerd_client *c = NULL;

	assert_int_equal(tracerd_connect("/nonexistent/x.sock", 100, &c), -ENOENT);
	memset(path, 'a', sizeof(path) - 1);
	path[sizeof(path) - 1] = 0;
	assert_int_equal(tracerd_connect(path, 100, &c), -ENAMETOOLONG);
	assert_null(c);
	assert_int_equal(setenv("TRACERD_SOCKET", "/some/where", 1), 0);
	assert_string_equal(tracerd_default_socket(), "/some/where");
	assert_int_equal(setenv("TRACERD_SOCKET", "", 1), 0);
	assert_string_equal(tracerd_default_socket(), TRACERD_RUNDIR "/control.sock");
	tracerd_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_call, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refusal, setup, teardown),
		cmocka_unit_test_setup_teardown(test_own_mistakes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_descriptors, setup, teardown),
		cmocka_unit_test_setup_teardown(test_events_and_pings, setup, teardown),
		cmocka_unit_test_setup_teardown(test_events_overflow, setup, teardown),
		cmocka_unit_test_setup_teardown(test_timeout, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hang_up, setup, teardown),
		cmocka_unit_test_setup_teardown(test_last_words, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nonsense, setup, teardown),
		cmocka_unit_test(test_connect),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
