// SPDX-License-Identifier: Apache-2.0
/* Producers in the protocol: "events" of a target, and of the daemon's status. */
#include <string.h>

#include "common/base/io.h"
#include "common/control/json.h"
#include "daemon/config.h"
#include "daemon/producer/producer_internal.h"

/* Rings that a thread has used: those with a writer in their entry. */
static uint32_t used_rings(const struct producer *p)
{
	struct ring_entry entries[32];
	uint32_t used = 0;

	for (uint32_t at = 0; at < p->geometry.rings; at += ARRAY_SIZE(entries)) {
		uint32_t n = p->geometry.rings - at;
		off_t offset = p->geometry.dir_offset + (off_t)at * (off_t)sizeof(entries[0]);
		size_t bytes;

		if (n > ARRAY_SIZE(entries))
			n = ARRAY_SIZE(entries);
		bytes = n * sizeof(entries[0]);
		if (io_pread_full(p->memory_fd, entries, bytes, offset) != (ssize_t)bytes)
			break;
		for (uint32_t i = 0; i < n; i++)
			used += entries[i].tid != 0;
	}
	return used;
}

struct json_object *producer_to_json(struct producer *p)
{
	struct json_object *o = json_object_new_object(), *lost;
	struct ring_header h;

	if (!o)
		return NULL;
	if (io_pread_full(p->memory_fd, &h, sizeof(h), 0) != sizeof(h))
		memset(&h, 0, sizeof(h));
	json_add_string(o, "state", p->state == PRODUCER_LIVE ? "live" : "ended");
	json_add_uint(o, "programs", 1);
	json_add_uint(o, "threads", used_rings(p));
	json_add_uint(o, "threads_max", p->geometry.rings);
	json_add_uint(o, "ring_bytes", (uint64_t)p->geometry.slots * RING_SLOT_BYTES);
	json_add_uint(o, "bytes", p->geometry.total_bytes);
	json_add_uint(o, "names",
		      h.n_names < p->geometry.names_max ? h.n_names : p->geometry.names_max);
	json_add_string(o, "clock", p->clock == RING_CLOCK_TSC ? "tsc" : "monotonic_raw");
	json_add_uint(o, "registered_at", p->registered_unix_ns);
	lost = json_add_new_object(o, "lost");
	json_add_uint(lost, "events", h.lost_events);
	json_add_uint(lost, "names", h.lost_names);
	json_add_uint(lost, "texts", h.lost_long);
	return o;
}

void producers_status(const struct producers *ps, struct json_object *status,
		      struct json_object *losses)
{
	static const char *const answers[] = {
		[PRODUCER_E_BAD] = "bad",
		[PRODUCER_E_TOO_LARGE] = "too_large",
		[PRODUCER_E_QUOTA] = "quota",
		[PRODUCER_E_BUSY] = "busy",
		[PRODUCER_E_GONE] = "gone",
		[PRODUCER_E_UNSUPPORTED] = "unsupported",
	};
	struct json_object *o = json_add_new_object(status, "events"), *refused;

	json_add_uint(o, "programs", ps->n_live);
	json_add_uint(o, "ended", ps->n_ended);
	json_add_uint(o, "limit", ps->config->max_producers);
	json_add_uint(o, "bytes", ps->bytes);
	json_add_uint(o, "registered", ps->registered);
	refused = json_add_new_object(o, "refused");
	for (size_t i = PRODUCER_E_BAD; i < ARRAY_SIZE(answers); i++)
		json_add_uint(refused, answers[i], ps->refused[i]);
	json_add_uint(o, "evicted", ps->evicted);
	json_add_uint(o, "causes", ps->causes);
	json_add_uint(o, "causes_bad", ps->causes_bad);
	json_add_uint(o, "pauses", ps->pauses);
	json_add_uint(losses, "event_causes", ps->causes_lost);
	json_add_uint(losses, "event_rings_evicted", ps->evicted);
}
