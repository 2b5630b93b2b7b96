// SPDX-License-Identifier: Apache-2.0
/*
 * The steps of a snapshot, from its turn to its end. Everything here runs on the loop but step_run(), which is on the
 * copier thread and touches nothing of the snapshot but `build`, `meta`, `step` and `step_result`.
 *
 * An operation can end (cancelled, out of time) while a step of it is still on the copier: then the state
 * is final at once, and the step's done() cleans up.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/io.h"
#include "common/json.h"
#include "common/log.h"
#include "daemon/snapshot_private.h"
#include "daemon/target.h"

#define MIB (1024ULL * 1024)

static void step_run(struct copier_job *job);
static void step_done(struct copier_job *job);

static void submit(struct snapshot *n, enum step step)
{
	n->step = step;
	n->step_result = 0;
	n->job.run = step_run;
	n->job.done = step_done;
	copier_submit(n->s->c.copier, &n->job);
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
	case STEP_COPY:
		r = bundle_build_copy(&n->build);
		break;
	case STEP_META:
		r = write_meta(n);
		break;
	case STEP_PUBLISH:
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

/* Frees what only a running one has. The bundle's directory has its name or is gone. */
void snapshot_release(struct snapshot *n)
{
	assert(!n->job.submitted);
	decoding_free(n->decoding);
	n->decoding = NULL;
	bundle_build_fini(&n->build);
	objects_free(n->objects);
	n->objects = n->build.objects = NULL;
	(void)frozen_free(n->frozen);
	n->frozen = n->build.frozen = NULL;
	json_object_put(n->meta);
	n->meta = NULL;
	json_object_put(n->decoder_meta);
	n->decoder_meta = NULL;
	quota_release(&n->queued);
	give_back_slot(n);
	if (n->deadline)
		event_free(n->deadline);
	n->deadline = NULL;
}

/* The last of an operation that has ended and has nothing on the copier: removes what it built. */
static void clean_up(struct snapshot *n)
{
	struct snapshots *s = n->s;

	if (n->build.dir.dir_fd >= 0) {
		submit(n, STEP_ABORT);
		return;
	}
	snapshot_release(n);
	if (n->hidden)
		snapshot_free(n);
	snapshots_pump(s);
}

void snapshot_end(struct snapshot *n, enum snapshot_state state)
{
	struct snapshots *s = n->s;

	/* A decoder that runs for nobody is killed at once; its slot is free when it is reaped. */
	decoding_free(n->decoding);
	n->decoding = NULL;
	atomic_store(&n->build.cancel, true);
	quota_release(&n->queued);
	snapshot_set_state(n, state);
	if (!n->job.submitted)
		clean_up(n);
	snapshot_ended(n); /* may free n */
	snapshots_pump(s);
}

static void fail_errno(struct snapshot *n, int r, const char *what)
{
	n->error_code = NULL; /* "kept without a trace" is not so any more */
	if (r == -ENOSPC || r == -EDQUOT) {
		n->s->no_space++;
		snapshot_set_error(n, "no_space", "%s: the disk is full; nothing of it was kept", what);
	} else if (r == -ENOMEM) {
		snapshot_set_error(n, "busy", "%s: out of memory", what);
	} else {
		snapshot_set_error(n, "io", "%s: %s", what, strerror(-r));
	}
	snapshot_end(n, SNAPSHOT_FAILED);
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
	snapshot_set_state(n, SNAPSHOT_PUBLISHING);
	quota_release(&n->queued);
	give_back_slot(n);
	n->published_ns = snapshot_now_ns();
	json_object_put(n->meta);
	n->meta = meta_new(n, n->failed_decode ? SNAPSHOT_FAILED : SNAPSHOT_DONE);
	if (!n->meta) {
		fail_errno(n, -ENOMEM, "publishing");
		return;
	}
	submit(n, STEP_PUBLISH);
	/* the next may decode while this one is fsynced */
	snapshots_pump(n->s);
}

static void publish_without_trace(struct snapshot *n)
{
	n->s->decode_failed++;
	n->failed_decode = true;
	publish(n);
}

/* It has its name on disk: it is an item of the spool, whatever became of the operation meanwhile. */
static void adopt(struct snapshot *n)
{
	struct spool *spool = n->s->c.spool;
	struct json_object *stored = snapshot_to_stored(n);
	int r;

	n->bytes = n->build.bytes;
	if (!stored)
		stored = json_object_new_object();
	r = spool_add(spool, n->id, n->uid, n->bytes, n->published_ns, stored);
	if (r < 0) {
		log_warning("snapshot %s: on disk, but not in the list until the next start: %s", n->id, strerror(-r));
		return;
	}
	n->on_disk = true;
	if (quota_charge_forced(n->s->c.quota, n->uid, QUOTA_SPOOL_BYTES, n->bytes, &n->spool_bytes) < 0)
		log_debug("snapshot %s: its bytes are not counted for uid %u", n->id, n->uid);
}

static void publish_done(struct snapshot *n)
{
	struct snapshots *s = n->s;

	if (n->step_result < 0) {
		if (n->step_result == -ECANCELED && !snapshot_has_ended(n)) {
			snapshot_end(n, SNAPSHOT_CANCELLED);
			return;
		}
		n->published_ns = 0;
		if (snapshot_has_ended(n))
			clean_up(n);
		else
			fail_errno(n, n->step_result, "publishing");
		return;
	}
	adopt(n);
	frozen_published(n->frozen);
	snapshot_release(n);
	if (!snapshot_has_ended(n)) {
		if (!n->failed_decode)
			n->error_code = NULL; /* a cancel that came too late */
		snapshot_set_state(n, n->failed_decode ? SNAPSHOT_FAILED : SNAPSHOT_DONE);
		snapshot_ended(n);
	}
	(void)spool_expire(s->c.spool, snapshot_now_ns()); /* may free n */
	snapshots_purge(s);
	snapshots_pump(s);
}

/* ---- decode */

static void on_progress(const struct declink_progress *progress, void *arg)
{
	snapshot_set_progress(arg, progress);
}

static void on_decoded(const struct decoder_outcome *outcome, bool timed_out, void *arg)
{
	struct snapshot *n = arg;

	n->decoder_meta = bundle_decoder_json(outcome, timed_out);
	if (outcome->end == DECODER_DONE) {
		if (outcome->result->summary)
			n->summary = json_object_get(outcome->result->summary);
	} else if (timed_out) {
		n->s->timeouts++;
		snapshot_set_error(n, "decode_failed",
			"the decoder did not finish within %u s; the recording is kept without a trace",
			n->s->c.config->decoder_timeout_s);
	} else {
		snapshot_set_error(n, "decode_failed", "%s%s%.700s; the recording is kept without a trace",
			outcome->message, outcome->stderr_text[0] ? ": " : "", outcome->stderr_text);
	}
	decoding_free(n->decoding);
	n->decoding = NULL;
	if (outcome->end == DECODER_DONE)
		publish(n);
	else
		publish_without_trace(n);
}

static void decode(struct snapshot *n)
{
	static const struct decoding_callbacks callbacks = {.on_progress = on_progress, .on_end = on_decoded};
	struct snapshots *s = n->s;
	const struct decoding_request request = {
		.base = s->c.base,
		.copier = s->c.copier,
		.config = s->c.config,
		.program = s->decoder,
		.bundle_fd = n->build.dir.dir_fd,
		.frozen = n->frozen,
		.objects = n->objects,
	};
	int r = -ENOENT;

	n->has_slot = true;
	s->n_slots++;
	quota_release(&n->queued);
	snapshot_set_state(n, SNAPSHOT_DECODING);
	if (s->decoder[0])
		r = decoding_start(&request, &callbacks, n, &n->decoding);
	if (r < 0) {
		snapshot_set_error(n, "decode_failed", "the decoder could not be started: %s; the recording is kept without a trace",
			!s->decoder[0] ? "tracerd-decode is not installed"
			: r == -EBUSY  ? "too many earlier ones were killed and have not died yet"
				       : strerror(-r));
		publish_without_trace(n);
	}
}

/* ---- copy */

struct frozen *snapshots_freeze_early(struct snapshots *s, struct target *target, bool admin)
{
	struct frozen *frozen;

	/* What fails here is tried again, and told, when its turn comes. */
	return !s->copying && target_freeze(target, admin, &frozen) == 0 ? frozen : NULL;
}

static void on_ready(void *arg)
{
	struct snapshot *n = arg;

	n->ready = true;
	snapshots_pump(n->s);
}

static void freeze(struct snapshot *n)
{
	struct snapshots *s = n->s;
	struct target *t = n->frozen ? NULL : targets_find(s->c.targets, n->target, 0, true);
	int r;

	if (!n->frozen && (!t || target_id(t) != n->target_id)) {
		snapshot_set_error(n, "gone", "the target was disarmed before its turn came");
		snapshot_end(n, SNAPSHOT_FAILED);
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
	n->frozen_raw_ns = frozen_raw_ns(n->frozen);
	/* The strictest that the target was; and what was taken with an administrator's eyes is for those. */
	n->uid = n->admin || frozen_admin_only(n->frozen) ? 0 : frozen_uid(n->frozen);
	if (!n->admin && n->uid != n->requester) {
		snapshot_set_error(n, "not_permitted", "the target had other credentials while it was recorded");
		n->uid = n->requester; /* who may read that it failed */
		snapshot_end(n, SNAPSHOT_FAILED);
		return;
	}
	n->ready = !frozen_waits(n->frozen);
	if (!n->ready)
		frozen_when_ready(n->frozen, on_ready, n); /* nobody else has to wait for it, too */
}

static void copy(struct snapshot *n)
{
	struct snapshots *s = n->s;

	n->build.spool = s->c.spool;
	n->build.frozen = n->frozen;
	n->build.objects = n->objects;
	n->build.max_bytes = s->c.config->max_output_mib * MIB;
	(void)snprintf(n->build.id, sizeof(n->build.id), "%s", n->id);
	snapshot_set_state(n, SNAPSHOT_COPYING);
	s->copying = true;
	submit(n, STEP_COPY);
}

static void copy_done(struct snapshot *n)
{
	n->s->copying = false;
	/* Only the copy needs the rings: they are given back whatever comes. */
	frozen_resume(n->frozen);
	if (snapshot_has_ended(n)) {
		clean_up(n);
		return;
	}
	n->s->lacking += n->build.lacks;
	if (n->step_result == BUNDLE_BUILD_E_NOTHING) {
		const char *why, *code = frozen_lack(n->frozen, &why);

		snapshot_set_error(n, code, "%s", why);
		snapshot_end(n, SNAPSHOT_FAILED);
		return;
	}
	if (n->step_result < 0) {
		fail_errno(n, n->step_result, "copying");
		return;
	}
	if (n->build.perfdata_cut)
		n->s->cut++;
	n->meta = meta_new(n, SNAPSHOT_DECODING);
	if (!n->meta) {
		fail_errno(n, -ENOMEM, "copying");
		return;
	}
	submit(n, STEP_META);
	snapshots_pump(n->s);
}

static void meta_done(struct snapshot *n)
{
	if (snapshot_has_ended(n)) {
		clean_up(n);
		return;
	}
	if (n->step_result < 0) {
		fail_errno(n, n->step_result, "writing meta.json");
		return;
	}
	n->copied = true;
	snapshots_pump(n->s);
	/* its state is still copying if no decoder was free */
	if (n->state == SNAPSHOT_COPYING)
		snapshot_set_state(n, SNAPSHOT_QUEUED);
}

static void step_done(struct copier_job *job)
{
	struct snapshot *n = (struct snapshot *)((char *)job - offsetof(struct snapshot, job));
	enum step step = n->step;

	n->step = STEP_NONE;
	switch (step) {
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
		clean_up(n);
		break;
	case STEP_NONE:
		break;
	}
}

/* ---- turns and deadlines */

/* One that can start now, or NULL. Per user: who is at the limit does not hold up the others. */
static struct snapshot *next_to_copy(struct snapshots *s)
{
	struct snapshot *n;

	if (s->copying)
		return NULL;
	TAILQ_FOREACH(n, &s->all, entry)
		if ((n->state == SNAPSHOT_QUEUED && !n->copied) || (n->state == SNAPSHOT_FREEZING && n->ready))
			return n;
	return NULL;
}

static struct snapshot *next_to_decode(struct snapshots *s)
{
	struct snapshot *n;

	if (s->n_slots >= s->c.config->snapshots_running)
		return NULL;
	TAILQ_FOREACH(n, &s->all, entry) {
		if (!n->copied || (n->state != SNAPSHOT_QUEUED && n->state != SNAPSHOT_COPYING))
			continue;
		if (quota_charge(s->c.quota, n->requester, QUOTA_SNAPSHOTS_RUNNING, 1, &n->running) == 0)
			return n;
	}
	return NULL;
}

void snapshots_pump(struct snapshots *s)
{
	struct snapshot *n;

	if (s->stopping)
		return;
	while ((n = next_to_copy(s)) != NULL) {
		if (n->state == SNAPSHOT_QUEUED)
			freeze(n);
		else
			copy(n);
	}
	while ((n = next_to_decode(s)) != NULL)
		decode(n);
}

void snapshot_on_deadline(struct snapshot *n)
{
	const unsigned limit = n->s->c.config->snapshot_timeout_s;

	n->s->timeouts++;
	if (n->state == SNAPSHOT_QUEUED && n->copied) {
		/* The moment is recorded; only its picture has to be made elsewhere. */
		snapshot_set_error(n, "decode_failed",
			"no decoder was free within %u s; the recording is kept without a trace", limit);
		publish_without_trace(n);
		return;
	}
	snapshot_set_error(n, "timeout", "%s took longer than %u s", snapshot_state_to_string(n->state), limit);
	snapshot_end(n, SNAPSHOT_FAILED);
}
