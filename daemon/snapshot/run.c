// SPDX-License-Identifier: Apache-2.0
/*
 * The steps of a snapshot: freeze, set aside, copy, decode, publish. All of it runs on the loop
 * except step_run(), which runs on a thread and touches only `build`, `meta`, `step`,
 * `step_result`, `frozen`, `share->bytes`, `aside_bytes` and `all_aside` of the snapshot.
 *
 * A snapshot can end (cancelled, out of time) while the copier still works for it: its state is
 * final at once, and it is cleaned up when the step has returned. Nothing here frees a snapshot,
 * calls a waiter or starts another snapshot: it asks the scheduler with snapshots_schedule().
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "common/base/wall_clock.h"
#include "common/control/json.h"
#include "daemon/snapshot/snapshot_internal.h"
#include "daemon/target/target.h"

#define MIB (1024ULL * 1024)
#define LATE_NS 10000000u /* less is no later than people are */

static void step_run(struct copier_job *job);
static void step_done(struct copier_job *job);

static struct copier *thread_of(const struct snapshot *n)
{
	return n->step == STEP_SET_ASIDE ? n->s->c.hurry : n->s->c.copier;
}

static void submit(struct snapshot *n, enum step step)
{
	n->step = step;
	n->step_result = 0;
	n->job.run = step_run;
	n->job.done = step_done;
	copier_submit(thread_of(n), &n->job);
}

static uint64_t left_of(uint64_t max, uint64_t used)
{
	return used < max ? max - used : 0;
}

/*
 * The thread has one of these jobs at a time: nobody else takes of what is left meanwhile. What has
 * no room is read where it is, in its turn.
 */
static void set_aside(struct snapshot *n)
{
	const uint64_t max = n->s->c.config->frozen_mib * MIB;
	uint64_t left = left_of(max, atomic_load(&n->s->aside_bytes)),
		 own = left_of(max / 2, atomic_load(&n->share->bytes));

	/* As with all that is shared, a user has no more than his part of it. */
	if (quota_is_limited(n->s->c.quota, n->creator) && own < left)
		left = own;
	n->aside_bytes = frozen_set_aside(n->frozen, left, &n->build.cancel, &n->all_aside);
	(void)atomic_fetch_add(&n->s->aside_bytes, n->aside_bytes);
	(void)atomic_fetch_add(&n->share->bytes, n->aside_bytes);
}

static void give_back_memory(struct snapshot *n)
{
	if (!n->share)
		return;
	(void)atomic_fetch_sub(&n->s->aside_bytes, n->aside_bytes);
	(void)atomic_fetch_sub(&n->share->bytes, n->aside_bytes);
	n->aside_bytes = 0;
	if (--n->share->users == 0)
		free(n->share);
	n->share = NULL;
}

static int write_meta(struct snapshot *n)
{
	size_t len;
	const char *text = json_text_styled(n->meta, JSON_INDENTED, &len);

	return text ? bundle_build_write_meta(&n->build, text, len) : -ENOMEM;
}

static void step_run(struct copier_job *job)
{
	struct snapshot *n = (struct snapshot *)((char *)job - offsetof(struct snapshot, job));
	int r = 0;

	switch (n->step) {
	case STEP_SET_ASIDE:
		set_aside(n);
		break;
	case STEP_COPY:
		r = bundle_build_copy(&n->build);
		break;
	case STEP_META:
		r = frozen_copy_go(n->frozen, n->build.dir.dir_fd, &n->build.cancel);
		/* which had room, and what their threads are called, is known only now */
		if (r == 0 && frozen_go_is_new(n->frozen)) {
			json_add(n->meta, "go", frozen_go_to_json(n->frozen));
			json_add_uint(json_get_object(n->meta, "losses"), "go_traces",
				      frozen_go_lost(n->frozen));
		}
		if (r == 0)
			r = write_meta(n);
		break;
	case STEP_PUBLISH:
		r = bundle_build_add_ids(&n->build);
		if (r == 0 && n->build.n_build_ids + n->build.build_ids_left_out > 0 &&
		    json_get_object(n->meta, "perf_data"))
			json_add(n->meta, "perf_data", bundle_build_perfdata(&n->build));
		if (r == 0)
			r = bundle_build_copy_objects(&n->build);
		if (r == 0 && n->build.objects) {
			/* which were copied is known only now */
			json_add(n->meta, "objects", objects_to_json(n->build.objects));
			json_add(n->meta, "cut", bundle_build_cut(&n->build));
		}
		if (r == 0)
			r = write_meta(n);
		if (r == 0)
			r = bundle_build_publish(&n->build);
		break;
	case STEP_ABORT:
		bundle_build_abort(&n->build);
		break;
	case STEP_NONE:
		break;
	}
	n->step_result = r;
}

/* ---- ends */

static void give_back_slot(struct snapshot *n)
{
	if (n->has_slot) {
		n->has_slot = false;
		n->s->n_slots--;
	}
	quota_release(&n->running);
}

/* Frees what needs the recording or holds a share of something. The copier must not have it. */
static void release_recording(struct snapshot *n)
{
	assert(!n->job.submitted);
	decoding_free(n->decoding);
	n->decoding = NULL;
	build_ids_free(n->build_ids);
	n->build_ids = n->build.build_ids = NULL;
	objects_free(n->objects);
	n->objects = n->build.objects = NULL;
	(void)frozen_free(n->frozen);
	n->frozen = n->build.frozen = NULL;
	give_back_memory(n);
	json_object_put(n->meta);
	n->meta = NULL;
	json_object_put(n->decoder_meta);
	n->decoder_meta = NULL;
	spool_unreserve(n->s->c.spool, n->item);
	n->item = NULL;
	quota_release(&n->queued);
	give_back_slot(n);
}

void snapshot_release(struct snapshot *n)
{
	release_recording(n);
	bundle_build_fini(&n->build);
	if (n->deadline)
		event_free(n->deadline);
	n->deadline = NULL;
}

void snapshot_clean_up(struct snapshot *n)
{
	if (!n->deadline || !snapshot_has_ended(n) || n->job.submitted)
		return;
	if (n->build.dir.dir_fd >= 0) {
		/* the rings run again now, however long the file system takes */
		release_recording(n);
		submit(n, STEP_ABORT);
	} else {
		snapshot_release(n);
	}
}

/*
 * A step that has not begun is taken back, so that a file system that hangs others' steps does not
 * hold this one.
 */
static void withdraw(struct snapshot *n)
{
	if (!n->job.submitted || !copier_withdraw(thread_of(n), &n->job))
		return;
	if (n->step == STEP_COPY)
		n->s->copying = false;
	n->step = STEP_NONE;
}

/* Ends it in a terminal state at once; the scheduler cleans up after it. */
static void end(struct snapshot *n, enum snapshot_state state)
{
	/*
	 * Nobody needs the decoder any more: it is killed at once, and its slot is free when it is
	 * reaped.
	 */
	decoding_free(n->decoding);
	n->decoding = NULL;
	atomic_store(&n->build.cancel, true);
	withdraw(n);
	quota_release(&n->queued);
	snapshot_set_state(n, state);
	snapshots_schedule(n->s);
}

static void fail_errno(struct snapshot *n, int r, const char *what)
{
	n->error_code = NULL; /* "kept without a trace" is not so any more */
	if (r == -ENOSPC || r == -EDQUOT) {
		n->s->no_space++;
		snapshot_set_error(n, "no_space", "%s: the disk is full; nothing was kept", what);
	} else if (r == -ENOMEM) {
		snapshot_set_error(n, "busy", "%s: out of memory", what);
	} else {
		snapshot_set_error(n, "io", "%s: %s", what, strerror(-r));
	}
	end(n, SNAPSHOT_FAILED);
}

static void explain(struct snapshot *n, enum snapshot_event event)
{
	switch (event) {
	case SNAPSHOT_DEADLINE:
		snapshot_set_error(n, "timeout", "%s took longer than %u s",
				   snapshot_state_to_string(n->state),
				   n->s->c.config->snapshot_timeout_s);
		break;
	case SNAPSHOT_CANCEL:
		snapshot_set_error(n, "cancelled", "cancelled by a client");
		break;
	case SNAPSHOT_STOP:
		snapshot_set_error(n, "shutting_down", "tracerd is stopping");
		break;
	case SNAPSHOT_DELETE:
	case _SNAPSHOT_EVENT_MAX:
		break;
	}
}

/* ---- publish */

static struct json_object *meta_new(struct snapshot *n, enum snapshot_state state)
{
	struct json_object *stored = snapshot_to_stored(n);

	if (!stored)
		return NULL;
	json_add_string(stored, "state", snapshot_state_to_string(state));
	return bundle_build_meta(&n->build, clockseries_get(n->s->c.clocks), stored,
				 n->decoder_meta ? json_object_get(n->decoder_meta) : NULL);
}

static void publish(struct snapshot *n)
{
	int r;

	snapshot_set_state(n, SNAPSHOT_PUBLISHING);
	quota_release(&n->queued);
	give_back_slot(n);
	n->published_ns = wall_clock_ns();
	json_object_put(n->meta);
	n->meta = meta_new(n, n->failed_decode ? SNAPSHOT_FAILED : SNAPSHOT_DONE);
	r = n->meta ? spool_reserve(n->s->c.spool, n->id, n->uid, &n->item) : -ENOMEM;
	if (r < 0) {
		fail_errno(n, r, "publishing");
		return;
	}
	submit(n, STEP_PUBLISH);
	/* the next may decode while this one is fsynced */
	snapshots_schedule(n->s);
}

static void publish_without_trace(struct snapshot *n)
{
	n->s->decode_failed++;
	n->failed_decode = true;
	publish(n);
}

/*
 * Cancelled or out of time while it published, and the step had not passed its rename: nothing is
 * on disk.
 */
static void end_stopped(struct snapshot *n)
{
	n->error_code = NULL; /* "kept without a trace" is not so any more */
	n->published_ns = 0;
	explain(n, n->stopped_by);
	end(n, n->stopped_end);
}

static void publish_done(struct snapshot *n)
{
	struct snapshots *s = n->s;

	if (n->step_result < 0) {
		if (n->step_result == -ECANCELED && n->stopped) {
			end_stopped(n);
		} else {
			n->published_ns = 0;
			fail_errno(n, n->step_result, "publishing");
		}
		return;
	}
	/* It has its name, and meta.json says how it ended. */
	n->bytes = n->build.bytes;
	spool_add(s->c.spool, n->item, n->bytes, n->published_ns);
	n->item = NULL;
	n->on_disk = true;
	frozen_published(n->frozen);
	snapshot_set_state(n, n->failed_decode ? SNAPSHOT_FAILED : SNAPSHOT_DONE);
	if (spool_expire(s->c.spool, wall_clock_ns(), n->uid) > 0)
		snapshots_purge(s);
	snapshots_schedule(s);
}

/* ---- decode */

static void on_progress(const struct decoder_progress *progress, void *arg)
{
	snapshot_set_progress(arg, progress);
}

/* The decoder cannot tell a trace that did not come from one that nobody asked for. */
static void add_go_losses(struct snapshot *n)
{
	size_t lost = frozen_go_lost(n->frozen);
	struct json_object *losses;

	if (!n->summary || lost == 0)
		return;
	losses = json_get_object(n->summary, "losses");
	json_add_uint(losses ? losses : json_add_new_object(n->summary, "losses"), "go_traces",
		      lost);
}

static void on_decoded(const struct decoder_outcome *outcome, bool timed_out, void *arg)
{
	struct snapshot *n = arg;

	n->decoder_meta = bundle_decoder_json(outcome, timed_out);
	if (outcome->end == DECODER_DONE) {
		if (outcome->result->summary)
			n->summary = json_object_get(outcome->result->summary);
		add_go_losses(n);
	} else if (timed_out) {
		n->s->timeouts++;
		snapshot_set_error(
			n, "decode_failed",
			"the decoder did not finish within %u s; the recording is kept without a trace",
			n->s->c.config->decoder_timeout_s);
	} else {
		snapshot_set_error(n, "decode_failed",
				   "%s%s%.700s; the recording is kept without a trace",
				   outcome->message, outcome->stderr_text[0] ? ": " : "",
				   outcome->stderr_text);
	}
	decoding_free(n->decoding);
	n->decoding = NULL;
	if (outcome->end == DECODER_DONE)
		publish(n);
	else
		publish_without_trace(n);
}

void snapshot_decode(struct snapshot *n)
{
	static const struct decoding_callbacks callbacks = {.on_progress = on_progress,
							    .on_end = on_decoded};
	struct snapshots *s = n->s;
	const struct decoding_request request = {
		.base = s->c.base,
		.copier = s->c.copier,
		.config = s->c.config,
		.program = s->decoder,
		.bundle_fd = n->build.dir.dir_fd,
		.frozen = n->frozen,
		.objects = n->objects,
		.build_ids = n->build_ids,
	};
	int r = -ENOENT;

	n->has_slot = true;
	s->n_slots++;
	quota_release(&n->queued);
	snapshot_set_state(n, SNAPSHOT_DECODING);
	if (s->decoder[0])
		r = decoding_start(&request, &callbacks, n, &n->decoding);
	if (r < 0) {
		snapshot_set_error(
			n, "decode_failed",
			"cannot start the decoder: %s; the recording is kept without a trace",
			!s->decoder[0] ? "tracerd-decode is not installed"
			: r == -EBUSY  ? "too many killed decoders have not ended yet"
				       : strerror(-r));
		publish_without_trace(n);
	}
}

/* ---- copy */

/* A back end that has much to stop is not done when the freeze begins. */
static void take_moment(struct snapshot *n)
{
	n->frozen_raw_ns = frozen_raw_ns(n->frozen);
	/*
	 * That of a target that was recorded no more has ended before, however late the request is.
	 */
	n->late_ns = frozen_was_armed(n->frozen) &&
				     frozen_until_ns(n->frozen) > n->asked_raw_ns + LATE_NS
			     ? frozen_until_ns(n->frozen) - n->asked_raw_ns
			     : 0;
	if (n->cause.kind == CAUSE_HIT && frozen_stopped_ns(n->frozen) > n->cause.end_raw_ns)
		n->cause.late_ns = frozen_stopped_ns(n->frozen) - n->cause.end_raw_ns;
}

/* With one that its creator's other snapshots have. 0 or -ENOMEM. */
static int take_share(struct snapshot *n)
{
	struct snapshot *other;

	TAILQ_FOREACH(other, &n->s->all, entry)
		if (other->share && other->creator == n->creator)
			break;
	n->share = other ? other->share : calloc(1, sizeof(*n->share));
	if (!n->share)
		return -ENOMEM;
	n->share->users++;
	return 0;
}

static void aside_done(struct snapshot *n)
{
	n->is_aside = true;
	if (!snapshot_has_ended(n)) {
		n->s->not_aside += !n->all_aside;
		/* for its copy */
		(void)snprintf(n->progress.stage, sizeof(n->progress.stage), "waiting");
	}
	snapshots_schedule(n->s);
}

static void begin_to_set_aside(struct snapshot *n)
{
	if (n->is_aside || n->job.submitted)
		return;
	if (take_share(n) < 0)
		aside_done(n); /* without memory for that, there is none for what it holds */
	else
		submit(n, STEP_SET_ASIDE);
}

static void on_ready(void *arg)
{
	struct snapshot *n = arg;

	take_moment(n);
	if (!snapshot_has_ended(n))
		begin_to_set_aside(n);
	snapshots_schedule(n->s);
}

bool snapshot_is_ready(const struct snapshot *n)
{
	return n->is_aside && !frozen_waits(n->frozen);
}

void snapshot_freeze(struct snapshot *n)
{
	struct snapshots *s = n->s;
	struct target *t = n->frozen ? NULL : targets_find(s->c.targets, n->target, 0, true, NULL);
	int r;

	if (!n->frozen && (!t || target_id(t) != n->target_id)) {
		snapshot_set_error(n, "gone", "the target was disarmed before its turn came");
		end(n, SNAPSHOT_FAILED);
		return;
	}
	snapshot_set_state(n, SNAPSHOT_FREEZING);
	r = n->frozen ? 0 : target_freeze(t, n->admin, &n->frozen);
	if (r < 0) {
		fail_errno(n, r, "freezing");
		return;
	}
	clockseries_take(s->c.clocks);
	n->frozen_ns = frozen_unix_ns(n->frozen);
	take_moment(n);
	/*
	 * The strictest credentials that the target had; a snapshot by an administrator is for
	 * administrators.
	 */
	n->uid = n->admin || frozen_admin_only(n->frozen) ? 0 : frozen_uid(n->frozen);
	if (!n->admin && n->uid != n->creator) {
		snapshot_set_error(
			n, "not_permitted",
			"the target is for administrators, or had other credentials while it was recorded");
		n->uid = n->creator; /* who may read that it failed */
		end(n, SNAPSHOT_FAILED);
		return;
	}
	if (frozen_waits(n->frozen))
		frozen_when_ready(n->frozen, on_ready, n); /* others do not wait meanwhile */
	if (!frozen_comes_later(n->frozen))
		begin_to_set_aside(n);
}

void snapshot_copy(struct snapshot *n)
{
	struct snapshots *s = n->s;

	n->build.spool = s->c.spool;
	n->build.frozen = n->frozen;
	n->build.objects = n->objects;
	n->build.build_ids = n->build_ids;
	n->build.max_bytes = s->c.config->max_output_mib * MIB;
	(void)snprintf(n->build.id, sizeof(n->build.id), "%s", n->id);
	snapshot_set_state(n, SNAPSHOT_COPYING);
	s->copying = true;
	submit(n, STEP_COPY);
}

static void submit_meta(struct snapshot *n)
{
	n->meta = meta_new(n, SNAPSHOT_DECODING);
	if (!n->meta) {
		fail_errno(n, -ENOMEM, "copying");
		return;
	}
	submit(n, STEP_META);
}

/* The rings record again meanwhile. */
static void on_go_ready(void *arg)
{
	struct snapshot *n = arg;

	if (!snapshot_has_ended(n))
		submit_meta(n);
}

static void copy_done(struct snapshot *n)
{
	n->s->copying = false;
	/* Only the copy needs the rings: they record again, whatever happens next. */
	frozen_resume(n->frozen);
	give_back_memory(n);
	snapshots_schedule(n->s);
	if (snapshot_has_ended(n))
		return;
	n->s->lacking += n->build.lacks;
	take_moment(n); /* somebody else's recording says only now until when it goes */
	if (n->step_result == BUNDLE_BUILD_E_NOTHING) {
		const char *why, *code = frozen_missing(n->frozen, &why);

		snapshot_set_error(n, code, "%s", why);
		end(n, SNAPSHOT_FAILED);
		return;
	}
	if (n->step_result < 0) {
		fail_errno(n, n->step_result, "copying");
		return;
	}
	if (n->build.perfdata_cut)
		n->s->cut++;
	if (frozen_go_waits(n->frozen))
		frozen_when_go_ready(n->frozen, on_go_ready, n);
	else
		submit_meta(n);
}

static void meta_done(struct snapshot *n)
{
	snapshots_schedule(n->s);
	if (snapshot_has_ended(n))
		return;
	n->s->go_lost += frozen_go_lost(n->frozen);
	if (n->step_result < 0)
		fail_errno(n, n->step_result, "writing meta.json");
	else
		snapshot_set_state(n, SNAPSHOT_COPIED);
}

static void step_done(struct copier_job *job)
{
	struct snapshot *n = (struct snapshot *)((char *)job - offsetof(struct snapshot, job));
	enum step step = n->step;

	n->step = STEP_NONE;
	switch (step) {
	case STEP_SET_ASIDE:
		aside_done(n);
		break;
	case STEP_COPY:
		copy_done(n);
		break;
	case STEP_META:
		meta_done(n);
		break;
	case STEP_PUBLISH:
		publish_done(n);
		break;
	case STEP_ABORT:
		snapshots_schedule(n->s);
		break;
	case STEP_NONE:
		break;
	}
}

/* ---- what comes from outside */

/*
 * The step on the copier stops before its rename, or has passed it. One that has not begun decides
 * nothing.
 */
static void let_step_decide(struct snapshot *n, enum snapshot_event event,
			    enum snapshot_state state)
{
	if (n->stopped)
		return;
	n->stopped = true;
	n->stopped_by = event;
	n->stopped_end = state;
	atomic_store(&n->build.cancel, true);
	withdraw(n);
	if (!n->job.submitted)
		end_stopped(n);
}

int snapshot_happens(struct snapshot *n, enum snapshot_event event)
{
	const struct snapshot_reaction reaction = snapshot_reaction(n, event);

	switch (reaction.what) {
	case REACT_REFUSE:
		return SNAPSHOT_E_STATE;
	case REACT_IGNORE:
		return 0;
	case REACT_END:
		explain(n, event);
		end(n, reaction.end);
		return 0;
	case REACT_KEEP:
		snapshot_set_error(n, "decode_failed",
			"no decoder was free within %u s; the recording is kept without a trace",
			n->s->c.config->snapshot_timeout_s);
		publish_without_trace(n);
		return 0;
	case REACT_STEP_DECIDES:
		let_step_decide(n, event, reaction.end);
		return 0;
	case REACT_REMOVE:
		return snapshot_remove(n);
	}
	return SNAPSHOT_E_STATE;
}
