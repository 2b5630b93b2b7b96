// SPDX-License-Identifier: Apache-2.0
/* Events to the subscribers that may see them. */
#include "daemon/control/subscribers.h"

#include <assert.h>
#include <errno.h>

#include "common/control/protocol.h"

struct subscriber {
	LIST_ENTRY(subscriber) entry;
	struct hub *hub; /* not owned */
	uid_t uid;
	bool admin;
	uint64_t mask;
	uint64_t seq, missed;
	subscriber_deliver deliver;
	void *arg;
};

struct hub {
	LIST_HEAD(, subscriber) subscribers;
	void (*changed)(void *arg);
	void *changed_arg;
	struct hub_stats stats;
};

int hub_new(struct hub **ret)
{
	struct hub *h = calloc(1, sizeof(*h));

	if (!h)
		return -ENOMEM;
	LIST_INIT(&h->subscribers);
	*ret = h;
	return 0;
}

struct hub *hub_free(struct hub *h)
{
	if (!h)
		return NULL;
	assert(LIST_EMPTY(&h->subscribers));
	free(h);
	return NULL;
}

static void deliver(struct hub *h, struct subscriber *s, const char *event,
		    struct json_object *data)
{
	_cleanup_json_ struct json_object *message = NULL;

	s->seq++;
	message = protocol_event(event, s->seq, s->missed, json_object_get(data));
	if (message && s->deliver(s->arg, message)) {
		s->missed = 0;
		h->stats.delivered++;
	} else {
		s->missed++;
		h->stats.missed++;
	}
}

void hub_emit(struct hub *h, const char *event, uid_t owner, struct json_object *data)
{
	int i = protocol_event_find(event);
	struct subscriber *s;

	assert(i >= 0);
	h->stats.emitted++;
	if (h->changed)
		h->changed(h->changed_arg);
	LIST_FOREACH(s, &h->subscribers, entry)
		if ((s->mask >> i & 1) && (s->admin || s->uid == owner || owner == HUB_EVERYBODY))
			deliver(h, s, event, data);
	json_object_put(data);
}

void hub_watch(struct hub *h, void (*changed)(void *arg), void *arg)
{
	h->changed = changed;
	h->changed_arg = arg;
}

int subscriber_new(struct hub *h, uid_t uid, bool admin, uint64_t mask, subscriber_deliver fn,
		   void *arg, struct subscriber **ret)
{
	struct subscriber *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->hub = h;
	s->uid = uid;
	s->admin = admin;
	s->mask = mask;
	s->deliver = fn;
	s->arg = arg;
	LIST_INSERT_HEAD(&h->subscribers, s, entry);
	h->stats.subscribers++;
	*ret = s;
	return 0;
}

struct subscriber *subscriber_free(struct subscriber *s)
{
	if (!s)
		return NULL;
	LIST_REMOVE(s, entry);
	s->hub->stats.subscribers--;
	free(s);
	return NULL;
}

void hub_get_stats(const struct hub *h, struct hub_stats *ret)
{
	*ret = h->stats;
}
