/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a message to a handler and back: the envelope, descriptors, the role, parameters, the
 * audit line. Handlers are one function each, in the table of method.c; they get checked
 * parameters and answer with a result, an error, or later.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/control/frame.h"
#include "common/control/protocol.h"
#include "daemon/control/conn.h"

struct daemon;

struct call {
	struct daemon *daemon;
	struct conn *conn;
	const struct peer *peer;
	int64_t id;
	const struct protocol_method *method;
	struct params params;
	int *fds; /* of the request; closed behind the handler, unless set to -1 */
	size_t n_fds;
	int reply_fds[FRAME_FDS_MAX]; /* taken over with the result */
	size_t n_reply_fds;
	char object[80]; /* for the audit line: call_object() */
	char why[256];   /* with an error */
	bool deferred;   /* a pending reply was made: nothing is answered now */
	void (*undo)(struct call *call); /* where there is no memory to say what was done; NULL: it stays done */
	void *undo_arg;
};

/* API_OK with *ret_result, or an error with call->why. */
typedef enum protocol_error (*method_handler)(struct call *call, struct json_object **ret_result);

enum protocol_error call_fail(struct call *call, enum protocol_error e, const char *fmt, ...) _printf_(3, 4);
/* Names what the call is about. Kept to characters that cannot pretend to be another field. */
void call_object(struct call *call, const char *name);

/* The on_message of struct conns_context, with the daemon as its argument. */
void method_message(void *daemon, struct conn *c, const char *text, size_t len, int *fds, size_t n_fds);

enum protocol_error method_hello(struct call *call, struct json_object **ret_result);
enum protocol_error method_status(struct call *call, struct json_object **ret_result);
enum protocol_error method_config_show(struct call *call, struct json_object **ret_result);
enum protocol_error method_target_arm(struct call *call, struct json_object **ret_result);
enum protocol_error method_target_disarm(struct call *call, struct json_object **ret_result);
enum protocol_error method_target_list(struct call *call, struct json_object **ret_result);
enum protocol_error method_target_show(struct call *call, struct json_object **ret_result);
enum protocol_error method_target_register(struct call *call, struct json_object **ret_result);
enum protocol_error method_snapshot_create(struct call *call, struct json_object **ret_result);
enum protocol_error method_snapshot_list(struct call *call, struct json_object **ret_result);
enum protocol_error method_snapshot_show(struct call *call, struct json_object **ret_result);
enum protocol_error method_snapshot_cancel(struct call *call, struct json_object **ret_result);
enum protocol_error method_snapshot_delete(struct call *call, struct json_object **ret_result);
enum protocol_error method_snapshot_fetch(struct call *call, struct json_object **ret_result);
enum protocol_error method_trigger_add(struct call *call, struct json_object **ret_result);
enum protocol_error method_trigger_list(struct call *call, struct json_object **ret_result);
enum protocol_error method_trigger_remove(struct call *call, struct json_object **ret_result);
enum protocol_error method_subscribe(struct call *call, struct json_object **ret_result);
enum protocol_error method_unsubscribe(struct call *call, struct json_object **ret_result);

/* Rings have been looked at: who waits for that gets an answer. */
void method_targets_surveyed(struct daemon *d);

/* "cursor" of a list as the id behind which to go on (0: at the start); false: not one of ours. */
bool call_cursor(const struct call *call, uint64_t *ret_after);
/* "next" of such a list. */
void add_cursor(struct json_object *result, bool more, uint64_t after);

/* The target that parameter "target" names, if the caller may see it: API_OK or API_NOT_FOUND. */
struct target;
enum protocol_error call_target(struct call *call, struct target **ret_target);
/* {target: T} for this caller. */
struct json_object *call_target_answer(struct call *call, struct target *target);
