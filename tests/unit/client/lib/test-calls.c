// SPDX-License-Identifier: Apache-2.0
/*
 * The calls for tools, against a daemon that the test plays: what it says is written into the other
 * end of a socketpair before the call.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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
	return io_now_ns() + 10000000000;
}

static void say(struct fixture *f, const char *text)
{
	assert_int_equal(frame_send(f->daemon, text, strlen(text), NULL, 0, soon()), 0);
}

/* The next request: its method is checked, its params are returned as text (freed by the next). */
static const char *heard(struct fixture *f, const char *method, int fds[FRAME_FDS_MAX],
			 size_t *ret_n)
{
	static char params[4096];
	_cleanup_free_ char *text = NULL;
	_cleanup_json_ struct json_object *o = NULL;
	size_t len = 0;

	assert_int_equal(frame_recv(f->daemon, FRAME_REQUEST_MAX, &text, &len, fds, ret_n, soon()),
			 0);
	assert_int_equal(json_parse(text, len, FRAME_REQUEST_MAX, &o, NULL, 0), 0);
	assert_string_equal(json_get_string(o, "method"), method);
	(void)snprintf(params, sizeof(params), "%s", json_text(json_get_object(o, "params"), NULL));
	return params;
}

static const char *heard_plain(struct fixture *f, const char *method)
{
	int fds[FRAME_FDS_MAX];
	size_t n = 0;
	const char *params = heard(f, method, fds, &n);

	assert_int_equal(n, 0);
	return params;
}

static void test_arm(void **state)
{
	struct fixture *f = *state;
	tracerd_arm_options o = {.size = sizeof(o),
				 .stacks = "fp",
				 .backend = "sample",
				 .no_waits = 1};
	tracerd_reply *reply = NULL;
	int fds[FRAME_FDS_MAX];
	char want[160], first[64] = "", maps[32], link[64];
	size_t n = 0;
	FILE *file;

	say(f, "{\"v\":1,\"id\":1,\"result\":{\"target\":{\"id\":\"t7\"}}}");
	assert_int_equal(tracerd_arm(f->client, getpid(), NULL, 10000, &reply), 0);
	assert_string_equal(tracerd_reply_text(reply, "target.id"), "t7");
	tracerd_reply_free(reply);
	(void)snprintf(want, sizeof(want), "{\"pid\":%d,\"fds\":[\"pidfd\",\"maps\"]}",
		       (int)getpid());
	assert_string_equal(heard(f, "target.arm", fds, &n), want);
	assert_int_equal(n, 2);
	/* the second is what it says */
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fds[1]);
	(void)snprintf(maps, sizeof(maps), "/proc/%d/maps", (int)getpid());
	assert_true(readlink(link, first, sizeof(first) - 1) > 0);
	assert_string_equal(first, maps);
	(void)close_fd(fds[0]);
	(void)close_fd(fds[1]);

	say(f, "{\"v\":1,\"id\":2,\"result\":{\"target\":{}}}");
	assert_int_equal(tracerd_arm(f->client, getpid(), &o, 10000, NULL), 0);
	(void)snprintf(
		want, sizeof(want),
		"{\"pid\":%d,\"backend\":\"sample\",\"stacks\":\"fp\",\"waits\":false,\"fds\":[\"pidfd\",\"maps\"]}",
		(int)getpid());
	assert_string_equal(heard(f, "target.arm", fds, &n), want);
	(void)close_fd(fds[0]);
	(void)close_fd(fds[1]);

	/* nothing is asked of the daemon */
	file = fopen("/proc/sys/kernel/pid_max", "re");
	assert_non_null(file);
	assert_non_null(fgets(first, sizeof(first), file));
	(void)fclose(file);
	assert_int_equal(tracerd_arm(f->client, (pid_t)strtol(first, NULL, 10), NULL, 10000, NULL),
			 -ESRCH);
	assert_int_equal(tracerd_arm(f->client, 0, NULL, 10000, NULL), -EINVAL);
	o.size = 2;
	assert_int_equal(tracerd_arm(f->client, getpid(), &o, 10000, NULL), -EINVAL);
}

static void test_targets_by_id_and_number(void **state)
{
	struct fixture *f = *state;
	tracerd_reply *reply = NULL;

	say(f, "{\"v\":1,\"id\":1,\"result\":{}}");
	assert_int_equal(tracerd_disarm(f->client, "t3", 10000, NULL), 0);
	assert_string_equal(heard_plain(f, "target.disarm"), "{\"target\":\"t3\"}");
	say(f, "{\"v\":1,\"id\":2,\"result\":{}}");
	assert_int_equal(tracerd_disarm(f->client, "1234", 10000, NULL), 0);
	assert_string_equal(heard_plain(f, "target.disarm"), "{\"target\":1234}");
	/* what is neither is the daemon's to refuse */
	say(f, "{\"v\":1,\"id\":3,\"error\":{\"code\":\"bad_params\",\"message\":\"no\"}}");
	assert_int_equal(tracerd_disarm(f->client, "99999999999999999999", 10000, NULL),
			 TRACERD_E_BAD_PARAMS);
	assert_string_equal(heard_plain(f, "target.disarm"),
			    "{\"target\":\"99999999999999999999\"}");

	say(f,
	    "{\"v\":1,\"id\":4,\"result\":{\"snapshot\":{\"id\":\"s1\",\"state\":\"done\",\"bytes\":5}}}");
	assert_int_equal(tracerd_take_snapshot(f->client, "t3", "a \"reason\"", 1, 10000, &reply),
			 0);
	assert_string_equal(heard_plain(f, "snapshot.create"),
		"{\"target\":\"t3\",\"reason\":\"a \\\"reason\\\"\",\"wait\":true}");
	assert_string_equal(tracerd_reply_text(reply, "snapshot.id"), "s1");
	assert_string_equal(tracerd_reply_text(reply, "snapshot.state"), "done");
	assert_null(tracerd_reply_text(reply, "snapshot.bytes"));
	assert_null(tracerd_reply_text(reply, "snapshot"));
	assert_null(tracerd_reply_text(reply, "snapshot.id.x"));
	assert_null(tracerd_reply_text(reply, ""));
	assert_null(tracerd_reply_text(reply, "."));
	assert_null(tracerd_reply_text(
		reply,
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
	tracerd_reply_free(reply);

	say(f, "{\"v\":1,\"id\":5,\"result\":{\"version\":\"1\"}}");
	assert_int_equal(tracerd_get_status(f->client, 10000, &reply), 0);
	assert_string_equal(heard_plain(f, "status"), "{}");
	assert_string_equal(tracerd_reply_text(reply, "version"), "1");
	tracerd_reply_free(reply);
}

static void test_list(void **state)
{
	struct fixture *f = *state;
	tracerd_reply *reply = NULL;

	say(f,
	    "{\"v\":1,\"id\":1,\"result\":{\"targets\":[{\"id\":\"t1\"},{\"id\":\"t2\"}],\"next\":\"t2\"}}");
	say(f, "{\"v\":1,\"id\":2,\"result\":{\"targets\":[{\"id\":\"t3\"}],\"next\":null}}");
	assert_int_equal(tracerd_list(f->client, TRACERD_TARGETS, 10000, &reply), 0);
	assert_string_equal(tracerd_reply_json(reply),
			    "{\"targets\":[{\"id\":\"t1\"},{\"id\":\"t2\"},{\"id\":\"t3\"}]}");
	tracerd_reply_free(take_ptr(reply));
	assert_string_equal(heard_plain(f, "target.list"), "{}");
	assert_string_equal(heard_plain(f, "target.list"), "{\"cursor\":\"t2\"}");

	say(f, "{\"v\":1,\"id\":3,\"result\":{\"snapshots\":[],\"next\":null}}");
	assert_int_equal(tracerd_list(f->client, TRACERD_SNAPSHOTS, TRACERD_FOREVER, &reply), 0);
	assert_string_equal(tracerd_reply_json(reply), "{\"snapshots\":[]}");
	tracerd_reply_free(take_ptr(reply));
	assert_string_equal(heard_plain(f, "snapshot.list"), "{}");

	/* lists that would not end: the same page again, and an empty one that goes on */
	say(f, "{\"v\":1,\"id\":4,\"result\":{\"targets\":[{}],\"next\":\"a\"}}");
	say(f, "{\"v\":1,\"id\":5,\"result\":{\"targets\":[{}],\"next\":\"a\"}}");
	assert_int_equal(tracerd_list(f->client, TRACERD_TARGETS, 10000, &reply), -EPROTO);
	say(f, "{\"v\":1,\"id\":6,\"result\":{\"targets\":[],\"next\":\"a\"}}");
	assert_int_equal(tracerd_list(f->client, TRACERD_TARGETS, 10000, &reply), -EPROTO);
	/* a refusal in the middle */
	say(f, "{\"v\":1,\"id\":7,\"result\":{\"targets\":[{}],\"next\":\"a\"}}");
	say(f, "{\"v\":1,\"id\":8,\"error\":{\"code\":\"shutting_down\",\"message\":\"x\"}}");
	assert_int_equal(tracerd_list(f->client, TRACERD_TARGETS, 10000, &reply),
			 TRACERD_E_SHUTTING_DOWN);
	assert_int_equal(tracerd_list(f->client, (enum tracerd_kind)7, 10000, &reply), -EINVAL);
	assert_null(reply);
	/* the daemon is silent */
	assert_int_equal(tracerd_list(f->client, TRACERD_TARGETS, 0, &reply), -ETIMEDOUT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_arm, setup, teardown),
		cmocka_unit_test_setup_teardown(test_targets_by_id_and_number, setup, teardown),
		cmocka_unit_test_setup_teardown(test_list, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
