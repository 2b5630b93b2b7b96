// SPDX-License-Identifier: Apache-2.0
/*
 * Records of goroutines in a bundle: each is in front of the record that shows it, with the same
 * time. The program in the kernel has written them one after the other; but of a tick the kernel
 * may have taken the time before that.
 */
#include <string.h>

#include "daemon/backend/sample/export_internal.h"

static bool shows_thread(const struct record_view *view, enum group_event event, uint32_t tid)
{
	struct tracerd_sched_event ev;

	if (view->header->type != PERF_RECORD_SAMPLE)
		return false;
	if (event == GROUP_CLOCK)
		return *view->tid == tid;
	return record_sched(view, &ev) && ev.kind == SCHEDEV_OUT && ev.tid == tid;
}

bool export_hold_goroutine(struct export_out *out, const struct record_view *view,
			   enum group_event event)
{
	struct tracerd_sched_event ev;

	if (event == GROUP_CLOCK || !record_sched(view, &ev) || ev.kind != SCHEDEV_GOROUTINE)
		return false;
	out->held_size = view->header->size <= sizeof(out->held) ? view->header->size : 0;
	memcpy(out->held, view->header, out->held_size);
	out->held_tid = ev.tid;
	return true;
}

int export_goroutine(struct export_out *out, const struct record_layout *layout,
		     const struct record_view *shows, enum group_event event)
{
	const size_t size = out->held_size;
	struct record_view view;

	out->held_size = 0;
	if (!size || !shows_thread(shows, event, out->held_tid) ||
	    record_parse(out->held, layout, &view) < 0)
		return 0;
	record_set_time(&view, shows->time);
	return export_record(out, out->held, size);
}
