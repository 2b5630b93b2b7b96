// SPDX-License-Identifier: Apache-2.0
/*
 * What a decoder that was taken over may send its parent: one packet through a real socket, then
 * the typed bodies, whatever the packet's type. A request that is accepted must read the same once
 * it was written out again; a bundle's clocks are read here too, since they come by the same road.
 */
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/io.h"
#include "common/bundle/clocks.h"
#include "common/decoder/protocol.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_need(struct json_object *body)
{
	static struct file_request request, again;
	struct json_object *o;

	if (file_request_from_json(body, &request) < 0)
		return;
	o = file_request_to_json(&request);
	if (!o || file_request_from_json(o, &again) < 0)
		abort();
	json_object_put(o);
	if (request.req != again.req || request.kind != again.kind || request.ino != again.ino ||
	    strcmp(request.path, again.path) || strcmp(request.object, again.object) ||
	    request.build_id_len != again.build_id_len ||
	    memcmp(request.build_id, again.build_id, request.build_id_len))
		abort();
}

static void try_bodies(struct json_object *body)
{
	static struct clocks clocks;
	struct decoder_progress progress;
	struct decoder_result result;
	struct file_verdict verdict;
	struct file_answer file;
	uint64_t time, error;

	try_need(body);
	if (file_answer_from_json(body, &file) == 0)
		json_object_put(file_answer_to_json(&file));
	if (file_verdict_from_json(body, &verdict) == 0)
		json_object_put(file_verdict_to_json(&verdict));
	if (decoder_progress_from_json(body, &progress) == 0 && strchr(progress.stage, '\x1b'))
		abort();
	if (decoder_result_from_json(body, &result) == 0 && strchr(result.error, '\n'))
		abort();
	if (clocks_from_json(body, &clocks) == 0) {
		(void)!clocks_raw_to_monotonic(&clocks, 12345678901234ULL, &time, &error);
		(void)!clocks_tsc_to_monotonic(&clocks, 12345678901234ULL, &time, &error);
		json_object_put(clocks_to_json(&clocks, 5));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct decoder_packet p = DECODER_PACKET_INIT;
	int pair[2];

	if (size == 0 || size > 60000 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return 0;
	if (send(pair[0], data, size, MSG_DONTWAIT) == (ssize_t)size &&
	    decoder_packet_recv(pair[1], &p, MSG_DONTWAIT) == 1)
		try_bodies(p.body);
	decoder_packet_fini(&p);
	(void)close(pair[0]);
	(void)close(pair[1]);
	return 0;
}
