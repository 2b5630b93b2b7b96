/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often something may happen: not within a cooldown after the last time, and not more than so
 * often in any hour. Knows no trigger and no clock: times are the caller's, of one clock that does
 * not step.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * An hour and the minute that has begun: what a window of whole minutes holds is never less than
 * the hour's.
 */
#define TRIGGER_LIMIT_MINUTES 61

struct trigger_limit { /* {0}: nothing happened yet */
	bool started;
	uint64_t last_ns;
	uint64_t minute; /* the newest, counted since the clock's zero */
	uint32_t minutes[TRIGGER_LIMIT_MINUTES];
};

enum trigger_limit_answer { TRIGGER_LIMIT_PASS, TRIGGER_LIMIT_COOLDOWN, TRIGGER_LIMIT_PER_HOUR };

/* `max_per_hour` 0: as often as the cooldown lets it. */
enum trigger_limit_answer trigger_limit_check(struct trigger_limit *limit, uint64_t now_ns,
					      uint64_t cooldown_ns, uint32_t max_per_hour);
/* It was tried: the cooldown begins. */
void trigger_limit_tried(struct trigger_limit *limit, uint64_t now_ns);
/* It happened: one more in this hour. */
void trigger_limit_count(struct trigger_limit *limit, uint64_t now_ns);
