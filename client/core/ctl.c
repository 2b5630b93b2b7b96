// SPDX-License-Identifier: Apache-2.0
/*
 * Connection, calls and error reports of tracectl's commands.
 */
#include "client/core/ctl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ui/human.h"
#include "common/control/frame.h"
#include "common/control/json.h"

/* A daemon that pages for ever is broken; this is a hundred times its greatest number of objects.
 */
#define MAX_LIST 200000

void ctl_fini(struct ctl *ctl)
{
	tracerd_close(ctl->client);
	ctl->client = NULL;
}

/* One line on stderr, and the error object on stdout for --json. */
static void report(struct ctl *ctl, const char *name, const char *message)
{
	_cleanup_free_ char *safe = human_name(message);

	(void)fflush(stdout);
	(void)fprintf(stderr, "tracectl%s%s: %s\n", ctl->command ? " " : "",
		ctl->command ? ctl->command : "", safe);
	if (ctl->json) {
		_cleanup_json_ struct json_object *o = json_object_new_object();
		struct json_object *e = json_object_new_object();

		json_add_string(e, "code", name);
		json_add_string(e, "message", safe);
		json_add(o, "error", e);
		ctl_print_json(o);
	}
}

int ctl_fail(struct ctl *ctl, int code, const char *name, const char *fmt, ...)
{
	_cleanup_free_ char *message = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&message, fmt, ap);
	va_end(ap);
	if (n < 0)
		message = NULL;
	report(ctl, name, message ? message : "out of memory");
	return code;
}

void ctl_note(struct ctl *ctl, const char *fmt, ...)
{
	_cleanup_free_ char *message = NULL, *safe = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&message, fmt, ap);
	va_end(ap);
	if (n < 0) {
		message = NULL;
		return;
	}
	safe = human_name(message);
	(void)fflush(stdout);
	(void)fprintf(stderr, "tracectl%s%s: %s\n", ctl->command ? " " : "",
		ctl->command ? ctl->command : "", safe);
}

int ctl_connect(struct ctl *ctl)
{
	const char *path = ctl->socket ? ctl->socket : tracerd_default_socket();
	int r;

	if (ctl->client)
		return EXIT_OK;
	r = tracerd_connect(path, 5000, &ctl->client);
	switch (r) {
	case 0:
		return EXIT_OK;
	case -ENOENT:
	case -ECONNREFUSED:
	case -ENOTDIR:
		return ctl_fail(ctl, EXIT_NOT_RUNNING, "not_running",
			"tracerd is not running: %s: %s (systemctl start tracerd)", path,
			strerror(-r));
	case -EACCES:
		return ctl_fail(ctl, EXIT_NOT_PERMITTED, "not_permitted",
			"not permitted to talk to tracerd: %s: %s", path, strerror(EACCES));
	case -ETIMEDOUT:
		return ctl_fail(ctl, EXIT_TIMED_OUT, "timeout",
			"tracerd does not accept connections: %s", path);
	default:
		return ctl_fail(ctl, EXIT_NOT_RUNNING, "not_running",
			"cannot reach tracerd: %s: %s", path, strerror(-r));
	}
}

/* Parses text that the library has checked already. NULL: no memory. */
static struct json_object *parse(const char *text)
{
	struct json_object *o = NULL;

	return json_parse(text, strlen(text), FRAME_REPLY_MAX, &o, NULL, 0) == 0 ? o : NULL;
}

int ctl_call(struct ctl *ctl, const char *method, struct json_object *params, const int *fds,
	size_t n_fds, int timeout_ms, struct json_object **ret_result, tracerd_reply **ret_reply)
{
	_cleanup_json_ struct json_object *owned = params;
	_cleanup_json_ struct json_object *result = NULL;
	const char *text = params ? json_text(params, NULL) : "{}";
	tracerd_reply *reply = NULL;
	int r;

	if (!text)
		return -ENOMEM;
	r = tracerd_call(ctl->client, method, text, fds, n_fds, timeout_ms, &reply);
	/* the text is our own JSON: it can be wrong only if a string in it is no UTF-8 */
	if (r == -EINVAL)
		return -EILSEQ;
	if (r != 0)
		return r;
	result = parse(tracerd_reply_json(reply));
	if (!result) {
		tracerd_reply_free(reply);
		return -ENOMEM;
	}
	if (ret_result)
		*ret_result = take_ptr(result);
	if (ret_reply)
		*ret_reply = reply;
	else
		tracerd_reply_free(reply);
	return 0;
}

int ctl_report(struct ctl *ctl, int error, const char *what)
{
	const char *message = error > 0 && ctl->client ? tracerd_error_message(ctl->client) : "";
	const char *name = tracerd_error_name(error);
	_cleanup_free_ char *text = NULL;

	if (error == -ETIMEDOUT)
		text = human_format(
			"no answer from tracerd in time: it is starting, or the machine is busy");
	else if (error == -ECONNRESET || error == -ENOTCONN)
		text = human_format("tracerd closed the connection");
	else if (error == -EPROTO)
		text = human_format("tracerd answered something that is not its protocol");
	else if (error == -EILSEQ)
		text = human_format("an argument is not valid UTF-8");
	else if (error < 0)
		text = human_format("%s", strerror(-error));
	else
		text = human_format("%s", *message ? message : name);
	if (what)
		return ctl_fail(ctl, exit_code_from(error), name, "%s: %s", what, text);
	return ctl_fail(ctl, exit_code_from(error), name, "%s", text);
}

int ctl_request(struct ctl *ctl, const char *method, struct json_object *params,
	struct json_object **ret_result)
{
	int r = ctl_connect(ctl);

	if (r != EXIT_OK) {
		json_putp(&params);
		return r;
	}
	r = ctl_call(ctl, method, params, NULL, 0, CTL_TIMEOUT_MS, ret_result, NULL);
	return r == 0 ? EXIT_OK : ctl_report(ctl, r, NULL);
}

void ctl_print_json(struct json_object *o)
{
	human_puts(json_text_styled(o, JSON_SPACED, NULL), stdout);
}

struct json_object *ctl_event_data(const tracerd_event *event)
{
	return parse(tracerd_event_json(event));
}

/* A page's parameters: those of the whole list, which each page shares, and where to go on. */
static struct json_object *page_params(struct json_object *params, const char *cursor)
{
	struct json_object *o = json_object_new_object();

	if (params) {
		json_object_object_foreach (params, key, value)
			json_add_shared(o, key, value);
	}
	if (cursor)
		json_add_string(o, "cursor", cursor);
	return o;
}

int ctl_list(struct ctl *ctl, const char *method, struct json_object *params, const char *member,
	struct json_object **ret_array)
{
	_cleanup_json_ struct json_object *all = json_object_new_array();
	_cleanup_free_ char *cursor = NULL;

	for (;;) {
		_cleanup_json_ struct json_object *page = NULL;
		struct json_object *items;
		const char *next;
		int r;

		r = ctl_request(ctl, method, page_params(params, cursor), &page);
		if (r != EXIT_OK)
			return r;
		items = field_array(page, member);
		for (size_t i = 0; items && i < json_object_array_length(items); i++)
			json_append(all, json_object_get(json_object_array_get_idx(items, i)));
		next = field_text(page, "next");
		if (!next)
			break;
		/* a page that goes nowhere would come again for ever */
		if ((cursor && !strcmp(cursor, next)) || !items ||
			!json_object_array_length(items) ||
			json_object_array_length(all) > MAX_LIST)
			return ctl_fail(ctl, EXIT_FAILED, "protocol",
				"%s: tracerd's list does not end", method);
		free(cursor);
		cursor = human_format("%s", next);
	}
	*ret_array = take_ptr(all);
	return EXIT_OK;
}
