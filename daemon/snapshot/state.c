// SPDX-License-Identifier: Apache-2.0
/*
 * The states of a snapshot: names, legal edges, the reaction to each event, deadlines, and S of the
 * protocol.
 *
 *   queued ─► freezing ─► copying ─► copied ─► decoding ─► publishing ─► done
 *                                       │                   ▲  │  └────► failed (no trace, bundle kept)
 *                                       └───────────────────┘  └───────► failed | cancelled
 *   every state before publishing ─► failed | cancelled
 *
 * The recording is frozen and copied as soon as the copier is free, not when a decoder is, because
 * rings are overwritten in seconds. A copied snapshot that waits for a decoder is "queued" again
 * for clients, with `frozen_at` set.
 */
#include <errno.h>
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/escape.h"
#include "common/base/io.h"
#include "common/base/log.h"
#include "common/control/json.h"
#include "daemon/snapshot/snapshot_internal.h"

/* Progress is for people: ten times a second is enough. */
#define PROGRESS_EVERY_NS 100000000ULL

static const char *const names[_SNAPSHOT_STATE_MAX] = {
	[SNAPSHOT_QUEUED] = "queued",
	[SNAPSHOT_FREEZING] = "freezing",
	[SNAPSHOT_COPYING] = "copying",
	[SNAPSHOT_COPIED] = "queued",
	[SNAPSHOT_DECODING] = "decoding",
	[SNAPSHOT_PUBLISHING] = "publishing",
	[SNAPSHOT_DONE] = "done",
	[SNAPSHOT_FAILED] = "failed",
	[SNAPSHOT_CANCELLED] = "cancelled",
};

#define TO(x) (1U << SNAPSHOT_##x)
static const unsigned edges[_SNAPSHOT_STATE_MAX] = {
	[SNAPSHOT_QUEUED] = TO(FREEZING) | TO(FAILED) | TO(CANCELLED),
	[SNAPSHOT_FREEZING] = TO(COPYING) | TO(FAILED) | TO(CANCELLED),
	[SNAPSHOT_COPYING] = TO(COPIED) | TO(FAILED) | TO(CANCELLED),
	[SNAPSHOT_COPIED] = TO(DECODING) | TO(PUBLISHING) | TO(FAILED) | TO(CANCELLED),
	[SNAPSHOT_DECODING] = TO(PUBLISHING) | TO(FAILED) | TO(CANCELLED),
	[SNAPSHOT_PUBLISHING] = TO(DONE) | TO(FAILED) | TO(CANCELLED),
};
#undef TO

/*
 * What comes from outside. Before the rename that publishes nothing is on disk that lasts, so an
 * end is an end at once, and a step that the copier has goes on for nobody. While it publishes, its
 * step alone knows on which side of the rename it is: what memory, meta.json, the spool's list and
 * the quota say follows from that. One that ended is deleted whether its step has come back or not:
 * it cannot publish any more.
 */
#define END(x) {REACT_END, SNAPSHOT_##x}
#define STEP(x) {REACT_STEP_DECIDES, SNAPSHOT_##x}
#define NO {.what = REACT_REFUSE}
#define NOTHING {.what = REACT_IGNORE}
static const struct snapshot_reaction reactions[_SNAPSHOT_STATE_MAX][_SNAPSHOT_EVENT_MAX] = {
	/*			  DEADLINE		CANCEL		 DELETE			STOP */
	[SNAPSHOT_QUEUED] = {END(FAILED), END(CANCELLED), NO, END(CANCELLED)},
	[SNAPSHOT_FREEZING] = {END(FAILED), END(CANCELLED), NO, END(CANCELLED)},
	[SNAPSHOT_COPYING] = {END(FAILED), END(CANCELLED), NO, END(CANCELLED)},
	/* the moment is recorded; only its picture has to be made elsewhere */
	[SNAPSHOT_COPIED] = {{REACT_KEEP, 0}, END(CANCELLED), NO, END(CANCELLED)},
	/* the decoder has a deadline of its own */
	[SNAPSHOT_DECODING] = {NOTHING, END(CANCELLED), NO, END(CANCELLED)},
	[SNAPSHOT_PUBLISHING] = {STEP(FAILED), STEP(CANCELLED), NO, NOTHING},
	[SNAPSHOT_DONE] = {NOTHING, NO, {REACT_REMOVE, 0}, NOTHING},
	[SNAPSHOT_FAILED] = {NOTHING, NO, {REACT_REMOVE, 0}, NOTHING},
	[SNAPSHOT_CANCELLED] = {NOTHING, NO, {REACT_REMOVE, 0}, NOTHING},
};
#undef END
#undef STEP
#undef NO
#undef NOTHING

struct snapshot_reaction snapshot_reaction(const struct snapshot *n, enum snapshot_event event)
{
	return reactions[n->state][event];
}

const char *snapshot_state_to_string(enum snapshot_state state)
{
	return state < _SNAPSHOT_STATE_MAX ? names[state] : "unknown";
}

bool snapshot_has_ended(const struct snapshot *n)
{
	return edges[n->state] == 0;
}

static void arm_deadline(struct snapshot *n)
{
	const struct config *c = n->s->c.config;
	struct timeval t = {.tv_sec = c->snapshot_timeout_s};

	if (!n->deadline)
		return;
	(void)evtimer_del(n->deadline);
	/* decoding has a deadline of its own, which starts when the decoder does */
	if (snapshot_has_ended(n) || n->state == SNAPSHOT_DECODING)
		return;
	(void)evtimer_add(n->deadline, &t);
}

void snapshot_report(struct snapshot *n)
{
	struct json_object *data = snapshot_to_json(n, false);

	n->reported = true;
	if (data && n->s->c.hub)
		hub_emit(n->s->c.hub, "snapshot.state", n->uid, data);
	else
		json_object_put(data);
}

static void enter(struct snapshot *n, enum snapshot_state state)
{
	n->state = state;
	n->reported = false;
	if (snapshot_has_ended(n)) {
		n->s->counts[state]++;
		if (state == SNAPSHOT_FAILED)
			log_warning("snapshot %s of %s (pid %d, %s) failed: %s", n->id, n->target,
				    n->pid, n->comm, n->error);
		else
			log_info("snapshot %s of %s (pid %d, %s): %s", n->id, n->target, n->pid,
				 n->comm, names[state]);
	}
	arm_deadline(n);
	memset(&n->progress, 0, sizeof(n->progress));
	(void)snprintf(n->progress.stage, sizeof(n->progress.stage), "%s", names[state]);
	/* most find a decoder at once: clients never see them queued again */
	if (state != SNAPSHOT_COPIED)
		snapshot_report(n);
}

void snapshot_begin(struct snapshot *n)
{
	log_debug("snapshot %s: queued", n->id);
	enter(n, SNAPSHOT_QUEUED);
}

void snapshot_set_state(struct snapshot *n, enum snapshot_state state)
{
	assert(edges[n->state] & 1U << state);
	log_debug("snapshot %s: %s -> %s", n->id, names[n->state], names[state]);
	enter(n, state);
}

static struct json_object *progress_json(const struct snapshot *n)
{
	struct json_object *o = json_object_new_object();

	if (!o)
		return NULL;
	json_add_string(o, "stage", n->progress.stage);
	json_add_uint(o, "done", n->progress.done);
	json_add_uint(o, "total", n->progress.total);
	return o;
}

void snapshot_set_progress(struct snapshot *n, const struct decoder_progress *progress)
{
	uint64_t now = io_now_ns();
	struct json_object *data;

	n->progress = *progress;
	if (!n->s->c.hub || now - n->progress_reported_ns < PROGRESS_EVERY_NS)
		return;
	n->progress_reported_ns = now;
	data = json_object_new_object();
	json_add_string(data, "snapshot", n->id);
	json_add(data, "progress", progress_json(n));
	hub_emit(n->s->c.hub, "snapshot.progress", n->uid, data);
}

void snapshot_set_error(struct snapshot *n, const char *code, const char *fmt, ...)
{
	va_list ap;
	int r;

	if (n->error_code)
		return;
	n->error_code = code;
	va_start(ap, fmt);
	r = vsnprintf(n->error, sizeof(n->error), fmt, ap);
	va_end(ap);
	(void)r;
}

/* ---- S */

static void add_time(struct json_object *o, const char *key, uint64_t ns)
{
	if (ns)
		json_add_uint(o, key, ns);
	else
		json_add_null(o, key);
}

static struct json_object *error_json(const struct snapshot *n)
{
	struct json_object *o = json_object_new_object();

	if (!o)
		return NULL;
	json_add_string(o, "code", n->error_code);
	json_add_string(o, "message", n->error);
	return o;
}

struct json_object *snapshot_to_stored(const struct snapshot *n)
{
	struct json_object *o = json_object_new_object();

	if (!o)
		return NULL;
	json_add_string(o, "id", n->id);
	json_add_string(o, "target", n->target);
	json_add_int(o, "pid", n->pid);
	json_add_string(o, "comm", n->comm);
	if (n->unit[0])
		json_add_string(o, "unit", n->unit);
	json_add_uint(o, "uid", n->uid);
	json_add_string(o, "state", names[n->state]);
	json_add(o, "cause", cause_to_json(&n->cause));
	json_add_uint(o, "created_at", n->created_ns);
	add_time(o, "frozen_at", n->frozen_ns);
	add_time(o, "frozen_raw_ns", n->frozen_raw_ns);
	json_add_uint(o, "asked_raw_ns", n->asked_raw_ns);
	json_add_uint(o, "late_ns", n->late_ns);
	add_time(o, "published_at", n->published_ns);
	if (n->error_code)
		json_add(o, "error", error_json(n));
	else
		json_add_null(o, "error");
	json_add_uint(o, "blind_ns", n->blind_ns);
	if (n->summary)
		json_add(o, "summary", json_object_get(n->summary));
	else
		json_add_null(o, "summary");
	return o;
}

/* Text from our own meta.json, which was escaped when it was written. */
static void get_text(struct json_object *o, const char *key, char *ret, size_t size)
{
	const char *s = json_get_string(o, key);

	(void)escape_text(ret, size, s ? s : "", s ? strlen(s) : 0);
}

void snapshot_from_stored(struct snapshot *n, struct json_object *stored)
{
	const char *state = json_get_string(stored, "state");
	int64_t pid = 0;

	n->stored = json_object_get(stored);
	n->state = state && !strcmp(state, "done") ? SNAPSHOT_DONE : SNAPSHOT_FAILED;
	get_text(stored, "target", n->target, sizeof(n->target));
	get_text(stored, "comm", n->comm, sizeof(n->comm));
	get_text(stored, "unit", n->unit, sizeof(n->unit));
	if (json_get_int(stored, "pid", &pid))
		n->pid = (pid_t)pid;
	(void)json_get_uint(stored, "created_at", &n->created_ns);
	(void)json_get_uint(stored, "frozen_at", &n->frozen_ns);
	(void)json_get_uint(stored, "frozen_raw_ns", &n->frozen_raw_ns);
	(void)json_get_uint(stored, "published_at", &n->published_ns);
}

struct json_object *snapshot_to_json(struct snapshot *n, bool files)
{
	struct json_object *o, *list = NULL;
	int r = 0;

	if (n->stored) {
		/* a copy of the top level: the members are shared and never changed */
		o = json_object_new_object();
		if (!o)
			return NULL;
		json_object_object_foreach(n->stored, key, value)
			json_add_shared(o, key, value);
		json_add_string(o, "id", n->id);
	} else {
		o = snapshot_to_stored(n);
		if (!o)
			return NULL;
	}
	json_add(o, "progress", progress_json(n));
	json_add_uint(o, "bytes", n->bytes);
	json_add_bool(o, "with_objects", n->with_objects);
	/* A page of a list must stay short: what is long is for show. */
	if (!files)
		json_add_null(o, "summary");
	if (files && n->on_disk)
		r = spool_files(n->s->c.spool, n->id, &list);
	if (list || r == -ENOMEM)
		json_add(o, "files", list); /* NULL: no answer rather than one without them */
	else
		(void)json_add_new_array(o, "files");
	return o;
}
