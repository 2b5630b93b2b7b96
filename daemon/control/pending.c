// SPDX-License-Identifier: Apache-2.0
/* Replies of one connection that come later. */
#include "daemon/control/conn_internal.h"

#include <errno.h>

#include "common/base/io.h"

struct pending {
	LIST_ENTRY(pending) entry;
	struct conn *conn; /* not owned */
	int64_t id;
	void (*gone)(struct pending *p, void *arg);
	void *arg;
};

int pending_new(struct conn *c, int64_t id, void (*gone)(struct pending *p, void *arg), void *arg,
		struct pending **ret)
{
	struct pending *p;

	if (c->n_pendings >= CONN_PENDING_MAX)
		return -EBUSY;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->conn = c;
	p->id = id;
	p->gone = gone;
	p->arg = arg;
	LIST_INSERT_HEAD(&c->pendings, p, entry);
	c->n_pendings++;
	*ret = p;
	return 0;
}

void pending_drop(struct pending *p)
{
	if (!p)
		return;
	LIST_REMOVE(p, entry);
	p->conn->n_pendings--;
	p->conn->active = io_now_ns();
	free(p);
}

bool pending_reply(struct pending *p, struct json_object *result)
{
	struct conn *c = p->conn;
	int64_t id = p->id;

	pending_drop(p);
	return conn_send_result(c, id, result, NULL, 0) == 0;
}

void pending_fail(struct pending *p, enum protocol_error code, const char *message)
{
	struct conn *c = p->conn;
	int64_t id = p->id;

	pending_drop(p);
	conn_send_error(c, true, id, code, message);
}

void pendings_end(struct conn *c)
{
	while (!LIST_EMPTY(&c->pendings)) {
		struct pending *p = LIST_FIRST(&c->pendings);

		p->gone(p, p->arg);
		pending_drop(p);
	}
}
