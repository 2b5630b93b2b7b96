// SPDX-License-Identifier: Apache-2.0
/*
 * Creating a snapshot: what may refuse one (quota, queue, room in the spool), and its first state.
 */
#include "daemon/snapshot/snapshot_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/escape.h"
#include "common/base/log.h"
#include "common/base/raw_clock.h"
#include "common/base/wall_clock.h"
#include "common/control/json.h"
#include "daemon/backend/capture.h"
#include "daemon/base/refusal.h"
#include "daemon/target/target.h"

#define MIB (1024ULL * 1024)
/* What a bundle is at most beside the rings: history, meta.json, the trace of a short look-back. */
#define ROOM_BESIDE_RINGS MIB
#define ASKED_AGO_MAX_NS 600000000000u

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
	struct snapshot *n = arg;

	n->s->timeouts++;
	if (snapshot_happens(n, SNAPSHOT_DEADLINE) < 0)
		log_debug("snapshot %s: its deadline has no effect", n->id);
}

/*
 * How much the spool may be asked to hold: what the rings and the programs' own have, at most what
 * one bundle may be.
 */
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
	return (ring + ROOM_BESIDE_RINGS < max ? ring + ROOM_BESIDE_RINGS : max) +
	       (memory < max ? memory : max);
}

static int check_room(struct snapshots *s, struct target *target, uid_t owner, char *why,
		      size_t why_size)
{
	size_t before = spool_count(s->c.spool);
	int r;

	r = spool_make_room(s->c.spool, owner, estimate(s, target));
	if (spool_count(s->c.spool) < before)
		snapshots_purge(s); /* before the copy */
	switch (r) {
	case SPOOL_E_QUOTA:
		return refusal(
			why, why_size, SNAPSHOT_E_QUOTA,
			"the snapshot would exceed this user's share of the spool (uid_spool_mib); a removed snapshot counts until "
			"its files are closed");
	case SPOOL_E_NO_SPACE:
		s->no_space++;
		return refusal(why, why_size, SNAPSHOT_E_NO_SPACE,
			       "the file system of the spool is too full");
	default:
		return r;
	}
}

/* Who asks says when. Who is elsewhere, or at another time, is not believed. */
static uint64_t asked_ns(const struct snapshot_request *request)
{
	const uint64_t now = clock_raw_ns(), asked = request->asked_raw_ns;

	return asked && asked <= now && now - asked <= ASKED_AGO_MAX_NS ? asked : now;
}

/* Takes over the charge and the recording, if it is frozen already. */
static int create(struct snapshots *s, struct target *target,
		  const struct snapshot_request *request, uint64_t now_ns,
		  struct quota_charge *queued, struct frozen **frozen, struct snapshot **ret,
		  char *why, size_t why_size)
{
	char id[SPOOL_ID_LEN + 1];
	struct snapshot *n;
	int r;

	do
		spool_new_id(s->c.spool, id);
	while (snapshots_find_id(s, id));
	n = snapshot_new(s, id);
	if (!n)
		return -ENOMEM;
	n->frozen = take_ptr(*frozen);
	n->queued = *queued;
	*queued = (struct quota_charge){0};
	n->creator = request->uid;
	n->uid = request->admin ? 0 : request->uid;
	n->admin = request->admin;
	n->with_objects = request->with_objects;
	n->created_ns = now_ns;
	n->asked_raw_ns = asked_ns(request);
	n->target_id = target_id(target);
	n->pid = target_pid(target);
	(void)snprintf(n->target, sizeof(n->target), "%s", target_name(target));
	(void)escape_text(n->comm, sizeof(n->comm), target_comm(target),
			  strlen(target_comm(target)));
	(void)escape_text(n->unit, sizeof(n->unit), target_unit(target),
			  strlen(target_unit(target)));
	if (request->cause)
		cause_copy(&n->cause, request->cause);
	else
		cause_client(&n->cause, request->uid, request->reason ? request->reason : "");
	n->deadline = evtimer_new(s->c.base, on_deadline, n);
	r = n->deadline ? objects_new(request->with_objects, &n->objects) : -ENOMEM;
	if (r == 0)
		r = build_ids_new(&n->build_ids);
	/* The last check, because it removes old snapshots to make room. */
	if (r == 0)
		r = check_room(s, target, n->uid, why, why_size);
	if (r != 0) {
		snapshot_free(n);
		return r;
	}
	*ret = n;
	return 0;
}

int snapshots_create(struct snapshots *s, struct target *target,
		     const struct snapshot_request *request, snapshot_done_fn done, void *arg,
		     struct snapshot **ret, char *why, size_t why_size)
{
	struct quota_charge queued = {0};
	struct frozen *frozen = NULL;
	struct snapshot *n;
	uint64_t now_ns;
	int r;

	if (s->stopping)
		return refusal(why, why_size, SNAPSHOT_E_BUSY, "tracerd is stopping");
	if (request->reason && strlen(request->reason) > SNAPSHOT_MAX_REASON)
		return -EINVAL;
	/* of all users: each that waits has such a charge, and nothing else has one */
	if (s->c.quota->totals[QUOTA_SNAPSHOTS_QUEUED] >= s->c.config->snapshots_queued)
		return refusal(why, why_size, SNAPSHOT_E_BUSY,
			       "too many snapshots wait already (snapshots_queued)");
	r = quota_charge(s->c.quota, request->uid, QUOTA_SNAPSHOTS_QUEUED, 1, &queued);
	if (r > 0)
		return refusal(
			why, why_size, SNAPSHOT_E_QUOTA,
			"too many snapshots of this user wait already (uid_snapshots_queued)");
	if (r < 0)
		return r;
	/*
	 * Now, not at the loop's next turn or after a file system has answered: the rings forget
	 * with each millisecond.
	 */
	now_ns = wall_clock_ns();
	if (target_freeze(target, request->admin, &frozen) < 0)
		frozen = NULL; /* tried again, and the error reported, by the scheduler */
	r = create(s, target, request, now_ns, &queued, &frozen, &n, why, why_size);
	(void)frozen_free(frozen);
	quota_release(&queued);
	if (r != 0)
		return r;
	n->done = done;
	n->done_arg = arg;
	snapshot_begin(n);
	snapshots_schedule(s);
	*ret = n;
	return 0;
}
