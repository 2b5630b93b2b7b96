// SPDX-License-Identifier: Apache-2.0
/* Methods about triggers. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/control/audit.h"
#include "daemon/methods/methods_internal.h"
#include "daemon/target/target.h"
#include "daemon/trigger/trigger.h"

static enum protocol_error add_code(int r)
{
	static const enum protocol_error codes[] = {
		[TRIGGER_E_QUOTA] = API_QUOTA,
		[TRIGGER_E_BUSY] = API_BUSY,
		[TRIGGER_E_BAD] = API_BAD_PARAMS,
		[TRIGGER_E_UNSUPPORTED] = API_UNSUPPORTED,
		[TRIGGER_E_GONE] = API_GONE,
	};

	return r > 0 && r < (int)ARRAY_SIZE(codes) ? codes[r] : protocol_error_from_errno(r);
}

static enum protocol_error add_error(struct call *call, int r, const char *why)
{
	return call_fail(call, add_code(r), "%s", r > 0 ? why : strerror(r < 0 ? -r : EIO));
}

static struct json_object *trigger_answer(struct trigger *t)
{
	struct json_object *o = json_object_new_object();

	json_add(o, "trigger", trigger_to_json(t));
	return o;
}

static void undo_add(struct call *call)
{
	triggers_remove(call->methods->triggers, call->undo_arg);
}

/* ---- of a place in code: the answer comes when it is watched, or cannot be */

struct adder {
	struct methods *methods;
	struct pending *pending; /* not owned */
	struct conn *conn;	 /* not owned; as long as `pending` */
	struct trigger *trigger; /* the triggers' */
};

static void on_settled(void *arg, int answer, const char *why)
{
	struct adder *a = arg;

	audit_log(a->methods->audit, conn_peer(a->conn), "trigger.add", trigger_name(a->trigger),
		  answer ? protocol_error_code(add_code(answer)) : "ok");
	if (answer)
		pending_fail(a->pending, add_code(answer), why);
	else if (!pending_reply(a->pending, trigger_answer(a->trigger)))
		/* The client does not know that it is there. */
		triggers_remove(a->methods->triggers, a->trigger);
	free(a);
}

static void adder_gone(struct pending *p, void *arg)
{
	struct adder *a = arg;

	trigger_when_settled(a->trigger, NULL, NULL);
	triggers_remove(a->methods->triggers, a->trigger);
	free(a);
}

static enum protocol_error add_hit(struct call *call, struct target *target,
				   const struct trigger_request *req)
{
	_cleanup_free_ struct adder *a = calloc(1, sizeof(*a));
	char why[200] = "";
	int r;

	if (!a)
		return call_fail(call, API_BUSY, "out of memory");
	a->methods = call->methods;
	a->conn = call->conn;
	/* The reply is reserved first: without room for an answer nothing begins. */
	if (pending_new(call->conn, call->id, adder_gone, a, &a->pending) < 0)
		return call_fail(call, API_BUSY,
				 "too many requests of this connection wait for an answer");
	r = triggers_add(call->methods->triggers, target, req, &a->trigger, why, sizeof(why));
	if (r != 0) {
		pending_drop(a->pending);
		return add_error(call, r, why);
	}
	trigger_when_settled(a->trigger, on_settled, a);
	(void)take_ptr(a);
	call->deferred = true;
	return API_OK;
}

/* What says where a place is, all of it or nothing. */
static enum protocol_error read_hit(struct call *call, struct trigger_hit *ret)
{
	static const char *const numbers[] = {"hit_major", "hit_minor", "hit_inode", "hit_offset"};
	const struct params *p = &call->params;

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		if (!params_has(p, numbers[i]))
			return call_fail(call, API_BAD_PARAMS, "%s: is needed with hit",
					 numbers[i]);
	*ret = (struct trigger_hit){
		.name = params_string(p, "hit"),
		.maj = (uint32_t)params_int(p, "hit_major"),
		.min = (uint32_t)params_int(p, "hit_minor"),
		.ino = (uint64_t)params_int(p, "hit_inode"),
		.offset = (uint64_t)params_int(p, "hit_offset"),
		.by = params_string(p, "hit_by"),
	};
	return API_OK;
}

/* What a Go program's module measures is on the control page as a region of this name. */
static const char *go_region(const char *what, char *buf, size_t size)
{
	(void)snprintf(buf, size, "go:%s", what);
	return buf;
}

enum protocol_error method_trigger_add(struct call *call, struct json_object **ret_result)
{
	const struct params *p = &call->params;
	char go[64];
	struct trigger_hit hit;
	struct trigger_request req = {
		.uid = call->peer->uid,
		.admin = call->peer->admin,
		.region = params_string(p, "region"),
		.over_ns = (uint64_t)params_int(p, "over_ns"),
		.cooldown_ns = (uint64_t)params_int(p, "cooldown_ns"),
		.after_ns = (uint64_t)params_int(p, "after_ns"),
		.max_per_hour = (uint32_t)params_int(p, "max_per_hour"),
	};
	struct target *target = NULL;
	struct trigger *t = NULL;
	enum protocol_error e = method_find_target(call, &target);
	char why[200] = "";
	int r;

	if (e != API_OK)
		return e;
	if (params_has(p, "hit") && params_has(p, "go"))
		return call_fail(call, API_BAD_PARAMS, "go, hit: a trigger has one of them");
	if (params_has(p, "hit")) {
		e = read_hit(call, &hit);
		if (e != API_OK)
			return e;
		req.hit = &hit;
		return add_hit(call, target, &req);
	}
	if (params_has(p, "go")) {
		if (req.region)
			return call_fail(call, API_BAD_PARAMS,
					 "region, go: a trigger has one of them");
		req.region = go_region(params_string(p, "go"), go, sizeof(go));
	}
	if (!req.region)
		return call_fail(call, API_BAD_PARAMS, "region, go or hit: one of them is needed");
	r = triggers_add(call->methods->triggers, target, &req, &t, why, sizeof(why));
	if (r != 0)
		return add_error(call, r, why);
	call_object(call, trigger_name(t));
	*ret_result = trigger_answer(t);
	call->undo = undo_add;
	call->undo_arg = t;
	return API_OK;
}

enum protocol_error method_trigger_list(struct call *call, struct json_object **ret_result)
{
	int64_t limit = params_int(&call->params, "limit");
	struct target *target = NULL;
	struct json_object *o, *list;
	struct trigger *t;
	bool more = false;
	uint64_t after;

	if (!cursor_read(call, &after))
		return call_fail(call, API_BAD_PARAMS, "cursor: not from an answer of tracerd");
	if (params_has(&call->params, "target")) {
		enum protocol_error e = method_find_target(call, &target);

		if (e != API_OK)
			return e;
	}
	o = json_object_new_object();
	list = json_add_new_array(o, "triggers");
	while ((t = triggers_next(call->methods->triggers, after))) {
		if (trigger_visible(t, call->peer->uid, call->peer->admin) &&
		    (!target || trigger_target(t) == target)) {
			if (limit-- == 0) {
				more = true;
				break;
			}
			json_append(list, trigger_to_json(t));
		}
		after = trigger_id(t);
	}
	cursor_add(o, more, after);
	*ret_result = o;
	return API_OK;
}

enum protocol_error method_trigger_remove(struct call *call, struct json_object **ret_result)
{
	const char *name = params_string(&call->params, "trigger");
	struct trigger *t =
		triggers_find(call->methods->triggers, name, call->peer->uid, call->peer->admin);

	call_object(call, name);
	/* What another user added does not exist for this one. */
	if (!t)
		return call_fail(call, API_NOT_FOUND, "no such trigger");
	trigger_stop(t);
	*ret_result = trigger_answer(t);
	triggers_remove(call->methods->triggers, t);
	return API_OK;
}
