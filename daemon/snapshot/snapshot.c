// SPDX-License-Identifier: Apache-2.0
/* Snapshots as clients see them: created, found, listed, waited for, cancelled, deleted, fetched. */
#include "daemon/snapshot/snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/escape.h"
#include "common/base/io.h"
#include "common/base/log.h"
#include "common/control/json.h"
#include "common/decoder/dying.h"
#include "daemon/snapshot/snapshot_internal.h"
#include "daemon/target/target.h"

#define MIB (1024ULL * 1024)
#define EXPIRE_EVERY_S 600
/* How soon a removed one that somebody holds is looked at again. */
#define PURGE_EVERY_S 1
/* What a bundle is at most beside the rings: history, meta.json, the trace of a short look-back. */
#define ROOM_BESIDE_RINGS MIB

/* ---- one */

static void snapshot_free(struct snapshot *n)
{
	if (!n)
		return;
	TAILQ_REMOVE(&n->s->all, n, entry);
	snapshot_release(n);
	json_object_put(n->summary);
	json_object_put(n->stored);
	free(n);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
	struct snapshot *n = arg;

	n->s->timeouts++;
	if (snapshot_happens(n, SNAPSHOT_DEADLINE) < 0)
		log_debug("snapshot %s: its deadline has no effect", n->id);
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

/* ---- what follows */

/* Each is called once, and may create or forget, but frees nothing. */
static void call_waiters(struct snapshots *s)
{
	struct snapshot *n;

	TAILQ_FOREACH(n, &s->all, entry) {
		snapshot_done_fn done = n->done;

		if (!done || !snapshot_has_ended(n))
			continue;
		n->done = NULL;
		done(n, n->done_arg);
	}
}

/* Of those that left nothing the youngest are remembered for a while, so that their error can be asked for. */
static void forget_oldest(struct snapshots *s)
{
	unsigned remembered = 0;
	struct snapshot *n;

	TAILQ_FOREACH_REVERSE(n, &s->all, snapshot_list, entry)
		if (snapshot_has_ended(n) && !n->on_disk && !n->deleted && ++remembered > s->c.remembered)
			n->deleted = true;
}

static void free_deleted(struct snapshots *s)
{
	struct snapshot *n, *next;

	for (n = TAILQ_FIRST(&s->all); n; n = next) {
		next = TAILQ_NEXT(n, entry);
		if (n->deleted && !n->deadline)
			snapshot_free(n);
	}
}

static void on_work(evutil_socket_t fd, short what, void *arg)
{
	struct snapshots *s = arg;

	snapshots_clean_up(s);
	call_waiters(s);
	forget_oldest(s);
	free_deleted(s);
	snapshots_pump(s);
}

void snapshots_kick(struct snapshots *s)
{
	event_active(s->work, EV_TIMEOUT, 0);
}

/* ---- the spool's side */

/* One purge on its way over the copier. */
struct purge {
	LIST_ENTRY(purge) entry;
	struct copier_job job;
	struct snapshots *s; /* not owned */
	struct spool_purge *trees;
};

static void purge_free(struct purge *p)
{
	LIST_REMOVE(p, entry);
	spool_purge_end(p->trees);
	free(p);
}

static void purge_run(struct copier_job *job)
{
	struct purge *p = (struct purge *)((char *)job - offsetof(struct purge, job));

	spool_purge_run(p->trees);
}

static void purge_done(struct copier_job *job)
{
	struct purge *p = (struct purge *)((char *)job - offsetof(struct purge, job));

	purge_free(p);
}

void snapshots_purge(struct snapshots *s)
{
	const struct timeval again = {.tv_sec = PURGE_EVERY_S};
	struct purge *p = calloc(1, sizeof(*p));
	uint64_t bytes;

	/* also for what this one leaves or cannot begin */
	if (spool_removing(s->c.spool, &bytes) > 0)
		(void)evtimer_add(s->purge_again, &again);
	if (p)
		p->trees = spool_purge_begin(s->c.spool);
	if (!p || !p->trees) {
		free(p);
		return;
	}
	p->s = s;
	p->job.run = purge_run;
	p->job.done = purge_done;
	LIST_INSERT_HEAD(&s->purges, p, entry);
	copier_submit(s->c.copier, &p->job);
}

static void on_purge_again(evutil_socket_t fd, short what, void *arg)
{
	snapshots_purge(arg);
}

static struct snapshot *find(struct snapshots *s, const char *id)
{
	struct snapshot *n;

	TAILQ_FOREACH(n, &s->all, entry)
		if (!strcmp(n->id, id) && !n->deleted)
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
	if (!n)
		return;
	n->on_disk = false;
	n->deleted = true;
	snapshots_kick(s);
}

static void on_expire(evutil_socket_t fd, short what, void *arg)
{
	struct snapshots *s = arg;

	if (spool_expire(s->c.spool, snapshot_now_ns(), 0) > 0)
		snapshots_purge(s);
}

static int load(struct snapshots *s)
{
	const struct spool_item *item;

	for (size_t i = 0; (item = spool_at(s->c.spool, i)) != NULL; i++) {
		struct snapshot *n = item->state == SPOOL_KEPT ? snapshot_new(s, item->id) : NULL;

		if (item->state != SPOOL_KEPT)
			continue;
		if (!n)
			return -ENOMEM;
		snapshot_from_stored(n, item->info);
		n->uid = item->owner;
		n->bytes = item->bytes;
		n->published_ns = item->published_ns;
		n->on_disk = true;
	}
	return 0;
}

/* ---- all */

int snapshots_new(const struct snapshots_context *context, struct snapshots **ret)
{
	const struct timeval every = {.tv_sec = EXPIRE_EVERY_S};
	_cleanup_(snapshots_freep) struct snapshots *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->c = *context;
	TAILQ_INIT(&s->all);
	LIST_INIT(&s->purges);
	if (!s->c.remembered)
		s->c.remembered = SNAPSHOTS_REMEMBERED;
	r = decoder_find(s->c.config->decoder, s->decoder, sizeof(s->decoder));
	if (r < 0) {
		log_warning("tracerd-decode was not found (%s): snapshots are kept without a trace", strerror(-r));
		s->decoder[0] = '\0';
	}
	s->work = event_new(s->c.base, -1, 0, on_work, s);
	s->purge_again = evtimer_new(s->c.base, on_purge_again, s);
	s->expire = event_new(s->c.base, -1, EV_PERSIST, on_expire, s);
	if (!s->work || !s->purge_again || !s->expire || event_add(s->expire, &every) < 0)
		return -ENOMEM;
	r = load(s);
	if (r < 0)
		return r;
	spool_set_removed(s->c.spool, on_removed, s);
	(void)spool_expire(s->c.spool, snapshot_now_ns(), 0);
	snapshots_purge(s); /* of an earlier run, too */
	*ret = take_ptr(s);
	return 0;
}

void snapshots_free(struct snapshots *s)
{
	struct snapshot *n;
	struct purge *p;

	if (!s)
		return;
	s->stopping = true;
	if (s->c.spool)
		spool_set_removed(s->c.spool, NULL, NULL);
	while ((n = TAILQ_FIRST(&s->all)) != NULL) {
		bundle_build_abort(&n->build); /* the copier is gone: here and now */
		snapshot_free(n);
	}
	while ((p = LIST_FIRST(&s->purges)) != NULL)
		purge_free(p);
	if (s->work)
		event_free(s->work);
	if (s->purge_again)
		event_free(s->purge_again);
	if (s->expire)
		event_free(s->expire);
	free(s);
}

bool snapshots_stop(struct snapshots *s)
{
	struct snapshot *n;
	bool stopped = true;

	s->stopping = true;
	TAILQ_FOREACH(n, &s->all, entry) {
		if (snapshot_happens(n, SNAPSHOT_STOP) < 0)
			log_debug("snapshot %s: the stop has no effect", n->id);
		stopped = stopped && !n->deadline && !n->done;
	}
	return stopped;
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
		snapshots_purge(s); /* in front of the copy */
	switch (r) {
	case SPOOL_E_QUOTA:
		return refuse(SNAPSHOT_E_QUOTA, why, why_size,
			"the snapshot would be larger than what is free of this user's share of the spool; what was removed counts "
			"until nobody has its files open");
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
	snapshots_kick(s);
	*ret = n;
	return 0;
}

/* ---- for clients */

static bool visible(const struct snapshot *n, uid_t uid, bool admin)
{
	return !n->deleted && (admin || n->uid == uid);
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
	return snapshot_happens(snapshot, SNAPSHOT_CANCEL);
}

int snapshot_delete(struct snapshot *snapshot)
{
	return snapshot_happens(snapshot, SNAPSHOT_DELETE);
}

int snapshot_remove(struct snapshot *n)
{
	struct snapshots *s = n->s;
	int r;

	if (n->on_disk) {
		r = spool_remove(s->c.spool, n->id, "deleted"); /* marks it by on_removed() */
		if (r == 0)
			snapshots_purge(s);
		return r;
	}
	n->deleted = true;
	snapshots_kick(s);
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
	uint64_t queued = 0, running = 0, removing_bytes;
	size_t removing = spool_removing(s->c.spool, &removing_bytes);
	const struct snapshot *n;

	TAILQ_FOREACH(n, &s->all, entry) {
		if (snapshot_has_ended(n))
			continue;
		if (n->state == SNAPSHOT_QUEUED || n->state == SNAPSHOT_COPIED)
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
	json_add_uint(spool, "removing", removing);
	json_add_uint(spool, "removing_bytes", removing_bytes);
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
		if (!snapshot_has_ended(n) && n->state != SNAPSHOT_DECODING && !n->stopped && n->deadline &&
		    !evtimer_pending(n->deadline, NULL))
			return false;
	return copier_stuck_ns(s->c.copier) < limit_ns;
}
