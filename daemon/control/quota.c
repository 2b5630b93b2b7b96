// SPDX-License-Identifier: Apache-2.0
/*
 * Sums per uid. A user exists as long as it has a charge; the list is as short as there are such
 * users.
 */
#include "daemon/control/quota.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "daemon/config.h"

struct quota_user {
	LIST_ENTRY(quota_user) entry;
	struct quota *quota; /* not owned */
	uid_t uid;
	unsigned int charges;
	uint64_t used[_QUOTA_MAX];
};

static const char *const names[_QUOTA_MAX] = {
	[QUOTA_CONNECTIONS] = "connections",
	[QUOTA_TARGETS] = "targets",
	[QUOTA_STEPPERS] = "steppers",
	[QUOTA_TRIGGERS] = "triggers",
	[QUOTA_RING_BYTES] = "ring_bytes",
	[QUOTA_FDS] = "fds",
	[QUOTA_SNAPSHOTS_RUNNING] = "snapshots_running",
	[QUOTA_SNAPSHOTS_QUEUED] = "snapshots_queued",
	[QUOTA_SPOOL_BYTES] = "spool_bytes",
	[QUOTA_PRODUCERS] = "producers",
	[QUOTA_EVENT_BYTES] = "event_bytes",
	[QUOTA_IMAGE_BYTES] = "image_bytes",
};

void quota_init(struct quota *q, const struct config *config)
{
	memset(q, 0, sizeof(*q));
	LIST_INIT(&q->users);
	q->exempt = geteuid();
	q->limits[QUOTA_CONNECTIONS] = config->uid_connections;
	q->limits[QUOTA_TARGETS] = config->uid_targets;
	q->limits[QUOTA_STEPPERS] = config->uid_steppers;
	q->limits[QUOTA_TRIGGERS] = config->uid_triggers;
	q->limits[QUOTA_RING_BYTES] = (uint64_t)config->uid_ring_mib << 20;
	q->limits[QUOTA_FDS] = config->uid_fds;
	q->limits[QUOTA_SNAPSHOTS_RUNNING] = config->uid_snapshots_running;
	q->limits[QUOTA_SNAPSHOTS_QUEUED] = config->uid_snapshots_queued;
	q->limits[QUOTA_SPOOL_BYTES] = (uint64_t)config->uid_spool_mib << 20;
	q->limits[QUOTA_PRODUCERS] = config->uid_producers;
	q->limits[QUOTA_EVENT_BYTES] = (uint64_t)config->uid_event_mib << 20;
	q->limits[QUOTA_IMAGE_BYTES] = (uint64_t)config->uid_image_mib << 20;
}

void quota_fini(struct quota *q)
{
	assert(LIST_EMPTY(&q->users));
}

static struct quota_user *user_find(const struct quota *q, uid_t uid)
{
	struct quota_user *u;

	LIST_FOREACH(u, &q->users, entry)
		if (u->uid == uid)
			return u;
	return NULL;
}

static struct quota_user *user_get(struct quota *q, uid_t uid)
{
	struct quota_user *u = user_find(q, uid);

	if (u)
		return u;
	u = calloc(1, sizeof(*u));
	if (!u)
		return NULL;
	u->quota = q;
	u->uid = uid;
	LIST_INSERT_HEAD(&q->users, u, entry);
	return u;
}

bool quota_is_limited(const struct quota *q, uid_t uid)
{
	return uid != 0 && uid != q->exempt;
}

static int charge(struct quota *q, uid_t uid, enum quota_kind kind, uint64_t amount, bool forced,
		  struct quota_charge *c)
{
	struct quota_user *u;
	uint64_t used = quota_used(q, uid, kind), sum;
	bool limited = !forced && quota_is_limited(q, uid);

	assert(!c->user);
	if (__builtin_add_overflow(used, amount, &sum) || (limited && sum > q->limits[kind])) {
		q->refused++;
		return QUOTA_E_EXCEEDED;
	}
	u = user_get(q, uid);
	if (!u)
		return -ENOMEM;
	u->used[kind] = sum;
	u->charges++;
	q->totals[kind] += amount;
	*c = (struct quota_charge){.user = u, .kind = kind, .amount = amount};
	return 0;
}

int quota_charge(struct quota *q, uid_t uid, enum quota_kind kind, uint64_t amount,
		 struct quota_charge *c)
{
	return charge(q, uid, kind, amount, false, c);
}

int quota_charge_forced(struct quota *q, uid_t uid, enum quota_kind kind, uint64_t amount,
			struct quota_charge *c)
{
	return charge(q, uid, kind, amount, true, c);
}

void quota_resize(struct quota_charge *c, uint64_t amount)
{
	struct quota_user *u = c->user;

	if (!u)
		return;
	assert(u->used[c->kind] >= c->amount);
	u->used[c->kind] = u->used[c->kind] - c->amount + amount;
	u->quota->totals[c->kind] = u->quota->totals[c->kind] - c->amount + amount;
	c->amount = amount;
}

void quota_release(struct quota_charge *c)
{
	struct quota_user *u = c->user;

	if (!u)
		return;
	assert(u->used[c->kind] >= c->amount && u->charges > 0);
	u->used[c->kind] -= c->amount;
	u->quota->totals[c->kind] -= c->amount;
	if (--u->charges == 0) {
		LIST_REMOVE(u, entry);
		free(u);
	}
	*c = (struct quota_charge){0};
}

uint64_t quota_used(const struct quota *q, uid_t uid, enum quota_kind kind)
{
	const struct quota_user *u = user_find(q, uid);

	return u ? u->used[kind] : 0;
}

uint64_t quota_left(const struct quota *q, uid_t uid, enum quota_kind kind)
{
	const uint64_t used = quota_used(q, uid, kind);

	if (!quota_is_limited(q, uid))
		return UINT64_MAX;
	return used < q->limits[kind] ? q->limits[kind] - used : 0;
}

const char *quota_kind_name(enum quota_kind kind)
{
	return kind < _QUOTA_MAX ? names[kind] : "?";
}

struct json_object *quota_to_json(const struct quota *q)
{
	struct json_object *o = json_object_new_object();

	for (int i = 0; i < _QUOTA_MAX; i++) {
		struct json_object *k = json_add_new_object(o, names[i]);

		json_add_uint(k, "used", q->totals[i]);
		json_add_uint(k, "limit", q->limits[i]);
	}
	json_add_uint(o, "refused", q->refused);
	return o;
}
