/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hub: modules emit events, subscribed connections get those that their user may see.
 *
 * An event belongs to a uid; that user and administrators see it. The events for one subscriber are
 * numbered ("seq", from 1). If its queue is full an event is dropped for that subscriber only, and
 * counted in "missed" of the next one. Emitting never blocks and never fails.
 *
 * Knows connections only through the deliver callback.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "common/control/json.h"

struct hub;
struct subscriber;

int hub_new(struct hub **ret) _must_check_;
/* There must be no subscribers left. NULL is fine. */
struct hub *hub_free(struct hub *h);

#define HUB_EVERYBODY ((uid_t)-1) /* as the owner of what concerns all */

/*
 * `event` is one of protocol_events[]; `data` is taken over. Without memory (NULL, too) it counts
 * as missed.
 */
void hub_emit(struct hub *h, const char *event, uid_t owner, struct json_object *data);

/* Called at each emit, with nothing of the event. NULL: not called. */
void hub_watch(struct hub *h, void (*changed)(void *arg), void *arg);

/* Delivers one message; false: no room, counts as missed. Must not free the subscriber. */
typedef bool (*subscriber_deliver)(void *arg, struct json_object *message /* borrowed */);

/* `mask`: bit i is protocol_events[i]. */
int subscriber_new(struct hub *h, uid_t uid, bool admin, uint64_t mask, subscriber_deliver deliver,
		   void *arg, struct subscriber **ret) _must_check_;
struct subscriber *subscriber_free(struct subscriber *s);

struct hub_stats {
	uint64_t emitted, delivered, missed;
	unsigned int subscribers;
};
void hub_get_stats(const struct hub *h, struct hub_stats *ret);
