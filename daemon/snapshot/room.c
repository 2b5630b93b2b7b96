// SPDX-License-Identifier: Apache-2.0
/*
 * Room in the spool: removes snapshots by the rule of retention.c until a new one fits, or reports
 * why none can.
 */
#include "daemon/snapshot/spool_internal.h"

#include <stdio.h>

#include "common/base/safefile.h"
#include "common/base/wall_clock.h"

static int usage_read(const struct spool *s, uint64_t now_ns, struct spool_usage *ret)
{
	int r;

	ret->now_ns = now_ns;
	r = safefile_space(s->dir_fd, &ret->free_bytes, &ret->total_bytes);
	ret->free_bytes += spool_sum_bytes(s, SPOOL_STATE(SPOOL_LEAVING));
	return r;
}

static unsigned evict(struct spool *s, uint64_t now_ns, uid_t owner, uint64_t incoming)
{
	struct spool_usage usage;
	unsigned n = 0;

	while (usage_read(s, now_ns, &usage) == 0) {
		ssize_t i = spool_pick_victim((const struct spool_item *const *)s->items,
					      s->n_items, &s->limits, &usage, owner, incoming);
		char id[SPOOL_ID_LEN + 1];

		if (i < 0)
			break;
		(void)snprintf(id, sizeof(id), "%s", s->items[i]->id);
		if (spool_remove(s, id, "retention") < 0)
			break;
		n++;
	}
	return n;
}

unsigned spool_expire(struct spool *s, uint64_t now_ns, uid_t owner)
{
	return evict(s, now_ns, owner, 0);
}

static bool is_over(uint64_t limit, uint64_t used, uint64_t bytes)
{
	return limit && (used > limit || bytes > limit - used);
}

/* Of the owner's share, by what is in one of the states, and `bytes`. */
static bool is_over_share(const struct spool *s, uid_t owner, unsigned states, uint64_t bytes)
{
	uint64_t used = 0;

	if (spool_is_exempt(&s->limits, owner))
		return false;
	for (size_t i = 0; i < s->n_items; i++)
		if (s->items[i]->owner == owner && states & SPOOL_STATE(s->items[i]->state))
			used += s->items[i]->bytes;
	return is_over(s->limits.uid_bytes, used, bytes);
}

int spool_make_room(struct spool *s, uid_t owner, uint64_t bytes)
{
	const struct spool_limits *l = &s->limits;
	struct spool_usage usage;
	int r;

	/* Nothing is removed for what cannot fit anyway. */
	if (is_over_share(s, owner, SPOOL_STATE(SPOOL_HELD), bytes))
		return SPOOL_E_QUOTA;
	r = usage_read(s, 0, &usage);
	if (r < 0)
		return r;
	usage.free_bytes += spool_sum_bytes(s, SPOOL_STATE(SPOOL_KEPT));
	if (is_over(l->max_bytes, spool_sum_bytes(s, SPOOL_STATE(SPOOL_HELD)), bytes) ||
	    spool_short_of_disk(l, &usage, bytes))
		return SPOOL_E_NO_SPACE;
	(void)evict(s, wall_clock_ns(), owner, bytes);
	/* what went may still be held */
	if (is_over_share(s, owner, SPOOL_STATE(SPOOL_KEPT) | SPOOL_STATE(SPOOL_HELD), bytes))
		return SPOOL_E_QUOTA;
	r = usage_read(s, 0, &usage);
	if (r < 0)
		return r;
	if (is_over(l->max_bytes,
		    spool_sum_bytes(s, SPOOL_STATE(SPOOL_KEPT) | SPOOL_STATE(SPOOL_HELD)), bytes) ||
	    spool_short_of_disk(l, &usage, bytes))
		return SPOOL_E_NO_SPACE;
	return 0;
}
