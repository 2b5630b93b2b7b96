// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/mask.h"

#include <string.h>

#include "common/bundle/perfabi.h"
#include "daemon/backend/frozen.h"

struct switch_cpu_wide {
	struct perf_event_header header;
	uint32_t next_prev_pid, next_prev_tid;
};

static bool is_subject(const struct frozen *frozen, uint32_t pid, uint32_t tid, uint64_t time)
{
	if (frozen->scope == TARGET_THREAD && tid != (uint32_t)frozen->tid)
		return false;
	return frozen_has(frozen, pid, time);
}

/*
 * Names that may be seen: of the target's own processes, of the idle task, of the reader's own
 * processes.
 */
static bool may_see(const struct frozen *frozen, const struct tracerd_sched_event *ev,
		    uint64_t time)
{
	return frozen->admin || ev->other_tid == 0 || ev->other_uid == (uint32_t)frozen->owner ||
	       frozen_has(frozen, ev->other_pid, time);
}

uint64_t mask_stack_ns(const struct record_view *view)
{
	struct tracerd_sched_event ev;
	uint64_t ago;

	if (!record_sched(view, &ev) || ev.kind != SCHEDEV_IN || !(ev.flags & SCHEDEV_WAITED))
		return view->time;
	ago = SCHEDEV_WAITED_NS(&ev);
	return ago < view->time ? view->time - ago : 0;
}

enum mask_answer mask_sched(const struct frozen *frozen, struct record_view *view)
{
	struct tracerd_sched_event ev;
	bool own_stack;

	if (!record_sched(view, &ev))
		return MASK_MALFORMED;
	if (!is_subject(frozen, ev.pid, ev.tid, view->time))
		return MASK_FOREIGN;
	switch (ev.kind) {
	case SCHEDEV_OUT:
		own_stack = frozen->waits;
		break;
	case SCHEDEV_WAKEUP:
		own_stack = frozen->waits && (ev.flags & SCHEDEV_WAKER_TARGET) &&
			    frozen_has(frozen, ev.other_pid, view->time);
		break;
	case SCHEDEV_IN:
		own_stack = frozen->waits && (ev.flags & SCHEDEV_WAITED) &&
			    frozen_has(frozen, ev.pid, mask_stack_ns(view));
		break;
	case SCHEDEV_BLOCKED:
		own_stack = frozen->waits;
		break;
	case SCHEDEV_GOROUTINE:
		own_stack = true; /* there is none */
		break;
	case SCHEDEV_STACK:
		if (!frozen->beside || !frozen->waits)
			return MASK_FOREIGN;
		own_stack = true;
		break;
	default:
		return MASK_MALFORMED;
	}
	if (!own_stack) {
		/*
		 * The BPF program ran on another thread's stack, or nobody asked for stacks of
		 * waits.
		 */
		ev.flags &= (uint16_t)~(SCHEDEV_WAKER_TARGET | SCHEDEV_WAITED | SCHEDEV_PYTHON);
		record_drop_stack(view);
		*view->pid = ev.pid;
		*view->tid = ev.tid;
	}
	if (!may_see(frozen, &ev, view->time)) {
		ev.flags |= SCHEDEV_OTHER_MASKED;
		ev.other_pid = ev.other_tid = ev.other_uid = SCHEDEV_MASKED_ID;
		memset(ev.other_comm, 0, sizeof(ev.other_comm));
		memcpy(ev.other_comm, "other", sizeof("other"));
		if (ev.kind == SCHEDEV_WAKEUP)
			ev.call = 0;
	}
	record_sched_put(view, &ev);
	return MASK_KEEP;
}

static enum mask_answer mask_switch(const struct frozen *frozen, struct record_view *view)
{
	struct switch_cpu_wide *wide;

	if (!is_subject(frozen, *view->pid, *view->tid, view->time))
		return MASK_FOREIGN;
	if (view->header->type == PERF_RECORD_SWITCH)
		return MASK_KEEP;
	wide = (void *)view->header;
	if (view->header->size < sizeof(*wide) + sizeof(struct perfabi_sample_id))
		return MASK_MALFORMED;
	if (!frozen->admin && wide->next_prev_tid != 0 &&
	    !frozen_has(frozen, wide->next_prev_pid, view->time))
		wide->next_prev_pid = wide->next_prev_tid = SCHEDEV_MASKED_ID;
	return MASK_KEEP;
}

enum mask_answer mask_record(const struct frozen *frozen, const struct source *source,
			     enum group_event event, struct record_view *view)
{
	const uint64_t to_ns = event == GROUP_CLOCK ? source->to_ns : source->end_ns;
	enum mask_answer answer;

	if (view->time < source->from_ns || view->time > to_ns || view->time > frozen->raw_ns)
		return MASK_OUTSIDE;
	/*
	 * What the kernel did in a wait may have been asked for by another target of the same
	 * rings.
	 */
	if (!frozen->admin || (event != GROUP_CLOCK && !frozen_has_kernel_stacks(frozen)))
		record_mask_kernel(view);
	switch (view->header->type) {
	case PERF_RECORD_SAMPLE:
		if (event == GROUP_CLOCK)
			answer = is_subject(frozen, *view->pid, *view->tid, view->time)
					 ? MASK_KEEP
					 : MASK_FOREIGN;
		else
			answer = mask_sched(frozen, view);
		break;
	case PERF_RECORD_SWITCH:
	case PERF_RECORD_SWITCH_CPU_WIDE:
		answer = mask_switch(frozen, view);
		break;
	default:
		return MASK_OUTSIDE;
	}
	if (answer != MASK_KEEP)
		return answer;
	record_clear_unwritten(view);
	return MASK_KEEP;
}
