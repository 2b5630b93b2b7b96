// SPDX-License-Identifier: Apache-2.0
/* Methods about snapshots. */
#include <errno.h>
#include <string.h>

#include "daemon/methods/methods_internal.h"
#include "daemon/snapshot/snapshot.h"
#include "daemon/target/target.h"

static enum protocol_error create_error(struct call *call, int r, const char *why)
{
	switch (r) {
	case SNAPSHOT_E_QUOTA:
		return call_fail(call, API_QUOTA, "%s",
				 why[0] ? why : "too many snapshots of this user");
	case SNAPSHOT_E_BUSY:
		return call_fail(call, API_BUSY, "%s", why[0] ? why : "too many snapshots wait");
	case SNAPSHOT_E_NO_SPACE:
		return call_fail(call, API_NO_SPACE, "%s", why[0] ? why : "no space in the spool");
	case SNAPSHOT_E_GONE:
		return call_fail(call, API_GONE, "%s", why[0] ? why : "the target is gone");
	default:
		return call_fail(call, protocol_error_from_errno(r), "%s",
				 why[0] ? why : strerror(r < 0 ? -r : EIO));
	}
}

static struct json_object *snapshot_result(struct snapshot *s, bool files)
{
	struct json_object *o = json_object_new_object();

	json_add(o, "snapshot", snapshot_to_json(s, files));
	return o;
}

/* ---- create, and waiting for the end */

struct waiter {
	struct snapshots *snapshots; /* not owned */
	struct pending *pending;     /* not owned */
};

/*
 * Without memory for the answer the snapshot stays, as it does when nobody waits any more: its
 * moment does not come again, and the list has it. The client gets "out of memory" or sees the
 * connection end.
 */
static void waiter_done(struct snapshot *s, void *arg)
{
	struct waiter *w = arg;

	(void)pending_reply(w->pending, snapshot_result(s, true));
	free(w);
}

static void waiter_gone(struct pending *p, void *arg)
{
	struct waiter *w = arg;

	(void)p;
	snapshots_forget_waiter(w->snapshots, w);
	free(w);
}

static enum protocol_error create(struct call *call, struct target *t, struct waiter *w,
				  struct snapshot **ret)
{
	const struct params *p = &call->params;
	struct snapshot_request req = {
		.uid = call->peer->uid,
		.admin = call->peer->admin,
		.reason = params_string(p, "reason"),
		.with_objects = params_bool(p, "with_objects"),
		.asked_raw_ns = (uint64_t)params_int(p, "asked_raw_ns"),
	};
	char why[200] = "";
	int r = snapshots_create(call->methods->snapshots, t, &req, w ? waiter_done : NULL, w, ret,
				 why, sizeof(why));

	return r == 0 ? API_OK : create_error(call, r, why);
}

/* The reply is reserved first: without room for an answer no snapshot begins. */
static enum protocol_error create_and_wait(struct call *call, struct target *t)
{
	_cleanup_free_ struct waiter *w = calloc(1, sizeof(*w));
	struct snapshot *s = NULL;
	enum protocol_error e;

	if (!w)
		return call_fail(call, API_BUSY, "out of memory");
	w->snapshots = call->methods->snapshots;
	if (pending_new(call->conn, call->id, waiter_gone, w, &w->pending) < 0)
		return call_fail(call, API_BUSY,
				 "too many requests of this connection wait for an answer");
	e = create(call, t, w, &s);
	if (e != API_OK) {
		pending_drop(w->pending);
		return e;
	}
	call_object(call, snapshot_id(s));
	(void)take_ptr(w);
	call->deferred = true;
	return API_OK;
}

static void undo_create(struct call *call)
{
	(void)snapshot_cancel(call->undo_arg);
}

enum protocol_error method_snapshot_create(struct call *call, struct json_object **ret_result)
{
	struct snapshot *s = NULL;
	struct target *t = NULL;
	enum protocol_error e = method_find_target(call, &t);

	if (e != API_OK)
		return e;
	if (params_bool(&call->params, "wait"))
		return create_and_wait(call, t);
	e = create(call, t, NULL, &s);
	if (e != API_OK)
		return e;
	call_object(call, snapshot_id(s));
	*ret_result = snapshot_result(s, false);
	call->undo = undo_create;
	call->undo_arg = s;
	return API_OK;
}

/* ---- the others */

static enum protocol_error find(struct call *call, struct snapshot **ret)
{
	const char *id = params_string(&call->params, "snapshot");

	call_object(call, id);
	if (snapshots_find(call->methods->snapshots, id, call->peer->uid, call->peer->admin,
			   ret) != 0)
		return call_fail(call, API_NOT_FOUND, "no such snapshot");
	return API_OK;
}

enum protocol_error method_snapshot_list(struct call *call, struct json_object **ret_result)
{
	struct json_object *o = json_object_new_object(), *list = NULL;
	char next[SPOOL_ID_LEN + 1] = "";
	int r;

	r = snapshots_list(call->methods->snapshots, call->peer->uid, call->peer->admin,
			   params_string(&call->params, "cursor"),
			   (unsigned int)params_int(&call->params, "limit"), &list, next);
	if (r != 0) {
		json_object_put(o);
		return call_fail(call, r > 0 ? API_BAD_PARAMS : protocol_error_from_errno(r),
				 "cursor: %s",
				 r > 0 ? "not from an answer of tracerd" : strerror(-r));
	}
	json_add(o, "snapshots", list);
	json_add_string(o, "next", next[0] ? next : NULL);
	*ret_result = o;
	return API_OK;
}

enum protocol_error method_snapshot_show(struct call *call, struct json_object **ret_result)
{
	struct snapshot *s = NULL;
	enum protocol_error e = find(call, &s);

	if (e == API_OK)
		*ret_result = snapshot_result(s, true);
	return e;
}

enum protocol_error method_snapshot_cancel(struct call *call, struct json_object **ret_result)
{
	struct snapshot *s = NULL;
	enum protocol_error e = find(call, &s);

	if (e != API_OK)
		return e;
	if (snapshot_cancel(s) != 0)
		return call_fail(call, API_BUSY, "the snapshot has ended and cannot be cancelled");
	*ret_result = snapshot_result(s, false);
	return API_OK;
}

enum protocol_error method_snapshot_delete(struct call *call, struct json_object **ret_result)
{
	struct snapshot *s = NULL;
	enum protocol_error e = find(call, &s);
	_cleanup_json_ struct json_object *o = NULL;
	int r;

	if (e != API_OK)
		return e;
	o = snapshot_result(s, false);
	r = snapshot_delete(s);
	if (r > 0)
		return call_fail(call, API_BUSY, "the snapshot has not ended; cancel it first");
	if (r < 0)
		return call_fail(call, protocol_error_from_errno(r), "delete: %s", strerror(-r));
	*ret_result = take_ptr(o);
	return API_OK;
}

enum protocol_error method_snapshot_fetch(struct call *call, struct json_object **ret_result)
{
	size_t n = params_count(&call->params, "names");
	_cleanup_json_ struct json_object *o = json_object_new_object();
	struct json_object *list = NULL;
	struct snapshot *s = NULL;
	enum protocol_error e = find(call, &s);
	int r;

	if (e != API_OK)
		return e;
	if (n == 0) {
		r = snapshot_files(s, &list);
		if (r != 0)
			return call_fail(call, r > 0 ? API_BUSY : protocol_error_from_errno(r),
					 "%s",
					 r > 0 ? "the snapshot is not published" : strerror(-r));
		json_add(o, "files", list);
		*ret_result = take_ptr(o);
		return API_OK;
	}
	list = json_add_new_array(o, "files");
	for (size_t i = 0; i < n; i++) {
		const char *name = params_nth(&call->params, "names", i);
		struct json_object *f;
		uint64_t size = 0;
		int fd = -1;

		/* On an error the answer closes what is open by then. */
		r = snapshot_open_file(s, name, &fd, &size);
		if (r == -ENOENT)
			return call_fail(call, API_NOT_FOUND, "no such file in the snapshot");
		if (r != 0)
			return call_fail(call, r > 0 ? API_BUSY : protocol_error_from_errno(r),
					 "%s",
					 r > 0 ? "the snapshot is not published" : strerror(-r));
		call->reply_fds[call->n_reply_fds++] = fd;
		f = json_object_new_object();
		json_add_string(f, "name", name);
		json_add_uint(f, "size", size);
		json_append(list, f);
	}
	*ret_result = take_ptr(o);
	return API_OK;
}
