// SPDX-License-Identifier: Apache-2.0
/* How it went: times, counts, losses. */
#include "config.h"

#include <stdio.h>

#include "common/control/json.h"
#include "decode/pt/pipeline_internal.h"

void pipeline_report_times(const struct pipeline *w, struct json_object *stages)
{
	struct json_object *each = json_add_new_array(stages, "following_each_ns");
	uint64_t sum = 0;

	for (unsigned int i = 0; i < w->n_contexts; i++) {
		sum += w->contexts[i].busy_ns;
		if (each)
			json_append(each, json_object_new_uint64(w->contexts[i].busy_ns));
	}
	json_add_uint(stages, "following_ns", sum);
}

/* What a newer processor writes, or damage: who reads it can tell by the bytes. */
static void report_unknown(const struct pipeline *w, struct json_object *losses)
{
	struct json_object *list = NULL;

	for (size_t i = 0; i < PIPELINE_UNKNOWN && w->unknown[i].times; i++) {
		const struct ptflow_unknown *u = &w->unknown[i];
		struct json_object *o = json_object_new_object();
		char hex[3 * PTFLOW_UNKNOWN_BYTES + 1] = "";

		for (size_t k = 0; k < u->n; k++)
			(void)snprintf(hex + 3 * k, 4, "%02x ", u->bytes[k]);
		hex[3 * u->n - 1] = '\0';
		if (!list)
			list = json_add_new_array(losses, "pt_unknown_packets");
		json_add_string(o, "bytes", hex);
		json_add_uint(o, "times", u->times);
		json_add_uint(o, "buffer", w->unknown_buffer[i]);
		json_add_uint(o, "offset", u->offset);
		json_append(list, o);
	}
}

void pipeline_report(const struct pipeline *w, struct json_object *stats,
		     struct json_object *losses)
{
	static const char *const names[_PTFLOW_E_MAX] = {
		[PTFLOW_E_NO_CODE] = "pt_no_code",
		[PTFLOW_E_MISMATCH] = "pt_mismatch",
		[PTFLOW_E_PACKET] = "pt_bad_packets",
		[PTFLOW_E_RETURN] = "pt_bad_returns",
		[PTFLOW_E_RUNAWAY] = "pt_runaway",
	};

	json_add_uint(stats, "instructions", w->stats.insns);
	json_add_uint(stats, "pt_packets", w->stats.packets);
	if (w->o.verify)
		verify_report_json(&w->verify, stats);
	for (size_t i = 1; i < _PTFLOW_E_MAX; i++)
		if (w->stats.errors[i])
			json_add_uint(losses, names[i], w->stats.errors[i]);
	report_unknown(w, losses);
	if (w->stats.overflows)
		json_add_uint(losses, "pt_overflows", w->stats.overflows);
	if (w->stats.skipped_bytes)
		json_add_uint(losses, "pt_bytes_skipped", w->stats.skipped_bytes);
	if (w->unowned)
		json_add_uint(losses, "pt_branches_of_nobody", w->unowned);
	if (w->cut)
		json_add_uint(losses, "pt_blocks_cut", w->cut);
	if (w->backwards)
		json_add_uint(losses, "pt_time_backwards", w->backwards);
}
