// SPDX-License-Identifier: Apache-2.0
/*
 * The rule of retention: which snapshot is removed first. A pure function, which room.c applies. A
 * removed one that a client holds still counts for its owner; one that nobody holds counts no more.
 */
#include "daemon/snapshot/spool.h"
#include "daemon/snapshot/spool_internal.h"

struct holder {
	uid_t owner;
	uint64_t bytes;
	size_t n;
};

static struct holder sum_of(const struct spool_item *const *items, size_t n, uid_t owner)
{
	struct holder h = {.owner = owner};

	for (size_t i = 0; i < n; i++)
		if (items[i]->owner == owner && items[i]->state != SPOOL_LEAVING) {
			h.bytes += items[i]->bytes;
			h.n += items[i]->state == SPOOL_KEPT;
		}
	return h;
}

static ssize_t oldest_of(const struct spool_item *const *items, size_t n, uid_t owner)
{
	for (size_t i = 0; i < n; i++)
		if (items[i]->owner == owner && items[i]->state == SPOOL_KEPT)
			return (ssize_t)i;
	return -1;
}

/*
 * The oldest of the owner who holds most, so that nobody's few snapshots go for another's many.
 * What comes in counts for its owner. O(n^2) over at most max_count items, and only where something
 * has to go.
 */
static ssize_t oldest_of_greatest(const struct spool_item *const *items, size_t n, uid_t owner,
				  uint64_t incoming, bool by_count)
{
	uint64_t most = 0;
	ssize_t best = -1;

	for (size_t i = 0; i < n; i++) {
		struct holder h;
		uint64_t value;

		if (items[i]->state != SPOOL_KEPT || oldest_of(items, i, items[i]->owner) >= 0)
			continue; /* this owner was looked at, or cannot give this one */
		h = sum_of(items, n, items[i]->owner);
		value = by_count ? h.n + (h.owner == owner && incoming > 0) :
				   h.bytes + (h.owner == owner ? incoming : 0);
		if (best < 0 || value > most) {
			most = value;
			best = (ssize_t)i;
		}
	}
	return best;
}

bool spool_is_exempt(const struct spool_limits *limits, uid_t uid)
{
	return uid == 0 || uid == limits->exempt;
}

bool spool_short_of_disk(const struct spool_limits *limits, const struct spool_usage *usage,
			 uint64_t incoming)
{
	uint64_t keep = usage->total_bytes / 100 * limits->keep_free_percent;

	/* `keep` may have been gone before we came: then only what comes in counts */
	return usage->free_bytes < incoming || usage->free_bytes - incoming < keep;
}

ssize_t spool_pick_victim(const struct spool_item *const *items, size_t n,
			  const struct spool_limits *limits, const struct spool_usage *usage,
			  uid_t owner, uint64_t incoming)
{
	struct holder own = sum_of(items, n, owner);
	ssize_t oldest = -1;
	uint64_t total = 0;
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		total += items[i]->state == SPOOL_LEAVING ? 0 : items[i]->bytes;
		kept += items[i]->state == SPOOL_KEPT;
		if (oldest < 0 && items[i]->state == SPOOL_KEPT)
			oldest = (ssize_t)i;
	}
	if (oldest >= 0 && limits->max_age_ns &&
	    items[oldest]->published_ns + limits->max_age_ns <= usage->now_ns)
		return oldest;
	if (limits->uid_bytes && !spool_is_exempt(limits, owner) &&
	    own.bytes + incoming > limits->uid_bytes && (incoming > 0 || own.n > 1))
		return oldest_of(items, n, owner);
	if (limits->max_count && kept + (incoming > 0) > limits->max_count)
		return oldest_of_greatest(items, n, owner, incoming, true);
	if (limits->max_bytes && total + incoming > limits->max_bytes)
		return oldest_of_greatest(items, n, owner, incoming, false);
	if (limits->keep_free_percent && spool_short_of_disk(limits, usage, incoming))
		return oldest_of_greatest(items, n, owner, incoming, false);
	return -1;
}
