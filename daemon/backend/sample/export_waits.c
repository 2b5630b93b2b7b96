// SPDX-License-Identifier: Apache-2.0
/*
 * The stacks of threads that wait at the freeze: those that the programs in the kernel have kept
 * (daemon/backend/sample/kept.h), and of waits from before the rings those that were read from the
 * process (daemon/backend/sample/blocked.h).
 */
#include <errno.h>
#include <stdlib.h>

#include "common/bundle/perfdata_write.h"
#include "daemon/backend/sample/blocked.h"
#include "daemon/backend/sample/export_internal.h"
#include "daemon/backend/sample/mask.h"
#include "daemon/backend/sample/unwound.h"

#define BLOCKED_WAIT_MS 500 /* the copier waits for them no longer: others wait for it */

int export_see_kernel(struct frozen *frozen, const struct record_view *view)
{
	uint64_t n = 1;

	/* The kernel's part is the first. */
	if (!frozen->kernel_waits || !view->n_chain ||
	    view->chain[0] != (uint64_t)PERF_CONTEXT_KERNEL)
		return 0;
	while (n < view->n_chain && view->chain[n] < (uint64_t)PERF_CONTEXT_MAX)
		n++;
	return frozen_see_kernel(frozen, view->chain + 1, n - 1);
}

void export_still_waits(const struct frozen *frozen, struct record_view *view)
{
	const uint64_t since = mask_stack_ns(view);
	struct tracerd_sched_event ev;

	if (view->time <= frozen->raw_ns || since >= frozen->raw_ns || !record_sched(view, &ev) ||
	    !frozen_has(frozen, ev.pid, since))
		return;
	ev.kind = SCHEDEV_BLOCKED;
	ev.flags &= SCHEDEV_PYTHON;
	ev.state = SCHEDEV_STATE_UNKNOWN;
	ev.call = 0;
	record_sched_put(view, &ev);
	record_set_time(view, frozen->raw_ns);
}

/* Threads that are still in a wait whose beginning the rings have, or had. */
static int copy_kept(struct frozen *frozen, struct export_out *out)
{
	struct export *samples = export_of(frozen);
	const struct event_group *group = samples->sources[0].group;
	_Alignas(8) uint8_t record[UNWOUND_RECORD_MAX];
	int r = 0;

	for (size_t i = 0; i < samples->kept.n && r == 0; i++) {
		const struct filter_kept *k = &samples->kept.v[i];
		/* What the kernel does for it was not kept, and is the same as long as it waits. */
		const struct filter_task *task =
			frozen->kernel_waits && samples->blocked_came
				? blocked_task(samples->blocked, k->ev.tid, k->switches)
				: NULL;
		struct record_view view;

		/*
		 * It left a CPU for the wait that it is in while nobody recorded it, or after the
		 * freeze: then the rings have that.
		 */
		if (samples->blocked_came &&
		    blocked_is_later(samples->blocked, k->ev.tid, k->switches) &&
		    !hashmap_get(&samples->seen, 0, k->ev.tid))
			continue;
		if (unwound_blocked(group, k, task, EVENT_ID(0, GROUP_STACK), frozen->raw_ns,
				    record) < 0 ||
		    record_parse(record, &group->layouts[GROUP_STACK], &view) < 0)
			return -EBADMSG;
		if (!unwind_doubts_believes(&samples->doubts, *view.pid,
					    kept_since(&samples->kept, frozen, k), view.chain,
					    view.n_chain)) {
			samples->n_doubted++;
			continue;
		}
		samples->n_kept++;
		exported_functions_see(&samples->functions, &view);
		r = export_see_kernel(frozen, &view);
		if (r == 0)
			r = export_record(out, record, view.header->size);
	}
	return r < 0 ? r : export_flush(out);
}

static int copy_blocked(struct frozen *frozen, const struct blocked *blocked, unsigned int event,
			const struct hashmap *seen, uint64_t complete_ns, uint64_t time_ns,
			struct export_out *out)
{
	const uint64_t id = EVENT_ID(0, event);
	struct perf_event_attr attr =
		event_group_exported_attr(export_of(frozen)->sources[0].group, GROUP_PLAIN);
	_cleanup_free_ uint8_t *record = malloc(BLOCKED_RECORD_MAX);
	const struct blocked_stack *s;
	size_t pos = 0;
	int r;

	if (!record)
		return -ENOMEM;
	blocked_attr(blocked, &attr);
	r = perfdata_add_event(out->writer, "sched", &attr, &id, 1);
	while (r == 0 && (s = blocked_next(blocked, seen, complete_ns, &pos)) != NULL) {
		/* Its owner could see it then, and cannot any more. */
		if (frozen->n_hidden && !frozen_member(frozen, (pid_t)s->task.pid))
			continue;
		if (frozen->kernel_waits)
			r = frozen_see_kernel(frozen, s->task.kernel, s->task.n_kernel);
		if (r == 0)
			r = export_record(out, record,
					  blocked_record(blocked, s, frozen->kernel_waits, id,
							 time_ns, record));
		export_of(frozen)->n_blocked++;
	}
	return r < 0 ? r : export_flush(out);
}

/*
 * At the freeze those of which the rings have nothing where they are complete; from when the target
 * was armed all, if the rings reach back to that: the decoder knows who did something else before.
 */
int export_waits(struct frozen *frozen, struct export_out *out)
{
	struct export *samples = export_of(frozen);
	const uint64_t from = samples->complete_ns;
	uint64_t asleep = 0;
	int r;

	samples->blocked_came = samples->blocked &&
				blocked_await(samples->blocked, BLOCKED_WAIT_MS);
	r = copy_kept(frozen, out);
	if (samples->since && blocked_await(samples->since, 0))
		asleep = blocked_asleep_ns(samples->since);
	if (r == 0 && asleep > from && asleep < frozen->raw_ns)
		r = copy_blocked(frozen, samples->since, GROUP_EVENTS + 1, NULL, UINT64_MAX, asleep,
				 out);
	if (r == 0 && samples->blocked_came)
		r = copy_blocked(frozen, samples->blocked, GROUP_EVENTS, &samples->seen, from,
				 frozen->raw_ns, out);
	return r;
}
