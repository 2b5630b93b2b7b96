// SPDX-License-Identifier: Apache-2.0
/*
 * The calls that most tools need, made of tracerd_call(). This file makes the parameters in JSON
 * and opens the descriptors that prove what the caller may record.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/client_internal.h"
#include "client/lib/process.h"
#include "common/base/io.h"

/*
 * A daemon that returns more pages is broken: this is a hundred times its greatest number of
 * objects.
 */
#define LIST_MAX 200000
#define PATH_PART_MAX 64

/* `params` is taken over; NULL: no memory. */
static int call(tracerd_client *c, const char *method, struct json_object *params, const int *fds,
		size_t n_fds, int timeout_ms, tracerd_reply **ret)
{
	_cleanup_json_ struct json_object *owned = params;
	const char *text = params ? json_text(params, NULL) : NULL;

	return text ? tracerd_call(c, method, text, fds, n_fds, timeout_ms, ret) : -ENOMEM;
}

int tracerd_arm(tracerd_client *c, pid_t pid, const tracerd_arm_options *options, int timeout_ms,
		tracerd_reply **ret)
{
	_cleanup_(process_fds_fini) struct process_fds opened = PROCESS_FDS_INIT;
	struct json_object *params, *names;
	tracerd_arm_options o = {0};
	int fds[2], r;
	size_t n = 0;

	if (pid <= 0 || (options && options->size < sizeof(options->size)))
		return -EINVAL;
	if (options)
		memcpy(&o, options, options->size < sizeof(o) ? options->size : sizeof(o));
	r = process_open(pid, &opened);
	if (r < 0)
		return r;
	params = json_object_new_object();
	json_add_int(params, "pid", pid);
	if (o.backend)
		json_add_string(params, "backend", o.backend);
	if (o.stacks)
		json_add_string(params, "stacks", o.stacks);
	if (o.no_waits)
		json_add_bool(params, "waits", false);
	names = json_add_new_array(params, "fds");
	json_append_string(names, "pidfd");
	fds[n++] = opened.pidfd;
	/* without them the daemon accepts an admin only */
	if (opened.maps >= 0) {
		json_append_string(names, "maps");
		fds[n++] = opened.maps;
	}
	return call(c, "target.arm", params, fds, n, timeout_ms, ret);
}

/* A target is an id, or a process's number. NULL: no memory. */
static struct json_object *params_of_target(const char *target)
{
	struct json_object *params = json_object_new_object();
	char *end = NULL;
	long pid = *target >= '1' && *target <= '9' ? strtol(target, &end, 10) : 0;

	if (pid > 0 && pid <= INT32_MAX && end && !*end)
		json_add_int(params, "target", pid);
	else
		json_add_string(params, "target", target);
	return params;
}

int tracerd_disarm(tracerd_client *c, const char *target, int timeout_ms, tracerd_reply **ret)
{
	return call(c, "target.disarm", params_of_target(target), NULL, 0, timeout_ms, ret);
}

int tracerd_take_snapshot(tracerd_client *c, const char *target, const char *reason, int wait,
			  int timeout_ms, tracerd_reply **ret)
{
	struct json_object *params = params_of_target(target);

	if (reason)
		json_add_string(params, "reason", reason);
	json_add_bool(params, "wait", wait != 0);
	return call(c, "snapshot.create", params, NULL, 0, timeout_ms, ret);
}

/* Adds the entries of one page to `all`; its cursor goes to *ret_next, NULL after the last page. */
static int list_page(tracerd_client *c, const char *method, const char *member, const char *cursor,
		     int timeout_ms, struct json_object *all, char **ret_next)
{
	struct json_object *params = json_object_new_object(), *entries;
	tracerd_reply *page = NULL;
	const char *next;
	int r;

	if (cursor)
		json_add_string(params, "cursor", cursor);
	r = call(c, method, params, NULL, 0, timeout_ms, &page);
	if (r != 0)
		return r;
	entries = json_get_array(page->result, member);
	for (size_t i = 0; entries && i < json_object_array_length(entries); i++)
		json_append(all, json_object_get(json_object_array_get_idx(entries, i)));
	next = json_get_string(page->result, "next");
	*ret_next = next ? strdup(next) : NULL;
	if (next && !*ret_next)
		r = -ENOMEM;
	/* without progress this would not end */
	else if (next && ((cursor && !strcmp(cursor, next)) || !entries ||
			  !json_object_array_length(entries)))
		r = -EPROTO;
	tracerd_reply_free(page);
	return r;
}

int tracerd_list(tracerd_client *c, enum tracerd_kind kind, int timeout_ms, tracerd_reply **ret)
{
	const char *method = kind == TRACERD_SNAPSHOTS ? "snapshot.list" : "target.list";
	const char *member = kind == TRACERD_SNAPSHOTS ? "snapshots" : "targets";
	uint64_t deadline = timeout_ms < 0 ? 0 : io_now_ns() + (uint64_t)timeout_ms * 1000000;
	_cleanup_free_ char *cursor = NULL;
	tracerd_reply *reply;
	struct json_object *all;

	if (kind != TRACERD_TARGETS && kind != TRACERD_SNAPSHOTS)
		return -EINVAL;
	reply = calloc(1, sizeof(*reply));
	if (!reply)
		return -ENOMEM;
	reply->result = json_object_new_object();
	all = json_add_new_array(reply->result, member);
	do {
		uint64_t now = io_now_ns();
		int left = timeout_ms < 0   ? timeout_ms
			   : now < deadline ? (int)((deadline - now) / 1000000)
					    : 0;
		char *next = NULL;
		int r = all ? list_page(c, method, member, cursor, left, all, &next) : -ENOMEM;

		if (r == 0 && json_object_array_length(all) > LIST_MAX)
			r = -EPROTO;
		free(cursor);
		cursor = next;
		if (r != 0) {
			tracerd_reply_free(reply);
			return r;
		}
	} while (cursor);
	reply->text = json_text(reply->result, NULL);
	if (!reply->text) {
		tracerd_reply_free(reply);
		return -ENOMEM;
	}
	*ret = reply;
	return 0;
}

int tracerd_get_status(tracerd_client *c, int timeout_ms, tracerd_reply **ret)
{
	return tracerd_call(c, "status", NULL, NULL, 0, timeout_ms, ret);
}

const char *tracerd_reply_text(const tracerd_reply *reply, const char *path)
{
	struct json_object *at = reply->result;

	for (;;) {
		char part[PATH_PART_MAX];
		size_t len = strcspn(path, ".");

		if (len >= sizeof(part))
			return NULL;
		memcpy(part, path, len);
		part[len] = 0;
		if (!path[len])
			return json_get_string(at, part);
		at = json_get_object(at, part);
		if (!at)
			return NULL;
		path += len + 1;
	}
}
