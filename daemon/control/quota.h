/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each uid may hold, as objects: a charge is embedded in the struct that it pays for and is
 * released with it, so a refund cannot be forgotten. A user without charges is freed.
 *
 * Knows uids and sums, not what is paid for. uid 0 and the daemon's own uid are counted like the
 * others but refused nothing here: for them the limits of the whole daemon hold.
 */
#pragma once

#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "common/control/json.h"

struct config;

enum quota_kind {
	QUOTA_CONNECTIONS,
	QUOTA_TARGETS,
	QUOTA_STEPPERS,
	QUOTA_TRIGGERS,
	QUOTA_RING_BYTES,
	QUOTA_FDS,
	QUOTA_SNAPSHOTS_RUNNING,
	QUOTA_SNAPSHOTS_QUEUED,
	QUOTA_SPOOL_BYTES,
	QUOTA_PRODUCERS,
	QUOTA_EVENT_BYTES,
	QUOTA_IMAGE_BYTES,
	_QUOTA_MAX,
};

enum { QUOTA_E_EXCEEDED = 1 };

struct quota_user;

struct quota_charge { /* {0}: nothing charged */
	struct quota_user *user;
	enum quota_kind kind;
	uint64_t amount;
};

struct quota {
	LIST_HEAD(, quota_user) users;
	uint64_t limits[_QUOTA_MAX];
	uint64_t totals[_QUOTA_MAX];
	uid_t exempt; /* our own uid */
	uint64_t refused;
};

void quota_init(struct quota *q, const struct config *config);
/* Every charge must be released before. */
void quota_fini(struct quota *q);

/* 0, QUOTA_E_EXCEEDED, -ENOMEM. `c` must be empty; it is written on success only. */
int quota_charge(struct quota *q, uid_t uid, enum quota_kind kind, uint64_t amount,
		 struct quota_charge *c) _must_check_;
/* Charges what was there already before a restart: never refused. 0, -ENOMEM. */
int quota_charge_forced(struct quota *q, uid_t uid, enum quota_kind kind, uint64_t amount,
			struct quota_charge *c) _must_check_;
/* What is charged came out at another amount: never refused. A no-op for {0}. */
void quota_resize(struct quota_charge *c, uint64_t amount);
/* Idempotent, and a no-op for {0}. */
void quota_release(struct quota_charge *c);
uint64_t quota_used(const struct quota *q, uid_t uid, enum quota_kind kind);
/* Root, and our own user, are not. */
bool quota_is_limited(const struct quota *q, uid_t uid);
/* What may still be charged; UINT64_MAX: no limit. */
uint64_t quota_left(const struct quota *q, uid_t uid, enum quota_kind kind);
const char *quota_kind_name(enum quota_kind kind);
/* {"connections":{"limit":..,"used":..}, ...}: the totals over all users, the limit of each. */
struct json_object *quota_to_json(const struct quota *q);
