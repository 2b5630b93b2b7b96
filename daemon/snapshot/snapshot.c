// SPDX-License-Identifier: Apache-2.0
/*
 * Snapshots as clients see them: found, listed, waited for, cancelled, deleted, fetched; and what
 * status counts.
 */
#include "daemon/snapshot/snapshot_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/escape.h"
#include "common/base/io.h"
#include "common/base/log.h"
#include "common/base/wall_clock.h"
#include "common/control/json.h"
#include "common/decoder/dying.h"

#define MIB (1024ULL * 1024)
#define EXPIRE_EVERY_S 600

/* ---- one */

void snapshot_free(struct snapshot *n)
{
	if (!n)
		return;
	TAILQ_REMOVE(&n->s->all, n, entry);
	snapshot_release(n);
	json_object_put(n->summary);
	json_object_put(n->stored);
	free(n);
}

struct snapshot *snapshot_new(struct snapshots *s, const char *id)
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

/* ---- all */

struct snapshot *snapshots_find_id(struct snapshots *s, const char *id)
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
	struct snapshot *n = snapshots_find_id(s, item->id);

	log_info("snapshot %s: removed (%s)", item->id, why);
	if (strcmp(why, "deleted"))
		s->evicted++;
	if (!n)
		return;
	n->on_disk = false;
	n->deleted = true;
	snapshots_schedule(s);
}

static void on_expire(evutil_socket_t fd, short what, void *arg)
{
	struct snapshots *s = arg;

	if (spool_expire(s->c.spool, wall_clock_ns(), 0) > 0)
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

int snapshots_new(const struct snapshots_context *context, struct snapshots **ret)
{
	const struct timeval every = {.tv_sec = EXPIRE_EVERY_S};
	_cleanup_(snapshots_freep) struct snapshots *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->c = *context;
	TAILQ_INIT(&s->all);
	if (!s->c.remembered)
		s->c.remembered = SNAPSHOTS_REMEMBERED;
	r = decoder_find(s->c.config->decoder, s->decoder, sizeof(s->decoder));
	if (r < 0) {
		log_warning("cannot find tracerd-decode (%s); snapshots are kept without a trace",
			    strerror(-r));
		s->decoder[0] = '\0';
	}
	s->expire = event_new(s->c.base, -1, EV_PERSIST, on_expire, s);
	if (snapshots_schedule_init(s) < 0 || snapshots_purge_init(s) < 0 || !s->expire ||
	    event_add(s->expire, &every) < 0)
		return -ENOMEM;
	r = load(s);
	if (r < 0)
		return r;
	spool_set_removed(s->c.spool, on_removed, s);
	(void)spool_expire(s->c.spool, wall_clock_ns(), 0);
	snapshots_purge(s); /* of an earlier run, too */
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
	snapshots_purge_fini(s);
	if (s->schedule)
		event_free(s->schedule);
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

/* ---- for clients */

static bool visible(const struct snapshot *n, uid_t uid, bool admin)
{
	return !n->deleted && (admin || n->uid == uid);
}

int snapshots_find(struct snapshots *s, const char *id, uid_t uid, bool admin,
		   struct snapshot **ret)
{
	struct snapshot *n = snapshots_find_id(s, id);

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
	snapshots_schedule(s);
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
	(void)snprintf(ret_next, SPOOL_ID_LEN + 1, "%s",
		       limit > 0 && count > limit ? found[limit - 1]->id : "");
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
	json_add_uint(losses, "snapshots_not_set_aside", s->not_aside);
	json_add_uint(losses, "go_traces", s->go_lost);
}

bool snapshots_healthy(struct snapshots *s, uint64_t limit_ns)
{
	const struct snapshot *n;

	TAILQ_FOREACH(n, &s->all, entry)
		if (!snapshot_has_ended(n) && n->state != SNAPSHOT_DECODING && !n->stopped &&
		    n->deadline && !evtimer_pending(n->deadline, NULL))
			return false;
	return copier_stuck_ns(s->c.copier) < limit_ns && copier_stuck_ns(s->c.hurry) < limit_ns;
}
