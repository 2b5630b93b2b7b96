// SPDX-License-Identifier: Apache-2.0
/*
 * Requests of ours to one client, and their answers. One is sent when that before has been
 * answered, be it too late: programs write one trace at a time. Who asks has a deadline of its own
 * and drops the request by it; what the client sends is the word of a stranger: one answer counts
 * for each request, to a request of this connection only.
 */
#include "daemon/control/conn_internal.h"

#include <errno.h>

struct ask {
	LIST_ENTRY(ask) entry;
	struct conn *conn; /* not owned */
	int64_t id;
	ask_done_fn done;
	void *arg;
	struct json_object *unsent; /* NULL: it was sent */
};

/* Where it cannot be queued now it stays, until its deadline. */
static void send_next(struct conn *c)
{
	struct ask *ask, *oldest = NULL;

	if (c->late_ask)
		return;
	LIST_FOREACH(ask, &c->asks, entry) {
		if (!ask->unsent)
			return;
		oldest = ask;
	}
	if (!oldest || !conn_queue(c, oldest->unsent))
		return;
	json_object_put(oldest->unsent);
	oldest->unsent = NULL;
}

int conn_ask(struct conn *c, const char *method, struct json_object *params, ask_done_fn done,
	     void *arg, struct ask **ret)
{
	_cleanup_json_ struct json_object *m =
		protocol_request(c->conns->next_ping - 1, method, params, 0);
	const bool at_once = c->n_asks == 0 && !c->late_ask;
	struct ask *ask;

	if (c->n_asks >= CONN_ASKS_MAX)
		return -EBUSY;
	ask = calloc(1, sizeof(*ask));
	if (!ask)
		return -ENOMEM;
	if (at_once && !conn_queue(c, m)) {
		free(ask);
		return -EBUSY;
	}
	*ask = (struct ask){.conn = c, .id = --c->conns->next_ping, .done = done, .arg = arg,
			    .unsent = at_once ? NULL : json_object_get(m)};
	LIST_INSERT_HEAD(&c->asks, ask, entry);
	c->n_asks++;
	*ret = ask;
	return 0;
}

static void ask_free(struct ask *ask)
{
	LIST_REMOVE(ask, entry);
	ask->conn->n_asks--;
	json_object_put(ask->unsent);
	free(ask);
}

void ask_drop(struct ask *ask)
{
	struct conn *c;

	if (!ask)
		return;
	c = ask->conn;
	if (!ask->unsent)
		c->late_ask = ask->id;
	ask_free(ask);
	send_next(c);
}

static void finish(struct ask *ask, struct json_object *result, const char *why, int *fd)
{
	ask_done_fn done = ask->done;
	void *arg = ask->arg;

	ask_free(ask);
	done(arg, result, why, fd);
}

bool asks_answered(struct conn *c, int64_t id, struct json_object *answer, int *fds, size_t n_fds)
{
	struct json_object *result, *error;
	const char *why;
	struct ask *ask;
	int none = -1;

	if (c->late_ask && id == c->late_ask) {
		c->late_ask = 0;
		send_next(c);
		return true;
	}
	LIST_FOREACH(ask, &c->asks, entry)
		if (ask->id == id && !ask->unsent)
			break;
	if (!ask)
		return n_fds == 0; /* harmless without descriptors */
	result = json_get_object(answer, "result");
	error = json_get_object(answer, "error");
	why = error ? json_get_string(error, "message") : NULL;
	if (!result)
		finish(ask, NULL, why ? why : "the answer has no result", &none);
	else if (n_fds != 1)
		finish(ask, NULL, "the answer does not have one descriptor", &none);
	else
		finish(ask, result, NULL, &fds[0]);
	send_next(c);
	return true;
}

void asks_end(struct conn *c)
{
	struct ask *ask;
	int none = -1;

	while ((ask = LIST_FIRST(&c->asks)) != NULL)
		finish(ask, NULL, "the connection has ended", &none);
}
