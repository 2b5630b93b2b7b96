// SPDX-License-Identifier: Apache-2.0
/* The link's codec: what goes round unchanged, and what a hostile end may send. */
#include "common/decoder/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/io.h"
#include "common/control/json.h"

static int pair[2];

static int setup(void **state)
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
}

static int teardown(void **state)
{
	(void)close(pair[0]);
	(void)close(pair[1]);
	return 0;
}

static int next_fd(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	(void)close(fd);
	return fd;
}

static void test_round_trip(void **state)
{
	struct file_request request = {
		.req = 7,
		.kind = FILE_REQUEST_DEBUG,
		.maj = 8,
		.min = 3,
		.ino = UINT64_MAX,
		.pid = 12,
		.nspid = 1,
		.build_id = {0xab, 0x00, 0xff},
		.build_id_len = 3,
	}, back;
	struct decoder_packet p = DECODER_PACKET_INIT;
	struct json_object *o;
	int fds[2] = {0, 1}, before = next_fd();

	(void)strcpy(request.path, "/with\n\x1b and \xff/bytes");
	(void)strcpy(request.object, "/usr/bin/plain \"quoted\" \\ name");
	o = file_request_to_json(&request);
	assert_int_equal(decoder_packet_send(pair[0], DECODER_PACKET_REQUEST, o, fds, 2, 0), 0);
	json_object_put(o);
	assert_int_equal(decoder_packet_recv(pair[1], &p, 0), 1);
	assert_int_equal(p.type, DECODER_PACKET_REQUEST);
	assert_int_equal(p.n_fds, 2);
	assert_int_equal(fcntl(p.fds[0], F_GETFD), FD_CLOEXEC);
	memset(&back, 0xee, sizeof(back));
	assert_int_equal(file_request_from_json(p.body, &back), 0);
	assert_string_equal(back.path, request.path);
	assert_string_equal(back.object, request.object);
	assert_int_equal(back.req, 7);
	assert_int_equal(back.kind, FILE_REQUEST_DEBUG);
	assert_true(back.ino == UINT64_MAX);
	assert_int_equal(back.build_id_len, 3);
	assert_memory_equal(back.build_id, request.build_id, 3);
	decoder_packet_fini(&p);
	assert_int_equal(next_fd(), before);
}

static void test_end_and_full(void **state)
{
	struct json_object *o = json_object_new_object();
	struct decoder_packet p = DECODER_PACKET_INIT;
	int r = 0;

	assert_int_equal(decoder_packet_recv(pair[1], &p, MSG_DONTWAIT), -EAGAIN);
	for (int i = 0; r == 0 && i < 1000000; i++)
		r = decoder_packet_send(pair[0], DECODER_PACKET_CANCEL, o, NULL, 0, MSG_DONTWAIT);
	assert_int_equal(r, -EAGAIN);
	(void)close(pair[1]);
	pair[1] = -1;
	assert_int_equal(decoder_packet_send(pair[0], DECODER_PACKET_CANCEL, o, NULL, 0,
					     MSG_DONTWAIT),
			 -EPIPE);
	r = decoder_packet_recv(pair[0], &p, 0);
	assert_int_equal(r, 0);
	json_object_put(o);
}

static void test_too_long(void **state)
{
	struct json_object *o = json_object_new_object();
	char *text = calloc(1, DECODER_PACKET_MAX_TEXT + 1);

	memset(text, 'x', DECODER_PACKET_MAX_TEXT);
	json_add_string(o, "x", text);
	assert_int_equal(decoder_packet_send(pair[0], DECODER_PACKET_RESULT, o, NULL, 0, 0),
			 -EMSGSIZE);
	json_object_put(o);
	free(text);
}

/* A packet as bytes, with an fd; the receiver must refuse it and close the fd. */
static void refused(uint16_t version, uint16_t type, uint32_t length, const char *text, size_t len)
{
	struct decoder_packet p = DECODER_PACKET_INIT;
	char *packet = calloc(1, 8 + len + 1);
	int fd = 0, before = next_fd();

	memcpy(packet, &version, 2);
	memcpy(packet + 2, &type, 2);
	memcpy(packet + 4, &length, 4);
	memcpy(packet + 8, text, len);
	assert_true(io_send_fds(pair[0], packet, 8 + len, &fd, 1, 0) > 0);
	assert_int_equal(decoder_packet_recv(pair[1], &p, 0), -EPROTO);
	assert_int_equal(next_fd(), before);
	free(packet);
}

static void test_hostile_packets(void **state)
{
	static char deep[4096], big[DECODER_PACKET_MAX_TEXT + 64];
	struct decoder_packet p = DECODER_PACKET_INIT;

	refused(DECODER_PROTOCOL_VERSION - 1, DECODER_PACKET_REQUEST, 2, "{}", 2);
	refused(DECODER_PROTOCOL_VERSION + 1, DECODER_PACKET_REQUEST, 2, "{}", 2);
	refused(DECODER_PROTOCOL_VERSION, 0, 2, "{}", 2);
	refused(DECODER_PROTOCOL_VERSION, 4, 2, "{}", 2);
	refused(DECODER_PROTOCOL_VERSION, 15, 2, "{}", 2);
	refused(DECODER_PROTOCOL_VERSION, 20, 2, "{}", 2);
	refused(DECODER_PROTOCOL_VERSION, 65535, 2, "{}", 2);
	refused(DECODER_PROTOCOL_VERSION, DECODER_PACKET_REQUEST, 3, "{}", 2);
	refused(DECODER_PROTOCOL_VERSION, DECODER_PACKET_REQUEST, 1, "{}", 2);
	refused(DECODER_PROTOCOL_VERSION, DECODER_PACKET_REQUEST, UINT32_MAX, "{}", 2);
	refused(DECODER_PROTOCOL_VERSION, DECODER_PACKET_REQUEST, 0, "", 0);
	refused(DECODER_PROTOCOL_VERSION, DECODER_PACKET_REQUEST, 2, "[]", 2);
	refused(DECODER_PROTOCOL_VERSION, DECODER_PACKET_REQUEST, 4, "null", 4);
	refused(DECODER_PROTOCOL_VERSION, DECODER_PACKET_REQUEST, 13, "{\"a\":1,\"a\":2}", 13);
	memset(deep, '[', sizeof(deep));
	refused(DECODER_PROTOCOL_VERSION, DECODER_PACKET_REQUEST, sizeof(deep), deep, sizeof(deep));
	memset(big, ' ', sizeof(big));
	memcpy(big, "{}", 2);
	refused(DECODER_PROTOCOL_VERSION, DECODER_PACKET_REQUEST, sizeof(big), big, sizeof(big));
	refused(DECODER_PROTOCOL_VERSION, DECODER_PACKET_REQUEST, DECODER_PACKET_MAX_TEXT, big,
		sizeof(big));
	assert_int_equal(send(pair[0], "abc", 3, 0), 3);
	assert_int_equal(decoder_packet_recv(pair[1], &p, 0), -EPROTO);
}

static int need_of(const char *text)
{
	struct json_object *o = json_tokener_parse(text);
	struct file_request request;
	int r;

	assert_non_null(o);
	r = file_request_from_json(o, &request);
	json_object_put(o);
	return r;
}

static int verdict_of(const char *text, struct file_verdict *ret)
{
	struct json_object *o = json_tokener_parse(text);
	int r;

	assert_non_null(o);
	r = file_verdict_from_json(o, ret);
	json_object_put(o);
	return r;
}

static void test_verdict(void **state)
{
	struct file_verdict verdict = {.req = UINT32_MAX, .recognised = true}, back = {0};
	struct json_object *o = file_verdict_to_json(&verdict);

	assert_int_equal(file_verdict_from_json(o, &back), 0);
	json_object_put(o);
	assert_true(back.req == UINT32_MAX && back.recognised);
	/* what says neither yes nor no is no */
	assert_int_equal(verdict_of("{\"req\":1,\"recognised\":false}", &back), 0);
	assert_true(back.req == 1 && !back.recognised);
	assert_int_equal(verdict_of("{\"req\":1,\"recognised\":false,\"build_id\":\"00ff\"}",
				    &back),
			 0);
	assert_int_equal(back.build_id_len, 2);
	assert_int_equal(back.build_id[1], 0xff);
	assert_int_equal(verdict_of("{\"req\":1,\"recognised\":true,\"build_id\":\"0\"}", &back),
			 -EPROTO);
	assert_int_equal(verdict_of("{\"req\":1,\"recognised\":true,\"build_id\":\"0g\"}", &back),
			 -EPROTO);
	assert_int_equal(verdict_of("{\"req\":1}", &back), -EPROTO);
	assert_int_equal(verdict_of("{\"recognised\":true}", &back), -EPROTO);
	assert_int_equal(verdict_of("{\"req\":1,\"recognised\":1}", &back), -EPROTO);
	assert_int_equal(verdict_of("{\"req\":1,\"recognised\":\"true\"}", &back), -EPROTO);
	assert_int_equal(verdict_of("{\"req\":4294967296,\"recognised\":true}", &back), -EPROTO);
	assert_int_equal(verdict_of("{\"req\":-1,\"recognised\":true}", &back), -EPROTO);
}

static int answer_of(const char *text, struct file_answer *ret)
{
	struct json_object *o = json_tokener_parse(text);
	int r = file_answer_from_json(o, ret);

	json_object_put(o);
	return r;
}

static void test_hostile_bodies(void **state)
{
	struct decoder_progress progress;
	struct decoder_result result;
	struct file_answer file;
	struct json_object *o;
	char text[12000];

	assert_int_equal(need_of("{\"req\":1,\"kind\":\"object\"}"), 0);
	assert_int_equal(need_of("{\"req\":1}"), -EPROTO);
	assert_int_equal(need_of("{\"kind\":\"object\"}"), -EPROTO);
	assert_int_equal(need_of("{\"req\":-1,\"kind\":\"object\"}"), -EPROTO);
	assert_int_equal(need_of("{\"req\":4294967296,\"kind\":\"object\"}"), -EPROTO);
	assert_int_equal(need_of("{\"req\":1,\"kind\":\"shell\"}"), -EPROTO);
	assert_int_equal(need_of("{\"req\":1,\"kind\":\"object\",\"maj\":\"8\"}"), -EPROTO);
	assert_int_equal(need_of("{\"req\":1,\"kind\":\"object\",\"pid\":4294967297}"), -EPROTO);
	assert_int_equal(need_of("{\"req\":1,\"kind\":\"debug\",\"build_id\":\"abc\"}"), -EPROTO);
	assert_int_equal(need_of("{\"req\":1,\"kind\":\"debug\",\"build_id\":\"../../etc\"}"),
			 -EPROTO);
	assert_int_equal(need_of("{\"req\":1,\"kind\":\"object\",\"path_hex\":\"2f00\"}"), -EPROTO);
	(void)snprintf(text, sizeof(text), "{\"req\":1,\"kind\":\"object\",\"path\":\"%05000d\"}",
		       0);
	assert_int_equal(need_of(text), -EPROTO);
	(void)snprintf(text, sizeof(text), "{\"req\":1,\"kind\":\"debug\",\"build_id\":\"%0100d\"}",
		       0);
	assert_int_equal(need_of(text), -EPROTO);

	o = json_tokener_parse("{\"stage\":\"a\\u001b[2Jb\",\"done\":1,\"total\":2}");
	assert_int_equal(decoder_progress_from_json(o, &progress), 0);
	assert_null(strchr(progress.stage, '\x1b'));
	json_object_put(o);
	o = json_tokener_parse("{\"ok\":false}");
	assert_int_equal(decoder_result_from_json(o, &result), -EPROTO);
	json_object_put(o);
	o = json_tokener_parse("{\"ok\":false,\"error\":\"x\",\"output_errno\":28}");
	assert_int_equal(decoder_result_from_json(o, &result), 0);
	assert_int_equal(result.output_errno, 28);
	json_object_put(o);
	o = json_tokener_parse("{\"ok\":false,\"error\":\"x\",\"output_errno\":4096}");
	assert_int_equal(decoder_result_from_json(o, &result), -EPROTO);
	json_object_put(o);
	o = json_tokener_parse("{\"ok\":true,\"stats\":[],\"summary\":{}}");
	assert_int_equal(decoder_result_from_json(o, &result), 0);
	assert_null(result.stats);
	assert_non_null(result.summary);
	json_object_put(o);
	assert_int_equal(answer_of("{\"req\":3,\"found\":1}", &file), -EPROTO);
	assert_int_equal(answer_of("{\"req\":3,\"found\":true,\"note\":{}}", &file), -EPROTO);
	assert_int_equal(
		answer_of("{\"req\":3,\"found\":true,\"note\":{\"mtime_ns\":1,\"size\":-1}}",
			  &file),
		-EPROTO);
	assert_int_equal(
		answer_of("{\"req\":3,\"found\":true,\"note\":{\"mtime_ns\":1,\"size\":2}}", &file),
		0);
	assert_int_equal(
		answer_of(
			"{\"req\":3,\"found\":true,\"note\":{\"mtime_ns\":1,\"size\":2,\"head\":\"00\"}}",
			&file),
		-EPROTO);
	(void)snprintf(
		text, sizeof(text),
		"{\"req\":3,\"found\":true,\"note\":{\"mtime_ns\":1,\"size\":2,\"head\":\"%0100d\"}}",
		0);
	assert_int_equal(answer_of(text, &file), -EPROTO);
}

static void test_answer(void **state)
{
	struct file_answer file = {.req = 7, .found = true, .dated = true, .why = "kept"}, back;
	struct json_object *o = file_answer_to_json(&file);

	assert_int_equal(file_answer_from_json(o, &back), 0);
	json_object_put(o);
	assert_true(back.found && back.dated && !back.noted && !back.changed);
	file.noted = true;
	file.note = (struct filenote){.mtime_ns = -5, .size = 1ull << 40, .has_head = true};
	memset(file.note.head, 0xa5, sizeof(file.note.head));
	o = file_answer_to_json(&file);
	assert_int_equal(file_answer_from_json(o, &back), 0);
	json_object_put(o);
	assert_true(back.noted && back.note.mtime_ns == -5 && back.note.size == 1ull << 40 &&
		    back.note.has_head);
	assert_memory_equal(back.note.head, file.note.head, sizeof(file.note.head));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_round_trip),	 T(test_end_and_full),	 T(test_too_long),
		T(test_hostile_packets), T(test_hostile_bodies),
		T(test_verdict),	 T(test_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
