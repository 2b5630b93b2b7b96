// SPDX-License-Identifier: Apache-2.0
/*
 * Methods about targets: parameters to requests, answers to errors. target/target.c decides who may
 * do what.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "daemon/base/clockseries.h"
#include "daemon/control/audit.h"
#include "daemon/methods/methods_internal.h"
#include "daemon/target/target.h"
#include "daemon/trigger/trigger.h"

enum protocol_error method_find_target(struct call *call, struct target **ret_target)
{
	char buf[PROTOCOL_TARGET_SIZE];
	const char *name = params_target_name(&call->params, "target", buf);
	struct target *other = NULL;
	/* What another user armed does not exist for this one. */
	struct target *t = targets_find(call->methods->targets, name, call->peer->uid,
					call->peer->admin, &other);

	call_object(call, name);
	if (!t)
		return call_fail(call, API_NOT_FOUND, "no such target");
	if (other)
		return call_fail(call, API_BAD_PARAMS,
				 "targets %s and %s both record process %s: name one of them",
				 target_name(other), target_name(t), name);
	*ret_target = t;
	return API_OK;
}

static enum protocol_error arm_error(int r, const char **why)
{
	static const struct {
		enum protocol_error error;
		const char *text;
	} answers[] = {
		[TARGET_E_GONE] = {API_GONE, "no such process, thread or unit"},
		[TARGET_E_NOT_PERMITTED] = {API_NOT_PERMITTED, "not permitted"},
		[TARGET_E_QUOTA] = {API_QUOTA, "this user has reached a limit"},
		[TARGET_E_UNSUPPORTED] = {API_UNSUPPORTED, "this machine cannot record the target"},
		[TARGET_E_EXISTS] = {API_BUSY, "already armed"},
		[TARGET_E_BUSY] = {API_BUSY, "tracerd has reached a limit"},
		[TARGET_E_BAD] = {API_BAD_PARAMS, "the parameters contradict each other"},
		[TARGET_E_STOPPING] = {API_SHUTTING_DOWN, "tracerd is stopping"},
	};

	if (r > 0 && (size_t)r < ARRAY_SIZE(answers) && answers[r].text) {
		*why = **why ? *why : answers[r].text;
		return answers[r].error;
	}
	*why = **why ? *why : strerror(r < 0 ? -r : EIO);
	return protocol_error_from_errno(r);
}

static enum protocol_error arm_fail(struct call *call, int r, const char *why)
{
	enum protocol_error e = arm_error(r, &why);

	return call_fail(call, e, "%s", why);
}

/* The descriptors by the names that "fds" gives them, in order. */
static enum protocol_error name_fds(struct call *call, struct target_request *req)
{
	size_t n = params_count(&call->params, "fds");

	if (n != call->n_fds)
		return call_fail(call, API_BAD_PARAMS,
				 "fds: names %zu descriptors, but %zu were sent", n, call->n_fds);
	for (size_t i = 0; i < n; i++) {
		const char *name = params_nth(&call->params, "fds", i);
		int *slot = strcmp(name, "maps") == 0	 ? &req->maps_fd
			    : strcmp(name, "pidfd") == 0 ? &req->pidfd
			    : strcmp(name, "step") == 0	 ? &req->step_fd
			    : strcmp(name, "kallsyms") == 0 ? &req->kallsyms_fd
			    : strcmp(name, "kcore") == 0 ? &req->kcore_fd
							    : NULL;

		if (!slot || *slot >= 0)
			return call_fail(
				call, API_BAD_PARAMS, "fds: %s",
				slot ? "names a descriptor twice"
				     : "a descriptor must be \"maps\", \"pidfd\", \"step\", \"kallsyms\" or \"kcore\"");
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
		return call_fail(call, API_BAD_PARAMS, "unit excludes pid and tid");
	if (!req->unit && !req->pid && !req->tid && req->pidfd < 0) {
		if (!scope || strcmp(scope, "host") != 0)
			return call_fail(call, API_BAD_PARAMS,
					 "one of pid, tid and unit is required, or scope host");
		req->scope = TARGET_HOST;
	}
	if (scope && strcmp(scope, target_scope_name(req->scope)) != 0)
		return call_fail(call, API_BAD_PARAMS, "scope: contradicts pid, tid or unit");
	return API_OK;
}

/* Who reads about a target: its triggers are counted for this user. */
struct reader {
	struct methods *methods;
	uid_t uid;
	bool admin;
};

static struct reader reader_of(const struct call *call)
{
	return (struct reader){.methods = call->methods,
			       .uid = call->peer->uid,
			       .admin = call->peer->admin};
}

/* T of the protocol, with the number of its triggers. */
static struct json_object *target_json(const struct reader *reader, struct target *t)
{
	struct json_object *o = target_to_json(t);

	json_add_uint(o, "triggers",
		      triggers_count(reader->methods->triggers, t, reader->uid, reader->admin));
	return o;
}

static struct json_object *target_answer(const struct reader *reader, struct target *t)
{
	struct json_object *o = json_object_new_object();

	json_add(o, "target", target_json(reader, t));
	return o;
}

struct json_object *method_target_answer(struct call *call, struct target *t)
{
	const struct reader reader = reader_of(call);

	return target_answer(&reader, t);
}

/* ---- arm: the answer comes when the target is armed, or cannot be */

/* The requester has armed it before. */
static struct json_object *already_answer(const struct reader *reader, struct target *t)
{
	struct json_object *o = target_answer(reader, t);

	json_add_bool(o, "already", true);
	return o;
}

struct armer {
	struct reader reader;
	struct pending *pending; /* not owned */
	struct conn *conn;	 /* not owned; as long as `pending` */
	struct arming *arming;	 /* the targets' */
	struct join *join;	 /* likewise; one of the two */
};

static void on_armed(void *arg, int answer, struct target *t, const char *why)
{
	struct armer *a = arg;
	struct methods *m = a->reader.methods;
	char why_not[200] = "";
	enum protocol_error e = answer ? arm_error(answer, &why) : API_OK;

	audit_log(m->audit, conn_peer(a->conn), "target.arm", t ? target_name(t) : "",
		  answer && !t ? protocol_error_code(e) : "ok");
	if (answer && t) {
		(void)pending_reply(a->pending, already_answer(&a->reader, t));
	} else if (answer) {
		pending_fail(a->pending, e, why);
	} else {
		clockseries_start(m->clocks);
		/* A client that gets no answer cannot disarm: do it now. */
		if (!pending_reply(a->pending, target_answer(&a->reader, t)) &&
		    targets_release(m->targets, t, why_not, sizeof(why_not)) != 0)
			log_warning("target %s stays armed without an answer to its client: %s",
				    target_name(t), why_not);
	}
	free(a);
}

static void armer_gone(struct pending *p, void *arg)
{
	struct armer *a = arg;

	if (a->join)
		targets_join_cancel(a->join);
	else
		targets_arm_cancel(a->arming);
	free(a);
}

/* The reply is reserved first: without room for an answer nothing begins. */
static enum protocol_error armer_new(struct call *call, struct armer **ret)
{
	_cleanup_free_ struct armer *a = calloc(1, sizeof(*a));

	if (!a)
		return call_fail(call, API_BUSY, "out of memory");
	a->reader = reader_of(call);
	a->conn = call->conn;
	if (pending_new(call->conn, call->id, armer_gone, a, &a->pending) < 0)
		return call_fail(call, API_BUSY,
				 "too many requests of this connection wait for an answer");
	*ret = take_ptr(a);
	return API_OK;
}

static enum protocol_error arm(struct call *call, const struct target_request *req,
			       struct json_object **ret_result)
{
	_cleanup_free_ struct armer *a = NULL;
	struct target *existing;
	char why[200] = "";
	enum protocol_error e = armer_new(call, &a);
	int r;

	if (e != API_OK)
		return e;
	r = targets_arm(call->methods->targets, req, on_armed, a, &a->arming, &existing, why,
			sizeof(why));
	if (r != 0) {
		pending_drop(a->pending);
		if (existing) {
			*ret_result = already_answer(&a->reader, existing);
			return API_OK;
		}
		return arm_fail(call, r, why);
	}
	(void)take_ptr(a);
	call->deferred = true;
	return API_OK;
}

enum protocol_error method_target_arm(struct call *call, struct json_object **ret_result)
{
	const struct params *p = &call->params;
	struct target_request req = TARGET_REQUEST_INIT;
	const char *stacks = params_string(p, "stacks");
	const uint64_t wait_min_ns = (uint64_t)params_int(p, "wait_min_us") * 1000;
	enum protocol_error e;
	char name[32];

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
	req.children = params_bool(p, "children");
	req.kernel_stacks = params_bool(p, "kernel");
	req.backend = params_string(p, "backend");
	req.pt_ring_bytes = (size_t)params_int(p, "pt_ring_kib") << 10;
	req.pt_timing = params_string(p, "pt_timing");
	req.keep_ns = (uint64_t)params_int(p, "keep_ms") * 1000000;
	req.wait_min_ns = params_has(p, "wait_min_us") ? &wait_min_ns : NULL;
	for (; req.n_filters < TARGET_FILTERS_MAX && req.n_filters < params_count(p, "filters");
	     req.n_filters++)
		req.filters[req.n_filters] = params_nth(p, "filters", req.n_filters);
	req.stacks = strcmp(stacks, "fp") == 0      ? STACKS_FP
		     : strcmp(stacks, "dwarf") == 0 ? STACKS_DWARF
		     : strcmp(stacks, "bpf") == 0   ? STACKS_BPF
						    : STACKS_AUTO;
	return arm(call, &req, ret_result);
}

static void on_joined(void *arg, int answer, struct target *t, const char *why)
{
	struct armer *a = arg;
	enum protocol_error e = answer ? arm_error(answer, &why) : API_OK;

	audit_log(a->reader.methods->audit, conn_peer(a->conn), "target.join", target_name(t),
		  answer ? protocol_error_code(e) : "ok");
	if (answer)
		pending_fail(a->pending, e, why);
	else
		(void)pending_reply(a->pending, target_answer(&a->reader, t));
	free(a);
}

enum protocol_error method_target_join(struct call *call, struct json_object **ret_result)
{
	struct target_request req = TARGET_REQUEST_INIT;
	_cleanup_free_ struct armer *a = NULL;
	struct target *t = NULL;
	enum protocol_error e;
	char why[200] = "";
	int r;

	e = name_fds(call, &req);
	if (e == API_OK)
		e = method_find_target(call, &t);
	if (e == API_OK)
		e = armer_new(call, &a);
	if (e != API_OK)
		return e;
	req.pid = (pid_t)params_int(&call->params, "pid");
	req.uid = call->peer->uid;
	req.admin = call->peer->admin;
	r = targets_join(t, &req, on_joined, a, &a->join, why, sizeof(why));
	if (r != 0) {
		pending_drop(a->pending);
		if (r == TARGET_E_EXISTS) {
			*ret_result = already_answer(&a->reader, t);
			return API_OK;
		}
		return arm_fail(call, r, why);
	}
	(void)take_ptr(a);
	call->deferred = true;
	return API_OK;
}

enum protocol_error method_target_disarm(struct call *call, struct json_object **ret_result)
{
	_cleanup_json_ struct json_object *answer = NULL;
	struct target *t = NULL;
	enum protocol_error e = method_find_target(call, &t);
	char why[200] = "";
	int r;

	if (e != API_OK)
		return e;
	answer = method_target_answer(call, t);
	r = targets_release(call->methods->targets, t, why, sizeof(why));
	if (r != 0)
		return arm_fail(call, r, why);
	*ret_result = take_ptr(answer);
	return API_OK;
}

bool cursor_read(const struct call *call, uint64_t *ret)
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

void cursor_add(struct json_object *result, bool more, uint64_t after)
{
	char next[24];

	(void)snprintf(next, sizeof(next), "%" PRIu64, after);
	json_add_string(result, "next", more ? next : NULL);
}

/* Paths and reasons come from the targets and may be long: a page must fit a message. */
#define PAGE_BYTES (FRAME_REPLY_MAX / 4)

/* False: the page is full. */
static bool page_add(const struct reader *reader, struct json_object *list, struct target *t,
		     size_t *bytes)
{
	struct json_object *o = target_json(reader, t);
	size_t len = 0;

	if (o && json_text(o, &len) && *bytes > 0 && *bytes + len > PAGE_BYTES) {
		json_object_put(o);
		return false;
	}
	*bytes += len;
	json_append(list, o);
	return true;
}

static struct json_object *page_answer(const struct reader *reader, uint64_t after, int64_t limit)
{
	struct json_object *o = json_object_new_object(), *list = json_add_new_array(o, "targets");
	struct target *t;
	size_t bytes = 0;
	bool more = false;

	while ((t = targets_next(reader->methods->targets, after))) {
		if (target_visible(t, reader->uid, reader->admin)) {
			if (limit == 0 || !page_add(reader, list, t, &bytes)) {
				more = true;
				break;
			}
			limit--;
		}
		after = target_id(t);
	}
	cursor_add(o, more, after);
	return o;
}

/* ---- list and show: another thread looks at the rings first, unless it has just done so */

#define SURVEY_SECONDS 2 /* then the answer has the numbers of the last survey */

struct asker {
	LIST_ENTRY(asker) link; /* of struct methods */
	struct reader reader;
	struct pending *pending; /* not owned */
	struct event *limit;
	uint64_t target; /* shown; 0: a list */
	uint64_t after;
	int64_t page;
};

static void asker_free(struct asker *asker)
{
	LIST_REMOVE(asker, link);
	event_free(asker->limit);
	free(asker);
}

static struct target *asker_target(const struct asker *asker)
{
	struct target *t = asker->target
				   ? targets_next(asker->reader.methods->targets, asker->target - 1)
				   : NULL;

	return t && target_id(t) == asker->target ? t : NULL;
}

static void asker_answer(struct asker *asker)
{
	struct target *t = asker_target(asker);

	if (!asker->target)
		(void)pending_reply(asker->pending,
				    page_answer(&asker->reader, asker->after, asker->page));
	else if (t)
		(void)pending_reply(asker->pending, target_answer(&asker->reader, t));
	else
		pending_fail(asker->pending, API_NOT_FOUND, "no such target");
	asker_free(asker);
}

static void on_limit(evutil_socket_t fd, short what, void *arg)
{
	asker_answer(arg);
}

static void asker_gone(struct pending *p, void *arg)
{
	asker_free(arg);
}

static bool is_surveying(const struct asker *asker)
{
	struct target *t = asker_target(asker);

	return (t || !asker->target) && targets_surveying(asker->reader.methods->targets, t,
							  asker->reader.uid, asker->reader.admin);
}

void methods_surveyed(struct methods *m)
{
	struct asker *asker;

	/* From the start after each: sending may end a connection, and with it others that wait. */
	do {
		LIST_FOREACH(asker, &m->askers, link)
			if (!is_surveying(asker))
				break;
		if (asker)
			asker_answer(asker);
	} while (asker);
}

/* Answers now, or later with call->deferred. */
static enum protocol_error ask(struct call *call, const struct asker *what, struct target *t,
			       struct json_object **ret_result)
{
	const struct timeval limit = {.tv_sec = SURVEY_SECONDS};
	struct asker *asker;

	targets_survey(call->methods->targets, t, call->peer->uid, call->peer->admin);
	if (!is_surveying(what)) {
		*ret_result = t ? target_answer(&what->reader, t)
				: page_answer(&what->reader, what->after, what->page);
		return API_OK;
	}
	asker = malloc(sizeof(*asker));
	if (!asker)
		return call_fail(call, API_BUSY, "out of memory");
	*asker = *what;
	asker->limit = evtimer_new(call->methods->base, on_limit, asker);
	if (!asker->limit || event_add(asker->limit, &limit) < 0 ||
	    pending_new(call->conn, call->id, asker_gone, asker, &asker->pending) < 0) {
		if (asker->limit)
			event_free(asker->limit);
		free(asker);
		return call_fail(call, API_BUSY,
				 "too many requests of this connection wait for an answer");
	}
	LIST_INSERT_HEAD(&call->methods->askers, asker, link);
	call->deferred = true;
	return API_OK;
}

enum protocol_error method_target_show(struct call *call, struct json_object **ret_result)
{
	struct asker what = {.reader = reader_of(call)};
	struct target *t = NULL;
	enum protocol_error e = method_find_target(call, &t);

	if (e != API_OK)
		return e;
	what.target = target_id(t);
	return ask(call, &what, t, ret_result);
}

enum protocol_error method_target_list(struct call *call, struct json_object **ret_result)
{
	struct asker what = {.reader = reader_of(call), .page = params_int(&call->params, "limit")};

	if (!cursor_read(call, &what.after))
		return call_fail(call, API_BAD_PARAMS, "cursor: not from an answer of tracerd");
	return ask(call, &what, NULL, ret_result);
}
