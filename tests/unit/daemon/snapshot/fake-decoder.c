// SPDX-License-Identifier: Apache-2.0
/*
 * Stands in for tracerd-decode in tests of its parent: it does what the snapshot's reason (in
 * meta.json) or the job's option "behave" says, well or badly. Speaks the real link.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/io.h"
#include "common/control/json.h"
#include "common/decoder/protocol.h"

static struct decoder_packet job = DECODER_PACKET_INIT;

static int input(const char *name)
{
	struct json_object *inputs = json_get_array(job.body, "inputs");

	for (size_t i = 0; inputs && i < json_object_array_length(inputs); i++)
		if (!strcmp(json_object_get_string(json_object_array_get_idx(inputs, i)), name))
			return job.fds[i];
	return -1;
}

static const char *behaviour(void)
{
	struct json_object *options = json_get_object(job.body, "options"), *meta = NULL;
	const char *s = options ? json_get_string(options, "behave") : NULL;
	static char text[1 << 20];
	int fd = input("meta.json");
	ssize_t n;

	if (s || fd < 0)
		return s ? s : "ok";
	n = io_pread_full(fd, text, sizeof(text) - 1, 0);
	if (n <= 0 || json_parse(text, (size_t)n, sizeof(text), &meta, NULL, 0) != 0)
		return "exit 9";
	return json_get_string(json_get_object(json_get_object(meta, "snapshot"), "cause"),
			       "reason");
}

static void send_result(int ok)
{
	struct json_object *o = json_object_new_object(), *summary;

	json_add_bool(o, "ok", ok);
	json_add_string(o, "error", ok ? "" : "this is no perf.data\x1b[31m");
	summary = json_add_new_object(o, "summary");
	json_add_string(summary, "threads", "many");
	(void)!decoder_packet_send(DECODER_PROTOCOL_FD, DECODER_PACKET_RESULT, o, NULL, 0, 0);
	json_object_put(o);
}

static void write_trace(void)
{
	if (input("out") >= 0)
		(void)!io_write_all(input("out"), "trace", 5);
}

static int ask(struct file_request *request, unsigned req)
{
	struct decoder_packet p = DECODER_PACKET_INIT;
	struct json_object *o;
	int found;

	request->req = req;
	o = file_request_to_json(request);
	(void)!decoder_packet_send(DECODER_PROTOCOL_FD, DECODER_PACKET_REQUEST, o, NULL, 0, 0);
	json_object_put(o);
	if (decoder_packet_recv(DECODER_PROTOCOL_FD, &p, 0) <= 0)
		_exit(8);
	found = p.type == DECODER_PACKET_FILE && p.n_fds == 1;
	if (found)
		(void)!fprintf(stderr, "found %s\n", json_get_string(p.body, "why"));
	decoder_packet_fini(&p);
	return found;
}

static void judge(unsigned req, bool recognised)
{
	const struct file_verdict verdict = {.req = req, .recognised = recognised};
	struct json_object *o = file_verdict_to_json(&verdict);

	(void)!decoder_packet_send(DECODER_PROTOCOL_FD, DECODER_PACKET_VERDICT, o, NULL, 0, 0);
	json_object_put(o);
}

static int ask_for(const char *path, unsigned req)
{
	struct file_request request = {.kind = FILE_REQUEST_OBJECT};
	struct stat st;

	if (stat(path, &st) < 0)
		return 0;
	(void)snprintf(request.path, sizeof(request.path), "%s", path);
	request.maj = (uint32_t)(st.st_dev >> 8 & 0xfff);
	request.min = (uint32_t)((st.st_dev & 0xff) | (st.st_dev >> 12 & ~0xffU));
	request.ino = st.st_ino;
	return ask(&request, req);
}

/*
 * Asks for the file after the blank, where the behaviour is of that kind, and says the right or the
 * wrong thing of it.
 */
static void asks(const char *what)
{
	const char *path = strchr(what, ' ');
	size_t n = path ? (size_t)(path++ - what) : 0;
	const unsigned times = !strncmp(what, "hoard ", n + 1)    ? 65
			       : !strncmp(what, "repeat ", n + 1) ? 2
								  : 1;
	bool found = false;

	if (n == 0 || *path != '/')
		return;
	for (unsigned i = 0; i < times; i++)
		found = ask_for(path, *what == 'r' ? 7 : i + 1);
	if (!strncmp(what, "need ", n + 1) || !strncmp(what, "twice ", n + 1))
		judge(1, found);
	if (!strncmp(what, "twice ", n + 1) || !strncmp(what, "deny ", n + 1))
		judge(1, false);
	if (!strncmp(what, "other ", n + 1))
		judge(2, true);
	if (!strncmp(what, "absent ", n + 1) && !ask_for("/etc/passwd", 2))
		judge(2, true);
	/* "silent" says nothing */
}

/* What the parent promises about us. */
static int confined(void)
{
	char text[4096];
	int fd = open("/proc/self/status", O_RDONLY);
	ssize_t n = read(fd, text, sizeof(text) - 1);
	struct rlimit core;

	text[n > 0 ? n : 0] = '\0';
	(void)close(fd);
	return strstr(text, "CapEff:\t0000000000000000") &&
	       strstr(text, "CapPrm:\t0000000000000000") && strstr(text, "NoNewPrivs:\t1") &&
	       getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_max == 0 && fcntl(40, F_GETFD) < 0;
}

static int behave(const char *what)
{
	struct decoder_progress progress = {.stage = "unwind", .done = 1, .total = 2};
	struct json_object *o;
	unsigned n;

	(void)!fprintf(stderr, "i shall: %s\n", what);
	if (sscanf(what, "exit %u", &n) == 1)
		return (int)n;
	if (!strcmp(what, "hang"))
		for (;;)
			(void)pause();
	if (!strcmp(what, "spin"))
		for (;;)
			;
	if (!strcmp(what, "crash")) {
		write_trace();
		(void)raise(SIGSEGV);
	}
	if (!strcmp(what, "close and hang")) {
		(void)close(DECODER_PROTOCOL_FD);
		for (;;)
			(void)pause();
	}
	if (!strcmp(what, "garbage")) {
		(void)!send(DECODER_PROTOCOL_FD, "garbage", 7, 0);
		for (;;)
			(void)pause();
	}
	if (!strcmp(what, "ask for ever"))
		for (unsigned i = 0;; i++) {
			struct file_request request = {.kind = FILE_REQUEST_DEBUG, .req = i + 1};

			o = file_request_to_json(&request);
			(void)!decoder_packet_send(DECODER_PROTOCOL_FD, DECODER_PACKET_REQUEST, o,
						   NULL, 0, 0);
			json_object_put(o);
		}
	if (!strcmp(what, "noise"))
		for (int i = 0; i < 10000; i++)
			(void)!fprintf(stderr, "\x1b[2J noise %d\n", i);
	if (!strcmp(what, "late crash")) {
		write_trace();
		send_result(1);
		(void)raise(SIGABRT);
	}
	asks(what);
	if (!strcmp(what, "confined") && !confined())
		return 7;
	o = decoder_progress_to_json(&progress);
	(void)!decoder_packet_send(DECODER_PROTOCOL_FD, DECODER_PACKET_PROGRESS, o, NULL, 0, 0);
	json_object_put(o);
	write_trace();
	send_result(strcmp(what, "refuse") != 0);
	return 0;
}

int main(void)
{
	if (decoder_packet_recv(DECODER_PROTOCOL_FD, &job, 0) <= 0 ||
	    job.type != DECODER_PACKET_JOB)
		return 2;
	return behave(behaviour());
}
