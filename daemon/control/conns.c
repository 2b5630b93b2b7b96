// SPDX-License-Identifier: Apache-2.0
/* All clients of the control socket: which are accepted, and which are refused with an error. */
#include "daemon/control/conn_internal.h"

#include <errno.h>
#include <string.h>

#include "common/base/log.h"
#include "daemon/config.h"

/* Best effort: the socket's buffer is empty, so this fits or the peer is gone already. */
static void refuse(int fd, enum protocol_error code, const char *message)
{
	_cleanup_json_ struct json_object *m = protocol_error(false, 0, code, message);
	struct frame_queue q;
	size_t len = 0;
	const char *text = m ? json_text(m, &len) : NULL;

	frame_queue_init(&q);
	if (text && frame_queue_push(&q, text, len, NULL, 0) == 0)
		(void)!frame_queue_flush(&q, fd, SIZE_MAX);
	frame_queue_fini(&q);
}

void conns_accept(struct conns *cs, int fd_in)
{
	_cleanup_close_ int fd = fd_in;
	struct quota_charge charge = {0};
	struct peer peer;
	int r;

	cs->stats.accepted++;
	if (cs->draining || cs->stats.connected + cs->others >= cs->max) {
		cs->stats.refused_full++;
		refuse(fd, cs->draining ? API_SHUTTING_DOWN : API_BUSY,
		       cs->draining ? "tracerd is stopping" : "too many connections");
		return;
	}
	r = peer_init(&peer, fd, cs->ctx.admin_gid);
	if (r < 0) {
		log_debug("credentials of a client: %s", strerror(-r));
		return;
	}
	r = quota_charge(cs->ctx.quota, peer.uid, QUOTA_CONNECTIONS, 1, &charge);
	if (r == QUOTA_E_EXCEEDED) {
		cs->stats.refused_quota++;
		refuse(fd, API_QUOTA, "too many connections of this user");
	}
	if (r == 0) {
		if (conn_new(cs, take_fd(&fd), &peer, &charge) < 0)
			log_debug("no memory for a connection");
		return;
	}
	peer_fini(&peer);
}

int conns_new(const struct conns_context *context, struct conns **ret)
{
	struct conns *cs = calloc(1, sizeof(*cs));

	if (!cs)
		return -ENOMEM;
	cs->ctx = *context;
	cs->max = context->config->max_connections;
	LIST_INIT(&cs->list);
	*ret = cs;
	return 0;
}

struct conns *conns_free(struct conns *cs)
{
	if (!cs)
		return NULL;
	while (!LIST_EMPTY(&cs->list))
		(void)conn_free(LIST_FIRST(&cs->list));
	free(cs);
	return NULL;
}

bool conns_drain(struct conns *cs)
{
	struct conn *c = LIST_FIRST(&cs->list);

	cs->draining = true;
	while (c) {
		struct conn *next = LIST_NEXT(c, entry);

		conn_end(c);
		c = next;
	}
	return LIST_EMPTY(&cs->list);
}

void conns_set_max(struct conns *cs, unsigned int max)
{
	cs->max = max;
}

unsigned int conns_max(const struct conns *cs)
{
	return cs->max;
}

void conns_set_others(struct conns *cs, unsigned int count)
{
	cs->others = count;
}

unsigned int conns_count(const struct conns *cs)
{
	return cs->stats.connected;
}

void conns_get_stats(const struct conns *cs, struct conns_stats *ret)
{
	*ret = cs->stats;
}
