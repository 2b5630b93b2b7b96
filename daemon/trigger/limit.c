// SPDX-License-Identifier: Apache-2.0
#include "daemon/trigger/limit.h"

#include <string.h>

#define MINUTE_NS 60000000000ULL
/*
 * The producer keeps the same cooldown by its own clock, whose rate is known to some parts in a
 * million, and reports the first hit after it. If that hit came a hair too early for this clock, it
 * would cost a whole second cooldown.
 */
#define TOLERANCE 256

static void move_to(struct trigger_limit *limit, uint64_t now_ns)
{
	uint64_t minute = now_ns / MINUTE_NS;

	if (minute <= limit->minute)
		return;
	if (minute - limit->minute >= TRIGGER_LIMIT_MINUTES) {
		memset(limit->minutes, 0, sizeof(limit->minutes));
		limit->minute = minute;
	}
	while (limit->minute < minute)
		limit->minutes[++limit->minute % TRIGGER_LIMIT_MINUTES] = 0;
}

static uint64_t in_last_hour(const struct trigger_limit *limit)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < TRIGGER_LIMIT_MINUTES; i++)
		sum += limit->minutes[i];
	return sum;
}

enum trigger_limit_answer trigger_limit_check(struct trigger_limit *limit, uint64_t now_ns,
					      uint64_t cooldown_ns, uint32_t max_per_hour)
{
	uint64_t since = now_ns > limit->last_ns ? now_ns - limit->last_ns : 0;

	if (limit->started && since < cooldown_ns - cooldown_ns / TOLERANCE)
		return TRIGGER_LIMIT_COOLDOWN;
	move_to(limit, now_ns);
	if (max_per_hour > 0 && in_last_hour(limit) >= max_per_hour)
		return TRIGGER_LIMIT_PER_HOUR;
	return TRIGGER_LIMIT_PASS;
}

void trigger_limit_tried(struct trigger_limit *limit, uint64_t now_ns)
{
	limit->started = true;
	if (now_ns > limit->last_ns)
		limit->last_ns = now_ns;
}

void trigger_limit_count(struct trigger_limit *limit, uint64_t now_ns)
{
	move_to(limit, now_ns);
	limit->minutes[limit->minute % TRIGGER_LIMIT_MINUTES]++;
}
