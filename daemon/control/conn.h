/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections of the control socket: frames in, frames out, deadlines, and what one client may
 * cost. Never blocks, never does more than a bounded amount a tick, and knows nothing of methods.
 *
 *            whole frames                      shut (bad frame, EOF, queue too long)
 *   OPEN ───────────────────► on_message        │
 *    │                                          ▼
 *    └──────────────────────────────────────► DRAINING ── all sent, or too slow ──► freed
 *
 * A client that does not read is not read from either once enough waits for it, so that it cannot
 * make us work; it is dropped when it takes nothing for client_write_timeout_s.
 */
#pragma once

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "common/control/json.h"
#include "common/control/protocol.h"
#include "daemon/control/auth.h"

struct config;
struct conn;
struct conns;
struct hub;
struct quota;

struct conns_context { /* all borrowed */
	struct event_base *base;
	const struct config *config;
	struct quota *quota;
	struct hub *hub;
	gid_t admin_gid;
	/*
	 * One whole frame. `fds` are the callee's to take (set them to -1) and closed after it
	 * otherwise.
	 */
	void (*on_message)(void *arg, struct conn *c, const char *text, size_t len, int *fds,
			   size_t n_fds);
	/* A connection has been closed: descriptors are free again. */
	void (*on_closed)(void *arg);
	void *arg;
};

int conns_new(const struct conns_context *context, struct conns **ret) _must_check_;
/* Closes all at once. */
struct conns *conns_free(struct conns *cs);
/* Takes over `fd`: accepts the connection, or refuses it with an error. */
void conns_accept(struct conns *cs, int fd);
/* No more requests; what is queued is still sent. True when none is left. */
bool conns_drain(struct conns *cs);
/* The limit of the daemon as a whole; may be lower than configured where descriptors are scarce. */
void conns_set_max(struct conns *cs, unsigned int max);
unsigned int conns_max(const struct conns *cs);
/* Connections held by the status socket count too. */
void conns_set_others(struct conns *cs, unsigned int count);
unsigned int conns_count(const struct conns *cs);

struct conns_stats {
	unsigned int connected;
	uint64_t accepted, refused_full, refused_quota;
	uint64_t requests, errors, bad_messages;
	uint64_t timeouts, overflows; /* dropped: too slow to send or take; too much waiting */
	uint64_t pings;
	uint64_t no_memory; /* answers that were replaced by saying so */
};
void conns_get_stats(const struct conns *cs, struct conns_stats *ret);

/* ---- one connection, from a handler's view */

const struct peer *conn_peer(const struct conn *c);
/*
 * Answers a request; takes over the object and, in any case, the descriptors. An answer or error
 * that memory has no room for becomes `busy`, from a reserve that each connection has. The
 * connection ends if the reserve is in use, too. 0, or -ENOMEM if the client did not get the
 * result.
 */
int conn_send_result(struct conn *c, int64_t id, struct json_object *result, int *fds,
		     size_t n_fds);
/* Answers with an error and counts it. */
void conn_send_error(struct conn *c, bool has_id, int64_t id, enum protocol_error code,
		     const char *message);
/* Reads no more; closes when all is sent. */
void conn_shut(struct conn *c, const char *why);
/*
 * An answer to a request of ours. `fds` are the callee's to take (set them to -1). False: it has
 * descriptors that nobody asked for.
 */
bool conn_answered(struct conn *c, int64_t id, struct json_object *answer, int *fds, size_t n_fds);
/*
 * Queues an event without sending it at once, so that it may be called from anywhere; nothing where
 * the queue is full.
 */
void conn_post(struct conn *c, struct json_object *message);
/*
 * Attaches an object to the connection, which then may be silent (it gets pings, as a subscriber
 * does) and is charged as that object, not as a connection. `gone` is called when the connection
 * ends. -EBUSY: there is one already.
 */
int conn_attach(struct conn *c, void (*gone)(void *arg), void *arg) _must_check_;
bool conn_is_attached(const struct conn *c);
/*
 * The object has ended by itself. The caller closes the connection, which is not charged any more.
 */
void conn_detach(struct conn *c);
/* Sends what is queued and closes; may free it, unless one of its own handlers is on the stack. */
void conn_close(struct conn *c, const char *why);
/* Whether the client still has its end open. */
bool conn_is_open(const struct conn *c);
/* Replaces the subscription (mask 0: none). 0, -ENOMEM. */
int conn_subscribe(struct conn *c, uint64_t mask) _must_check_;

/*
 * A reply that comes later. It is made by a handler, and ends by exactly one of: pending_reply(),
 * pending_fail(), pending_drop(), or by the end of the connection, which calls `gone`; after each
 * of them it is freed.
 */
struct pending;
#define CONN_PENDING_MAX 16
int pending_new(struct conn *c, int64_t id, void (*gone)(struct pending *p, void *arg), void *arg,
		struct pending **ret) _must_check_; /* -EBUSY: too many on this connection */
/* False: there was no memory for it, and the client got an error instead. */
bool pending_reply(struct pending *p, struct json_object *result);
void pending_fail(struct pending *p, enum protocol_error code, const char *message);
void pending_drop(struct pending *p);

/*
 * A request of ours, whose answer has one descriptor. `done` is called once, by the loop: with the
 * result and the descriptor (the callee's to take: set it to -1), or with NULL and why there is
 * none. It is not called after ask_drop(); an answer that comes then is ignored.
 */
struct ask;
#define CONN_ASKS_MAX 16
typedef void (*ask_done_fn)(void *arg, struct json_object *result, const char *why, int *fd);
/* Takes over `params`. -EBUSY: too many requests are open, or too much waits for that client. */
int conn_ask(struct conn *c, const char *method, struct json_object *params, ask_done_fn done,
	     void *arg, struct ask **ret) _must_check_;
void ask_drop(struct ask *ask);
