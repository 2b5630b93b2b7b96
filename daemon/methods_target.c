// SPDX-License-Identifier: Apache-2.0
/* Methods about targets: parameters to requests, answers to errors. Who may do what is target.c's. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "daemon/clockseries.h"
#include "daemon/daemon.h"
#include "daemon/method.h"
#include "daemon/target.h"
#include "daemon/trigger.h"

enum protocol_error call_target(struct call *call, struct target **ret_target)
{
	const char *name = params_string(&call->params, "target");
	/* What another user armed is not even said to exist. */
	struct target *t = targets_find(call->daemon->targets, name, call->peer->uid, call->peer->admin);

	call_object(call, name);
	if (!t)
		return call_fail(call, API_NOT_FOUND, "no such target");
	*ret_target = t;
	return API_OK;
}

static enum protocol_error arm_error(struct call *call, int r, const char *why)
{
	static const struct {
		enum protocol_error error;
		const char *text;
	} answers[] = {
		[TARGET_E_GONE] = {API_GONE, "no such process, thread or unit"},
		[TARGET_E_NOT_PERMITTED] = {API_NOT_PERMITTED, "not permitted"},
		[TARGET_E_QUOTA] = {API_QUOTA, "a limit of this user is reached"},
		[TARGET_E_UNSUPPORTED] = {API_UNSUPPORTED, "this machine cannot record it"},
		[TARGET_E_EXISTS] = {API_BUSY, "already armed"},
		[TARGET_E_BUSY] = {API_BUSY, "a limit of the daemon is reached"},
		[TARGET_E_BAD] = {API_BAD_PARAMS, "the parameters contradict each other"},
	};

	if (r > 0 && (size_t)r < ARRAY_SIZE(answers) && answers[r].text)
		return call_fail(call, answers[r].error, "%s", why[0] ? why : answers[r].text);
	return call_fail(call, protocol_error_from_errno(r), "%s", why[0] ? why : strerror(r < 0 ? -r : EIO));
}

/* The descriptors by the names that "fds" gives them, in order. */
static enum protocol_error name_fds(struct call *call, struct target_request *req)
{
	size_t n = params_count(&call->params, "fds");

	if (n != call->n_fds)
		return call_fail(call, API_BAD_PARAMS, "fds: names %zu descriptors, %zu came", n, call->n_fds);
	for (size_t i = 0; i < n; i++) {
		const char *name = params_nth(&call->params, "fds", i);
		int *slot = strcmp(name, "maps") == 0	 ? &req->maps_fd
			    : strcmp(name, "pidfd") == 0 ? &req->pidfd
			    : strcmp(name, "step") == 0	 ? &req->step_fd
							 : NULL;

		if (!slot || *slot >= 0)
			return call_fail(call, API_BAD_PARAMS, "fds: %s", slot ? "the same name twice" : "\"maps\", \"pidfd\" or \"step\"");
		*slot = call->fds[i];
	}
	return API_OK;
}

static enum protocol_error read_scope(struct call *call, struct target_request *req)
{
	const struct params *p = &call->params;
	const char *scope = params_string(p, "scope");

	req->pid = (pid_t)params_int(p, "pid");
	req->tid = (pid_t)params_int(p, "tid");
	req->unit = params_string(p, "unit");
	req->scope = req->unit ? TARGET_UNIT : req->tid ? TARGET_THREAD : TARGET_PROCESS;
	if (req->unit && (req->pid || req->tid))
		return call_fail(call, API_BAD_PARAMS, "a unit, a pid or a tid: one of them");
	if (!req->unit && !req->pid && !req->tid && req->pidfd < 0)
		return call_fail(call, API_BAD_PARAMS, "pid, tid or unit is required");
	if (scope && strcmp(scope, req->scope == TARGET_UNIT	 ? "unit"
				   : req->scope == TARGET_THREAD ? "thread"
								 : "process") != 0)
		return call_fail(call, API_BAD_PARAMS, "scope: does not go with what is named");
	return API_OK;
}

/* T, and what only the daemon as a whole knows of it. */
static struct json_object *target_json(struct call *call, struct target *t)
{
	struct json_object *o = target_to_json(t);

	json_add_uint(o, "triggers", triggers_count(call->daemon->triggers, t, call->peer->uid, call->peer->admin));
	return o;
}

struct json_object *call_target_answer(struct call *call, struct target *t)
{
	struct json_object *o = json_object_new_object();

	json_add(o, "target", target_json(call, t));
	return o;
}

static void undo_arm(struct call *call)
{
	char why[200] = "";

	if (targets_release(call->daemon->targets, call->undo_arg, why, sizeof(why)) != 0)
		log_warning("target %s stays armed, and its client does not know: %s", call->object, why);
}

enum protocol_error method_target_arm(struct call *call, struct json_object **ret_result)
{
	const struct params *p = &call->params;
	struct target_request req = TARGET_REQUEST_INIT;
	const char *stacks = params_string(p, "stacks");
	char why[200] = "", name[32];
	struct target *t = NULL;
	enum protocol_error e;
	int r;

	e = name_fds(call, &req);
	if (e == API_OK)
		e = read_scope(call, &req);
	if (e != API_OK)
		return e;
	(void)snprintf(name, sizeof(name), "%d", (int)(req.tid ? req.tid : req.pid));
	call_object(call, req.unit ? req.unit : name);
	req.uid = call->peer->uid;
	req.gid = call->peer->gid;
	req.admin = call->peer->admin;
	req.waits = params_bool(p, "waits");
	req.backend = params_string(p, "backend");
	req.stacks = strcmp(stacks, "fp") == 0 ? STACKS_FP : strcmp(stacks, "dwarf") == 0 ? STACKS_DWARF : STACKS_AUTO;
	r = targets_arm(call->daemon->targets, &req, &t, why, sizeof(why));
	if (r != 0)
		return arm_error(call, r, why);
	call_object(call, target_name(t));
	clockseries_start(call->daemon->clocks);
	*ret_result = call_target_answer(call, t);
	call->undo = undo_arm;
	call->undo_arg = t;
	return API_OK;
}

enum protocol_error method_target_disarm(struct call *call, struct json_object **ret_result)
{
	_cleanup_json_ struct json_object *answer = NULL;
	struct target *t = NULL;
	enum protocol_error e = call_target(call, &t);
	char why[200] = "";
	int r;

	if (e != API_OK)
		return e;
	answer = call_target_answer(call, t);
	r = targets_release(call->daemon->targets, t, why, sizeof(why));
	if (r != 0)
		return arm_error(call, r, why);
	*ret_result = take_ptr(answer);
	return API_OK;
}

enum protocol_error method_target_show(struct call *call, struct json_object **ret_result)
{
	struct target *t = NULL;
	enum protocol_error e = call_target(call, &t);

	if (e != API_OK)
		return e;
	*ret_result = call_target_answer(call, t);
	return API_OK;
}

/* What went meanwhile is no gap in it. */
bool call_cursor(const struct call *call, uint64_t *ret)
{
	const char *s = params_string(&call->params, "cursor");
	uint64_t v = 0;

	if (!s) {
		*ret = 0;
		return true;
	}
	if (strlen(s) > 18)
		return false;
	for (; *s; s++) {
		if (*s < '0' || *s > '9')
			return false;
		v = v * 10 + (uint64_t)(*s - '0');
	}
	*ret = v;
	return true;
}

void add_cursor(struct json_object *result, bool more, uint64_t after)
{
	char next[24];

	(void)snprintf(next, sizeof(next), "%" PRIu64, after);
	json_add_string(result, "next", more ? next : NULL);
}

/* Paths and reasons come from the targets and may be long: a page is not to outgrow a message. */
#define PAGE_BYTES (FRAME_REPLY_MAX / 4)

/* False: it does not fit the page any more, which has something already. */
static bool page_add(struct call *call, struct json_object *list, struct target *t, size_t *bytes)
{
	struct json_object *o = target_json(call, t);
	size_t len = 0;

	if (o && json_text(o, &len) && *bytes > 0 && *bytes + len > PAGE_BYTES) {
		json_object_put(o);
		return false;
	}
	*bytes += len;
	json_append(list, o);
	return true;
}

enum protocol_error method_target_list(struct call *call, struct json_object **ret_result)
{
	int64_t limit = params_int(&call->params, "limit");
	struct json_object *o, *list;
	struct target *t;
	uint64_t after;
	size_t bytes = 0;
	bool more = false;

	if (!call_cursor(call, &after))
		return call_fail(call, API_BAD_PARAMS, "cursor: not one of ours");
	o = json_object_new_object();
	list = json_add_new_array(o, "targets");
	while ((t = targets_next(call->daemon->targets, after))) {
		if (target_visible(t, call->peer->uid, call->peer->admin)) {
			if (limit == 0 || !page_add(call, list, t, &bytes)) {
				more = true;
				break;
			}
			limit--;
		}
		after = target_id(t);
	}
	add_cursor(o, more, after);
	*ret_result = o;
	return API_OK;
}
