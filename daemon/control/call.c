// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/call.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/control/audit.h"

enum protocol_error call_fail(struct call *call, enum protocol_error e, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(call->why, sizeof(call->why), fmt, ap);
	va_end(ap);
	return e;
}

void call_object(struct call *call, const char *name)
{
	size_t i;

	for (i = 0; name[i] && i < sizeof(call->object) - 1; i++) {
		char ch = name[i];
		bool plain = (ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'z') ||
			     (ch >= 'A' && ch <= 'Z') || (ch && strchr("._:@/-", ch));

		call->object[i] = plain ? ch : '?';
	}
	call->object[i] = '\0';
}

/*
 * Read as far as it goes: a request with an id gets an answer to that id, however bad the rest is.
 */
struct envelope {
	bool has_id;
	int64_t id;
	const char *method;
	struct json_object *params;
	uint64_t n_fds;
	bool is_answer; /* to a request of ours */
};

static const char *read_envelope(struct json_object *o, struct envelope *e)
{
	struct json_object *v = NULL;
	int64_t version;

	*e = (struct envelope){0};
	if (!json_object_is_type(o, json_type_object))
		return "a message must be an object";
	e->has_id = json_get_int(o, "id", &e->id);
	if (json_object_object_get_ex(o, "nfds", &v) && !json_get_uint(o, "nfds", &e->n_fds))
		return "nfds must be a number of descriptors";
	if (!json_get_int(o, "v", &version))
		return "v, the version of the protocol, is missing";
	if (version != PROTOCOL_VERSION)
		return "this tracerd speaks version 1 of the protocol";
	if (!e->has_id)
		return "id must be an integer";
	if (e->id < 0) {
		e->is_answer = true;
		return NULL;
	}
	e->method = json_get_string(o, "method");
	if (!e->method)
		return "method must be a string";
	if (json_object_object_get_ex(o, "params", &v))
		e->params = v;
	return NULL;
}

static enum protocol_error run(const struct calls *calls, struct call *call,
			       struct json_object **ret_result)
{
	const struct protocol_method *m = call->method;
	enum protocol_error e;

	if (m->flags & METHOD_TO_CLIENT)
		return call_fail(call, API_UNKNOWN_METHOD, "only tracerd sends %s", m->name);
	if (calls->stopping)
		return call_fail(call, API_SHUTTING_DOWN, "tracerd is stopping");
	if ((m->flags & METHOD_ADMIN) && !call->peer->admin)
		return call_fail(call, API_NOT_PERMITTED, "%s is for administrators only", m->name);
	e = protocol_check_params(m, call->params.object, call->why, sizeof(call->why));
	if (e != API_OK)
		return e;
	return calls->handlers[m - protocol_methods](call, ret_result);
}

/* Returns the error that the client got. */
static enum protocol_error answer(struct call *call, enum protocol_error e,
				  struct json_object *result)
{
	if (e != API_OK) {
		for (size_t i = 0; i < call->n_reply_fds; i++)
			(void)close_fd(call->reply_fds[i]);
		json_object_put(result);
		conn_send_error(call->conn, true, call->id, e,
				call->why[0] ? call->why : protocol_errors[e].doc);
		return e;
	}
	if (conn_send_result(call->conn, call->id, result, call->reply_fds, call->n_reply_fds) == 0)
		return API_OK;
	if (call->undo)
		call->undo(call);
	return API_BUSY;
}

static void call_method(const struct calls *calls, struct conn *c, const struct envelope *env,
			int *fds, size_t n_fds)
{
	struct call call = {.methods = calls->methods,
			    .conn = c,
			    .peer = conn_peer(c),
			    .id = env->id,
			    .fds = fds,
			    .n_fds = n_fds};
	struct json_object *result = NULL;
	enum protocol_error e;

	call.method = protocol_method_find(env->method);
	if (n_fds > (call.method ? call.method->max_fds : 0)) {
		conn_send_error(c, true, env->id, API_BAD_REQUEST,
				"the method takes fewer descriptors");
		conn_shut(c, "descriptors on a method that takes none");
		return;
	}
	if (!call.method) {
		conn_send_error(c, true, env->id, API_UNKNOWN_METHOD, "no method has this name");
		return;
	}
	call.params = (struct params){.method = call.method, .object = env->params};
	e = run(calls, &call, &result);
	if (!call.deferred)
		e = answer(&call, e, result);
	if (call.method->flags & METHOD_AUDIT)
		audit_log(calls->audit, call.peer, call.method->name, call.object,
			e != API_OK ? protocol_error_code(e) : call.deferred ? "accepted" : "ok");
}

void calls_message(void *calls, struct conn *c, const char *text, size_t len, int *fds,
		   size_t n_fds)
{
	_cleanup_json_ struct json_object *o = NULL;
	struct envelope env;
	const char *bad;
	char why[128] = "";
	int r;

	r = json_parse(text, len, FRAME_REQUEST_MAX, &o, why, sizeof(why));
	if (r != 0) {
		/* The sender does not speak this protocol. */
		conn_send_error(c, false, 0, r > 0 ? API_BAD_REQUEST : API_BUSY,
				r > 0 ? why : "out of memory");
		conn_shut(c, "not strict JSON");
		return;
	}
	bad = read_envelope(o, &env);
	if (env.n_fds != n_fds) {
		conn_send_error(c, env.has_id, env.id, API_BAD_REQUEST,
				"nfds is not the number of descriptors sent");
		conn_shut(c, "wrong count of descriptors");
		return;
	}
	if (bad) {
		conn_send_error(c, env.has_id, env.id, API_BAD_REQUEST, bad);
		if (n_fds > 0)
			conn_shut(c, "descriptors on a message that is no request");
		return;
	}
	if (env.is_answer) {
		if (!conn_answered(c, env.id, o, fds, n_fds))
			conn_shut(c, "descriptors on an answer that nobody waits for");
		return;
	}
	call_method(calls, c, &env, fds, n_fds);
}
