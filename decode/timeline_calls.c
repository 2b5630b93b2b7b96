// SPDX-License-Identifier: Apache-2.0
/* Calls that are known exactly, one by one: frames are pushed and popped, nothing is inferred. */
#include "config.h"

#include "decode/timeline_impl.h"

#include "decode/slices.h"

/* The thread, running: what is known of it to the instruction was not off the CPU. */
static int enter(struct timeline *tl, uint32_t tid, uint64_t ts, struct tl_thread **ret, uint64_t *ret_mono)
{
	int r = timeline_enter(tl, ts, ret_mono);

	if (r == 0)
		r = timeline_thread_enter(tl, tid, *ret_mono, ret);
	return r;
}

int timeline_call(struct timeline *tl, uint32_t tid, uint64_t ts, uint32_t frame, const char *how)
{
	struct writer_arg arg = {.kind = WRITER_ARG_NAME};
	struct tl_thread *t;
	uint64_t mono;
	int r = enter(tl, tid, ts, &t, &mono);

	if (r != 0)
		return r;
	if (how) {
		arg.key = tl->key_how;
		arg.value.name = writer_name(tl->w, how);
	}
	tl->stats.calls++;
	r = slices_push(tl->slices, &t->lane, frame, mono, &arg, how ? 1 : 0);
	return r < 0 ? r : timeline_leave(tl);
}

int timeline_return(struct timeline *tl, uint32_t tid, uint64_t ts, uint64_t instructions)
{
	const struct writer_arg arg = {
		.key = tl->key_insns, .kind = WRITER_ARG_UINT, .value.u64 = instructions};
	struct tl_thread *t;
	uint64_t mono;
	int r = enter(tl, tid, ts, &t, &mono);

	if (r != 0)
		return r;
	slices_pop(tl->slices, &t->lane, mono, &arg, instructions ? 1 : 0);
	return timeline_leave(tl);
}

int timeline_untraced(struct timeline *tl, uint32_t tid, uint64_t ts, const char *why)
{
	struct tl_thread *t;
	uint64_t mono;
	int r = enter(tl, tid, ts, &t, &mono);

	if (r != 0)
		return r;
	t->untraced_at = mono;
	t->untraced_why = writer_name(tl->w, why);
	return timeline_leave(tl);
}

int timeline_traced(struct timeline *tl, uint32_t tid, uint64_t ts)
{
	struct tl_thread *t;
	uint64_t mono;
	int r = enter(tl, tid, ts, &t, &mono);

	if (r != 0)
		return r;
	/* Where it was off the CPU meanwhile, that says more and is drawn already. */
	if (t->untraced_at && t->lane.last_ts <= t->untraced_at && mono > t->untraced_at) {
		slices_leaf_begin(tl->slices, &t->lane, t->untraced_at,
				  &(struct writer_event){.name = t->untraced_why, .category = tl->untraced_category});
		slices_leaf_end(tl->slices, &t->lane, mono, NULL);
	}
	t->untraced_at = 0;
	return timeline_leave(tl);
}
