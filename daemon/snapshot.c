// SPDX-License-Identifier: Apache-2.0
/* Snapshots as clients see them: created, found, listed, waited for, cancelled, deleted, fetched. */
#include "daemon/snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/decoder_dying.h"
#include "common/escape.h"
#include "common/io.h"
#include "common/json.h"
#include "common/log.h"
#include "daemon/snapshot_private.h"
#include "daemon/target.h"

#define MIB (1024ULL * 1024)
#define EXPIRE_EVERY_S 600
/* What a bundle is at most beside the rings: history, meta.json, the trace of a short look-back. */
#define ROOM_BESIDE_RINGS MIB

/* ---- one */

void snapshot_free(struct snapshot *n)
{
	if (!n)
		return;
	TAILQ_REMOVE(&n->s->all, n, entry);
	snapshot_release(n);
	quota_release(&n->spool_bytes);
	json_object_put(n->summary);
	json_object_put(n->stored);
	free(n);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
	snapshot_on_deadline(arg);
}

static struct snapshot *snapshot_new(struct snapshots *s, const char *id)
{
	struct snapshot *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->s = s;
	(void)snprintf(n->id, sizeof(n->id), "%s", id);
	bundle_build_init(&n->build);
	TAILQ_INSERT_TAIL(&s->all, n, entry);
	return n;
}

const char *snapshot_id(const struct snapshot *snapshot)
{
	return snapshot->id;
}

enum snapshot_state snapshot_state(const struct snapshot *snapshot)
{
	return snapshot->state;
}

/* ---- the spool's side */

static void purge_run(struct copier_job *job)
{
	struct snapshots *s = (struct snapshots *)((char *)job - offsetof(struct snapshots, purge));

	spool_purge(s->c.spool);
}

static void purge_done(struct copier_job *job)
{
}

void snapshots_purge(struct snapshots *s)
{
	if (s->purge.submitted)
		return; /* that one sees what was removed since, or the next does */
	s->purge.run = purge_run;
	s->purge.done = purge_done;
	copier_submit(s->c.copier, &s->purge);
}

static struct snapshot *find(struct snapshots *s, const char *id)
{
	struct snapshot *n;

	TAILQ_FOREACH(n, &s->all, entry)
		if (!strcmp(n->id, id) && !n->hidden)
			return n;
	return NULL;
}

/* Retention or delete took it off the disk: then there is no such snapshot any more. */
static void on_removed(void *arg, const struct spool_item *item, const char *why)
{
	struct snapshots *s = arg;
	struct snapshot *n = find(s, item->id);

	log_info("snapshot %s: removed (%s)", item->id, why);
	if (strcmp(why, "deleted"))
		s->evicted++;
	if (n)
		snapshot_free(n);
}

static void on_expire(evutil_socket_t fd, short what, void *arg)
{
	struct snapshots *s = arg;

	if (spool_expire(s->c.spool, snapshot_now_ns()) > 0)
		snapshots_purge(s);
}

static int load(struct snapshots *s)
{
	for (size_t i = 0; i < spool_count(s->c.spool); i++) {
		const struct spool_item *item = spool_at(s->c.spool, i);
		struct snapshot *n = snapshot_new(s, item->id);

		if (!n)
			return -ENOMEM;
		snapshot_from_stored(n, item->info);
		n->uid = item->owner;
		n->bytes = item->bytes;
		n->published_ns = item->published_ns;
		n->on_disk = true;
		if (quota_charge_forced(s->c.quota, n->uid, QUOTA_SPOOL_BYTES, n->bytes, &n->spool_bytes) < 0)
			return -ENOMEM;
	}
	return 0;
}

int snapshots_new(const struct snapshots_context *context, struct snapshots **ret)
{
	const struct timeval every = {.tv_sec = EXPIRE_EVERY_S};
	_cleanup_(snapshots_freep) struct snapshots *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->c = *context;
	TAILQ_INIT(&s->all);
	r = decoder_find(s->c.config->decoder, s->decoder, sizeof(s->decoder));
	if (r < 0) {
		log_warning("tracerd-decode was not found (%s): snapshots are kept without a trace", strerror(-r));
		s->decoder[0] = '\0';
	}
	s->expire = event_new(s->c.base, -1, EV_PERSIST, on_expire, s);
	if (!s->expire || event_add(s->expire, &every) < 0)
		return -ENOMEM;
	r = load(s);
	if (r < 0)
		return r;
	spool_set_removed(s->c.spool, on_removed, s);
	if (spool_expire(s->c.spool, snapshot_now_ns()) > 0)
		snapshots_purge(s);
	*ret = take_ptr(s);
	return 0;
}

void snapshots_free(struct snapshots *s)
{
	struct snapshot *n;

	if (!s)
		return;
	s->stopping = true;
	if (s->c.spool)
		spool_set_removed(s->c.spool, NULL, NULL);
	while ((n = TAILQ_FIRST(&s->all)) != NULL) {
		bundle_build_abort(&n->build); /* the copier is gone: here and now */
		snapshot_free(n);
	}
	if (s->expire)
		event_free(s->expire);
	free(s);
}

/* One that can be cancelled. What is being published is let through: that is short, and then it is whole. */
static struct snapshot *next_to_stop(struct snapshots *s)
{
	struct snapshot *n;

	TAILQ_FOREACH(n, &s->all, entry)
		if (!snapshot_has_ended(n) && n->state != SNAPSHOT_PUBLISHING)
			return n;
	return NULL;
}

bool snapshots_stop(struct snapshots *s)
{
	struct snapshot *n;

	s->stopping = true;
	while ((n = next_to_stop(s)) != NULL) {
		snapshot_set_error(n, "shutting_down", "tracerd stops");
		snapshot_end(n, SNAPSHOT_CANCELLED);
	}
	TAILQ_FOREACH(n, &s->all, entry)
		if (n->deadline)
			return false;
	return true;
}

/* ---- ends */

void snapshot_ended(struct snapshot *n)
{
	struct snapshots *s = n->s;
	struct snapshot *i, *oldest = NULL;
	unsigned remembered = 0;

	if (n->done) {
		snapshot_done_fn done = n->done;

		n->done = NULL;
		done(n, n->done_arg);
	}
	TAILQ_FOREACH_REVERSE(i, &s->all, snapshot_list, entry)
		if (snapshot_has_ended(i) && !i->on_disk && !i->deadline && i != n) {
			remembered++;
			oldest = i;
		}
	if (remembered > MAX_REMEMBERED)
		snapshot_free(oldest);
}

void snapshots_forget_waiter(struct snapshots *s, void *arg)
{
	struct snapshot *n;

	TAILQ_FOREACH(n, &s->all, entry)
		if (n->done && n->done_arg == arg)
			n->done = NULL;
}

/* ---- create */

static int refuse(int code, char *why, size_t why_size, const char *text)
{
	(void)snprintf(why, why_size, "%s", text);
	return code;
}

/* How much the spool may be asked to hold: what the rings and the programs' own have, at most what one bundle may be. */
static uint64_t estimate(const struct snapshots *s, struct target *target)
{
	_cleanup_json_ struct json_object *t = target_to_json(target);
	const uint64_t max = s->c.config->max_output_mib * MIB;
	struct json_object *events = t ? json_get_object(t, "events") : NULL;
	uint64_t ring = 0, memory = 0;

	if (t)
		(void)json_get_uint(t, "ring_bytes", &ring);
	if (events)
		(void)json_get_uint(events, "bytes", &memory);
	/* Each of the two has that limit for itself. */
	return (ring + ROOM_BESIDE_RINGS < max ? ring + ROOM_BESIDE_RINGS : max) + (memory < max ? memory : max);
}

static int check_room(struct snapshots *s, struct target *target, uid_t owner, char *why, size_t why_size)
{
	size_t before = spool_count(s->c.spool);
	int r;

	r = spool_make_room(s->c.spool, owner, estimate(s, target));
	if (spool_count(s->c.spool) < before)
		snapshots_purge(s);
	switch (r) {
	case SPOOL_E_QUOTA:
		return refuse(SNAPSHOT_E_QUOTA, why, why_size, "the snapshot would be larger than this user's share of the spool");
	case SPOOL_E_NO_SPACE:
		s->no_space++;
		return refuse(SNAPSHOT_E_NO_SPACE, why, why_size, "the spool's file system is too full");
	default:
		return r;
	}
}

/* Takes over the charge and the recording, if it is frozen already. */
static int create(struct snapshots *s, struct target *target, const struct snapshot_request *request, uint64_t now_ns,
		  struct quota_charge *queued, struct frozen **frozen, struct snapshot **ret, char *why, size_t why_size)
{
	char id[SPOOL_ID_LEN + 1];
	struct snapshot *n;
	int r;

	do
		spool_new_id(s->c.spool, id);
	while (find(s, id));
	n = snapshot_new(s, id);
	if (!n)
		return -ENOMEM;
	n->frozen = take_ptr(*frozen);
	n->queued = *queued;
	*queued = (struct quota_charge){0};
	n->requester = request->uid;
	n->uid = request->admin ? 0 : request->uid;
	n->admin = request->admin;
	n->with_objects = request->with_objects;
	n->created_ns = now_ns;
	n->target_id = target_id(target);
	n->pid = target_pid(target);
	(void)snprintf(n->target, sizeof(n->target), "%s", target_name(target));
	(void)escape_text(n->comm, sizeof(n->comm), target_comm(target), strlen(target_comm(target)));
	if (request->cause)
		cause_copy(&n->cause, request->cause);
	else
		cause_client(&n->cause, request->uid, request->reason ? request->reason : "");
	n->deadline = evtimer_new(s->c.base, on_deadline, n);
	r = n->deadline ? objects_new(request->with_objects, &n->objects) : -ENOMEM;
	/* Last of what may refuse: it removes old snapshots to make room. */
	if (r == 0)
		r = check_room(s, target, n->uid, why, why_size);
	if (r != 0) {
		snapshot_free(n);
		return r;
	}
	*ret = n;
	return 0;
}

int snapshots_create(struct snapshots *s, struct target *target, const struct snapshot_request *request,
		     snapshot_done_fn done, void *arg, struct snapshot **ret, char *why, size_t why_size)
{
	struct quota_charge queued = {0};
	struct frozen *frozen;
	struct snapshot *n;
	uint64_t now_ns;
	int r;

	if (s->stopping)
		return refuse(SNAPSHOT_E_BUSY, why, why_size, "tracerd stops");
	if (request->reason && strlen(request->reason) > SNAPSHOT_MAX_REASON)
		return -EINVAL;
	/* of all users: each that waits has such a charge, and nothing else has one */
	if (s->c.quota->totals[QUOTA_SNAPSHOTS_QUEUED] >= s->c.config->snapshots_queued)
		return refuse(SNAPSHOT_E_BUSY, why, why_size, "too many snapshots wait already");
	r = quota_charge(s->c.quota, request->uid, QUOTA_SNAPSHOTS_QUEUED, 1, &queued);
	if (r > 0)
		return refuse(SNAPSHOT_E_QUOTA, why, why_size, "too many snapshots of this user wait already");
	if (r < 0)
		return r;
	/* Now, not at the loop's next turn and not behind the file system: each millisecond is one that the rings forget. */
	now_ns = snapshot_now_ns();
	frozen = snapshots_freeze_early(s, target, request->admin);
	r = create(s, target, request, now_ns, &queued, &frozen, &n, why, why_size);
	(void)frozen_free(frozen);
	quota_release(&queued);
	if (r != 0)
		return r;
	n->done = done;
	n->done_arg = arg;
	snapshot_begin(n);
	snapshots_pump(s);
	*ret = n;
	return 0;
}

/* ---- for clients */

static bool visible(const struct snapshot *n, uid_t uid, bool admin)
{
	return !n->hidden && (admin || n->uid == uid);
}

int snapshots_find(struct snapshots *s, const char *id, uid_t uid, bool admin, struct snapshot **ret)
{
	struct snapshot *n = find(s, id);

	if (!n || !visible(n, uid, admin))
		return SNAPSHOT_E_GONE;
	*ret = n;
	return 0;
}

int snapshot_cancel(struct snapshot *snapshot)
{
	if (snapshot_has_ended(snapshot))
		return SNAPSHOT_E_STATE;
	snapshot_set_error(snapshot, "cancelled", "cancelled by a client");
	if (snapshot->state == SNAPSHOT_PUBLISHING) {
		/* The step stops before its rename, or has passed it: it decides. */
		atomic_store(&snapshot->build.cancel, true);
		return 0;
	}
	snapshot_end(snapshot, SNAPSHOT_CANCELLED);
	return 0;
}

int snapshot_delete(struct snapshot *snapshot)
{
	struct snapshots *s = snapshot->s;
	int r;

	if (!snapshot_has_ended(snapshot))
		return SNAPSHOT_E_STATE;
	if (snapshot->on_disk) {
		r = spool_remove(s->c.spool, snapshot->id, "deleted"); /* frees it by on_removed() */
		if (r == 0)
			snapshots_purge(s);
		return r;
	}
	if (snapshot->deadline) /* its step is still being cleaned up */
		snapshot->hidden = true;
	else
		snapshot_free(snapshot);
	return 0;
}

static int newest_first(const void *a, const void *b)
{
	return strcmp((*(struct snapshot *const *)b)->id, (*(struct snapshot *const *)a)->id);
}

int snapshots_list(struct snapshots *s, uid_t uid, bool admin, const char *cursor, unsigned limit,
		   struct json_object **ret_array, char ret_next[SPOOL_ID_LEN + 1])
{
	_cleanup_json_ struct json_object *array = json_object_new_array();
	_cleanup_free_ struct snapshot **found = NULL;
	struct snapshot *n;
	size_t count = 0;

	if (cursor && *cursor && !spool_id_is_valid(cursor))
		return SNAPSHOT_E_STATE;
	TAILQ_FOREACH(n, &s->all, entry)
		count++;
	found = calloc(count + 1, sizeof(*found));
	if (!array || !found)
		return -ENOMEM;
	count = 0;
	/* Ids begin with the time; a cursor holds even if its snapshot is gone by now. */
	TAILQ_FOREACH(n, &s->all, entry)
		if (visible(n, uid, admin) && !(cursor && *cursor && strcmp(n->id, cursor) >= 0))
			found[count++] = n;
	qsort(found, count, sizeof(struct snapshot *), newest_first);
	for (size_t i = 0; i < count && i < limit; i++) {
		struct json_object *o = snapshot_to_json(found[i], false);

		if (!o)
			return -ENOMEM;
		json_append(array, o);
	}
	(void)snprintf(ret_next, SPOOL_ID_LEN + 1, "%s", limit > 0 && count > limit ? found[limit - 1]->id : "");
	*ret_array = take_ptr(array);
	return 0;
}

int snapshot_files(struct snapshot *snapshot, struct json_object **ret)
{
	if (!snapshot->on_disk)
		return SNAPSHOT_E_STATE;
	return spool_files(snapshot->s->c.spool, snapshot->id, ret);
}

int snapshot_open_file(struct snapshot *snapshot, const char *name, int *ret_fd, uint64_t *ret_size)
{
	if (!snapshot->on_disk)
		return SNAPSHOT_E_STATE;
	return spool_open_file(snapshot->s->c.spool, snapshot->id, name, ret_fd, ret_size);
}

/* ---- status */

void snapshots_status(struct snapshots *s, struct json_object *status)
{
	struct json_object *o = json_add_new_object(status, "snapshots"), *spool, *decoder, *losses;
	const struct config *c = s->c.config;
	uint64_t queued = 0, running = 0;
	const struct snapshot *n;

	TAILQ_FOREACH(n, &s->all, entry) {
		if (snapshot_has_ended(n))
			continue;
		if (n->state == SNAPSHOT_QUEUED)
			queued++;
		else
			running++;
	}
	json_add_uint(o, "running", running);
	json_add_uint(o, "queued", queued);
	json_add_uint(o, "done", s->counts[SNAPSHOT_DONE]);
	json_add_uint(o, "failed", s->counts[SNAPSHOT_FAILED]);
	json_add_uint(o, "cancelled", s->counts[SNAPSHOT_CANCELLED]);
	spool = json_add_new_object(status, "spool");
	json_add_uint(spool, "bytes", spool_bytes(s->c.spool));
	json_add_uint(spool, "count", spool_count(s->c.spool));
	json_add_uint(spool, "limit_bytes", c->spool_max_mib * MIB);
	json_add_uint(spool, "evicted", s->evicted);
	decoder = json_add_new_object(status, "decoder");
	json_add_bool(decoder, "available", s->decoder[0]);
	json_add_uint(decoder, "running", s->n_slots);
	json_add_uint(decoder, "dying", decoder_dying_count());
	json_add_uint(decoder, "limit", c->snapshots_running);
	json_add_uint(decoder, "failed", s->decode_failed);
	json_add_uint(decoder, "timeouts", s->timeouts);
	json_add_uint(decoder, "copier_queued", copier_queued(s->c.copier));
	losses = json_get_object(status, "losses");
	if (!losses)
		losses = json_add_new_object(status, "losses");
	json_add_uint(losses, "snapshots_no_space", s->no_space);
	json_add_uint(losses, "snapshots_undecoded", s->decode_failed);
	json_add_uint(losses, "snapshots_cut", s->cut);
	json_add_uint(losses, "snapshots_without_recording", s->lacking);
}

bool snapshots_healthy(struct snapshots *s, uint64_t limit_ns)
{
	const struct snapshot *n;

	TAILQ_FOREACH(n, &s->all, entry)
		if (!snapshot_has_ended(n) && n->state != SNAPSHOT_DECODING && n->deadline &&
		    !evtimer_pending(n->deadline, NULL))
			return false;
	return copier_stuck_ns(s->c.copier) < limit_ns;
}
