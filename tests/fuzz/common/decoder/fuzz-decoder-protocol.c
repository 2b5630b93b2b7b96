// SPDX-License-Identifier: Apache-2.0
/*
 * What a decoder that was taken over may send its parent: one packet through a real socket, then the typed bodies,
 * whatever the packet's type. A request that is accepted must read the same once it was written out again; a bundle's
 * clocks are read here too, since they come by the same road.
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
	static struct declink_need need, again;
	struct json_object *o;

	if (declink_need_from_json(body, &need) < 0)
		return;
	o = declink_need_to_json(&need);
	if (!o || declink_need_from_json(o, &again) < 0)
		abort();
	json_object_put(o);
	if (need.req != again.req || need.kind != again.kind || need.ino != again.ino ||
	    strcmp(need.path, again.path) || strcmp(need.object, again.object) ||
	    need.build_id_len != again.build_id_len || memcmp(need.build_id, again.build_id, need.build_id_len))
		abort();
}

static void try_bodies(struct json_object *body)
{
	static struct clocks clocks;
	struct declink_progress progress;
	struct declink_result result;
	struct declink_verdict verdict;
	struct declink_file file;
	uint64_t time, error;

	try_need(body);
	if (declink_file_from_json(body, &file) == 0)
		json_object_put(declink_file_to_json(&file));
	if (declink_verdict_from_json(body, &verdict) == 0)
		json_object_put(declink_verdict_to_json(&verdict));
	if (declink_progress_from_json(body, &progress) == 0 && strchr(progress.stage, '\x1b'))
		abort();
	if (declink_result_from_json(body, &result) == 0 && strchr(result.error, '\n'))
		abort();
	if (clocks_from_json(body, &clocks) == 0) {
		(void)!clocks_raw_to_monotonic(&clocks, 12345678901234ULL, &time, &error);
		(void)!clocks_tsc_to_monotonic(&clocks, 12345678901234ULL, &time, &error);
		json_object_put(clocks_to_json(&clocks, 5));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct declink_packet p = DECLINK_PACKET_INIT;
	int pair[2];

	if (size == 0 || size > 60000 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return 0;
	if (send(pair[0], data, size, MSG_DONTWAIT) == (ssize_t)size && declink_recv(pair[1], &p, MSG_DONTWAIT) == 1)
		try_bodies(p.body);
	declink_packet_fini(&p);
	(void)close(pair[0]);
	(void)close(pair[1]);
	return 0;
}
