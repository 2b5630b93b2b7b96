// SPDX-License-Identifier: Apache-2.0
/* Calls that are known exactly, one by one: frames are pushed and popped, nothing is inferred. */
#include "config.h"

#include "decode/timeline/timeline_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "decode/timeline/slices.h"

/* The thread, running: what is known of it to the instruction was not off the CPU. */
static int enter(struct timeline *tl, uint32_t tid, uint64_t ts, struct tl_thread **ret,
		 uint64_t *ret_mono)
{
	int r = timeline_enter(tl, ts, ret_mono);

	if (r == 0)
		r = timeline_thread_enter(tl, tid, *ret_mono, ret);
	if (r == 0)
		r = timeline_wait_show(tl, *ret);
	/* Where calls are known nobody waits for the stack of a wait. */
	if (r == 0 && (*ret)->waits.hidden)
		waits_show(tl->waits, &(*ret)->waits, &(*ret)->lane, 0, false);
	return r;
}

/* ---- what the summary wants to know of them */

/* Until now it was the innermost call, or what is outside of the trace on top of it. */
static int ran(struct timeline *tl, struct tl_thread *t, uint64_t mono)
{
	int r = 0;

	if (mono <= t->in_call_since)
		return 0;
	if (t->in_call)
		r = summary_ran(tl->summary, t->index, t->in_call, t->in_call_since, mono,
				t->untraced_at != 0);
	t->in_call_since = mono;
	return r;
}

static int called(struct timeline *tl, struct tl_thread *t, uint32_t frame, uint64_t mono,
		  uint64_t begin)
{
	int r = ran(tl, t, mono);

	tl->stats.calls++;
	if (r == 0)
		r = summary_called(tl->summary, t->index, frame, begin);
	if (r == 0)
		t->in_call = frame;
	return r;
}

/* ---- */

static uint32_t args_of(struct timeline *tl, const char *how, const char *site,
			struct writer_arg ret[2])
{
	uint32_t n = 0;

	if (how)
		ret[n++] = (struct writer_arg){.kind = WRITER_ARG_NAME,
					       .key = tl->key_how,
					       .value.name = writer_name(tl->w, how)};
	if (site)
		ret[n++] = (struct writer_arg){.kind = WRITER_ARG_NAME,
					       .key = tl->key_site,
					       .value.name = writer_name(tl->w, site)};
	return n;
}

int timeline_call(struct timeline *tl, uint32_t tid, const struct call *call, const char *how,
		  const char *site)
{
	struct writer_arg args[2];
	struct tl_thread *t;
	uint64_t mono;
	int r = enter(tl, tid, call->begin, &t, &mono);

	if (r != 0)
		return r;
	r = called(tl, t, call->frame, mono, mono);
	if (r == 0)
		r = slices_push(tl->slices, &t->lane, call->frame, mono, args,
				args_of(tl, how, site, args));
	return r < 0 ? r : timeline_leave(tl);
}

int timeline_resync(struct timeline *tl, uint32_t tid, uint64_t ts, bool in_call)
{
	struct tl_thread *t;
	uint64_t mono;
	int r = enter(tl, tid, ts, &t, &mono);

	if (r == 0)
		r = ran(tl, t, mono);
	if (r == 0)
		r = slices_resync(tl->slices, &t->lane, mono, in_call);
	return r != 0 ? r : timeline_leave(tl);
}

int timeline_identified(struct timeline *tl, uint32_t tid, const char *was, const char *is)
{
	struct tl_thread *t = timeline_thread_find(tl, tid);

	if (t)
		slices_outside_say(&t->lane, writer_name(tl->w, was), writer_name(tl->w, is));
	return 0;
}

int timeline_call_outside(struct timeline *tl, uint32_t tid, uint64_t ts, const struct call *call,
			  uint32_t more, const char *how)
{
	struct writer_arg args[2];
	struct tl_thread *t;
	uint64_t mono;
	bool late = false;
	int r = enter(tl, tid, ts, &t, &mono);

	if (r != 0)
		return r;
	r = called(tl, t, call->frame, mono, timeline_monotonic(tl, call->begin));
	if (r == 0)
		r = slices_push_outside(tl->slices, &t->lane, call->frame, mono, more,
					args_of(tl, how, NULL, args) ? args : NULL, &late);
	tl->stats.calls_late += late;
	return r < 0 ? r : timeline_leave(tl);
}

int timeline_return(struct timeline *tl, uint32_t tid, uint64_t ts, const struct call *call,
		    const struct timeline_return *end)
{
	struct writer_arg args[2];
	uint32_t n_args = 0, ends = 0;
	struct tl_thread *t;
	uint64_t mono;
	int r = enter(tl, tid, ts, &t, &mono);

	if (r != 0)
		return r;
	if (end->ns < ts)
		mono = timeline_monotonic(tl, end->ns);
	else
		ends = (call->interpolated ? 1 : 0) | (end->interpolated ? 2 : 0);
	if (ends)
		args[n_args++] = (struct writer_arg){.key = tl->key_interpolated,
						     .kind = WRITER_ARG_NAME,
						     .value.name = tl->interpolated[ends - 1]};
	/* the last one: it differs most, see put_event() in decode/writer/pftrace.c */
	if (end->insns)
		args[n_args++] = (struct writer_arg){
			.key = tl->key_insns, .kind = WRITER_ARG_UINT, .value.u64 = end->insns};
	r = ran(tl, t, mono);
	t->in_call = end->caller;
	if (r == 0)
		summary_returned(tl->summary, t->index, call->frame,
				 timeline_monotonic(tl, call->begin), mono,
				 call_own_insns(call, end->insns));
	slices_pop(tl->slices, &t->lane, mono, args, n_args);
	return r < 0 ? r : timeline_leave(tl);
}

int timeline_untraced(struct timeline *tl, uint32_t tid, uint64_t ts, const char *why)
{
	struct tl_thread *t;
	uint64_t mono;
	int r = enter(tl, tid, ts, &t, &mono);

	if (r == 0)
		r = ran(tl, t, mono);
	if (r != 0)
		return r;
	t->untraced_at = mono;
	t->untraced_why = writer_name(tl->w, why);
	return timeline_leave(tl);
}

int timeline_traced(struct timeline *tl, uint32_t tid, uint64_t ts, uint64_t until)
{
	struct tl_thread *t;
	uint64_t mono;
	int r = enter(tl, tid, ts, &t, &mono);

	if (r == 0 && until < ts)
		mono = timeline_monotonic(tl, until);
	if (r == 0)
		r = ran(tl, t, mono);
	if (r != 0)
		return r;
	/* Where it was off the CPU meanwhile, that says more and is drawn already. */
	if (t->untraced_at && t->lane.last_ts <= t->untraced_at + 1 && mono > t->untraced_at) {
		slices_leaf_begin(tl->slices, &t->lane, t->untraced_at,
				  &(struct writer_event){.name = t->untraced_why,
							 .category = tl->untraced_category});
		slices_leaf_end(tl->slices, &t->lane, mono, NULL);
	}
	t->untraced_at = 0;
	return timeline_leave(tl);
}

int timeline_moment(struct timeline *tl, uint32_t tid, uint64_t ts, const char *category,
		    const char *name, const struct timeline_value *values, uint32_t n_values)
{
	struct writer_arg args[TIMELINE_MAX_VALUES];
	struct writer_event ev = {.args = args, .name = writer_name(tl->w, name)};
	struct tl_thread *t;
	uint64_t mono;
	int r = enter(tl, tid, ts, &t, &mono);

	if (r != 0)
		return r;
	ev.category = writer_name(tl->w, category);
	for (; ev.n_args < n_values && ev.n_args < TIMELINE_MAX_VALUES; ev.n_args++)
		args[ev.n_args] =
			(struct writer_arg){.key = writer_name(tl->w, values[ev.n_args].key),
					    .kind = values[ev.n_args].hex ? WRITER_ARG_POINTER
									  : WRITER_ARG_UINT,
					    .value.u64 = values[ev.n_args].value};
	slices_instant(tl->slices, &t->lane, mono, &ev);
	return timeline_leave(tl);
}
