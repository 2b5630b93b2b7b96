// SPDX-License-Identifier: Apache-2.0
/* Methods about triggers. */
#include <errno.h>
#include <string.h>

#include "daemon/methods/methods_internal.h"
#include "daemon/target/target.h"
#include "daemon/trigger/trigger.h"

static enum protocol_error add_error(struct call *call, int r, const char *why)
{
	switch (r) {
	case TRIGGER_E_QUOTA:
		return call_fail(call, API_QUOTA, "%s", why);
	case TRIGGER_E_BUSY:
		return call_fail(call, API_BUSY, "%s", why);
	case TRIGGER_E_BAD:
		return call_fail(call, API_BAD_PARAMS, "%s", why);
	default:
		return call_fail(call, protocol_error_from_errno(r), "%s", strerror(r < 0 ? -r : EIO));
	}
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

enum protocol_error method_trigger_add(struct call *call, struct json_object **ret_result)
{
	const struct params *p = &call->params;
	const struct trigger_request req = {
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
		if (trigger_visible(t, call->peer->uid, call->peer->admin) && (!target || trigger_target(t) == target)) {
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
	struct trigger *t = triggers_find(call->methods->triggers, name, call->peer->uid, call->peer->admin);

	call_object(call, name);
	/* What another user added does not exist for this one. */
	if (!t)
		return call_fail(call, API_NOT_FOUND, "no such trigger");
	trigger_stop(t);
	*ret_result = trigger_answer(t);
	triggers_remove(call->methods->triggers, t);
	return API_OK;
}
