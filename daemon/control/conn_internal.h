/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What conn.c (one connection), pending.c (its replies that come later) and conns.c (all of them)
 * share.
 */
#pragma once

#include "common/control/frame.h"
#include "daemon/control/conn.h"
#include "daemon/control/quota.h"

struct conn {
	LIST_ENTRY(conn) entry;
	struct conns *conns; /* not owned */
	int fd;
	struct peer peer;
	struct quota_charge charge;
	struct frame_reader reader;
	struct frame_queue queue;
	struct event *on_read, *on_write, *on_time;
	struct subscriber *subscriber;
	void (*gone)(void *arg); /* of what is attached; NULL: nothing */
	void *gone_arg;
	LIST_HEAD(, pending) pendings;
	unsigned int n_pendings;
	LIST_HEAD(, ask) asks;
	unsigned int n_asks; /* open ones */
	int64_t late_ask; /* one that was dropped, to which the answer may still come; 0: none */
	bool reading, draining, in_callback, dead;
	uint64_t half_since;  /* a frame has begun; 0: none */
	/* something waits, and this is when the last byte went; 0: nothing waits */
	uint64_t write_since;
	uint64_t active;      /* last whole frame */
	uint64_t timer_at;    /* when on_time fires; 0: not armed */
	int64_t ping_id;      /* 0: none is open */
	uint64_t ping_since;
};

struct conns {
	struct conns_context ctx;
	LIST_HEAD(, conn) list;
	unsigned int max, others;
	int64_t next_ping;
	bool draining;
	struct conns_stats stats;
};

/* Takes over fd, peer and charge in any case. 0, -ENOMEM. */
int conn_new(struct conns *cs, int fd, const struct peer *peer,
	     const struct quota_charge *charge) _must_check_;
struct conn *conn_free(struct conn *c);
/* Reads no more and closes once all is sent, perhaps at once. */
void conn_end(struct conn *c);
/* Queues a message without sending it at once. False: no room. */
bool conn_queue(struct conn *c, struct json_object *message);
/* An answer: as conn_answered(), for what is in ask.c. */
bool asks_answered(struct conn *c, int64_t id, struct json_object *answer, int *fds, size_t n_fds);
/* The connection ends: nobody answers any more. */
void asks_end(struct conn *c);
/* The connection ends: calls who promised a reply, and frees what waits. */
void pendings_end(struct conn *c);
