/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of methods: from a message to a handler and back. Owns the checks that all methods share
 * (envelope, descriptors, role, parameters) and writes the audit line. A handler gets checked
 * parameters and answers with a result, an error, or later. Must not know what a method does: the
 * handlers are in a table that daemon/methods/ fills.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/control/frame.h"
#include "common/control/protocol.h"
#include "daemon/control/conn.h"

struct audit;
struct call;
struct methods; /* what the handlers work on; passed through */

/* API_OK with *ret_result, or an error with call->why. */
typedef enum protocol_error (*method_handler)(struct call *call, struct json_object **ret_result);

struct calls {
	const method_handler *handlers; /* of protocol_methods[], by index */
	struct methods *methods;	/* borrowed, as is: */
	struct audit *audit;
	bool stopping; /* refuses what comes from now on */
};

struct call {
	struct methods *methods;
	struct conn *conn;
	const struct peer *peer;
	int64_t id;
	const struct protocol_method *method;
	struct params params;
	int *fds; /* of the request; closed after the handler, unless set to -1 */
	size_t n_fds;
	int reply_fds[FRAME_FDS_MAX]; /* taken over with the result */
	size_t n_reply_fds;
	char object[80]; /* for the audit line: call_object() */
	char why[256];   /* with an error */
	bool deferred;   /* a pending reply was made: nothing is answered now */
	/* takes back what was done where the answer cannot be sent; NULL: it stays */
	void (*undo)(struct call *call);
	void *undo_arg;
};

enum protocol_error call_fail(struct call *call, enum protocol_error e, const char *fmt, ...)
	_printf_(3, 4);
/*
 * The object of the call, for the audit line. Other characters than those of names become '?', so
 * that it cannot fake a field.
 */
void call_object(struct call *call, const char *name);

/* The on_message of struct conns_context, with a struct calls as its argument. */
void calls_message(void *calls, struct conn *c, const char *text, size_t len, int *fds,
		   size_t n_fds);
