/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all commands of tracectl share: the common options, the connection to the daemon, and the
 * one place where errors become a message and an exit code. Messages go to stderr; with --json the
 * error is also printed to stdout as {"error":{"code","message"}}.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/ui/exitcode.h"
#include "client/ui/field.h"
#include "common/base/cleanup.h"
#include "tracerd.h"

/* How long the daemon may take to answer what needs no waiting. */
#define CTL_TIMEOUT_MS 15000

struct ctl {
	const char *command; /* in messages, after "tracectl " */
	const char *socket;  /* NULL: the default */
	bool json;
	tracerd_client *client; /* NULL until ctl_connect() */
};

void ctl_fini(struct ctl *ctl);

/*
 * Connects if that has not been done. Returns an exit code; a failure has been reported.
 */
int ctl_connect(struct ctl *ctl) _must_check_;

/*
 * Calls a method on the connection. `params` is consumed (NULL: no parameters). Returns what
 * tracerd_call() returned, unreported: see ctl_report(). *ret_result is the caller's; ret_reply
 * (may be NULL) receives the reply, for its descriptors.
 */
int ctl_call(struct ctl *ctl, const char *method, struct json_object *params, const int *fds,
	size_t n_fds, int timeout_ms, struct json_object **ret_result,
	tracerd_reply **ret_reply) _must_check_;

/*
 * ctl_connect(), a call that needs no descriptors, and the report of whatever failed. Returns an
 * exit code.
 */
int ctl_request(struct ctl *ctl, const char *method, struct json_object *params,
	struct json_object **ret_result) _must_check_;

/*
 * Reports an error that a function of libtracerd returned, in the daemon's words where it has
 * some, after `what` ("process 1234") if that is not NULL. Returns the exit code for it.
 */
int ctl_report(struct ctl *ctl, int error, const char *what);

/* Reports a failure in our own words. Returns `code`. `name` is the error's name for --json. */
int ctl_fail(struct ctl *ctl, int code, const char *name, const char *fmt, ...) _printf_(4, 5);

/* A line on stderr that is no error ("tracectl arm: warning: ..."). Escaped. */
void ctl_note(struct ctl *ctl, const char *fmt, ...) _printf_(2, 3);

/* Prints an object to stdout, indented, with a newline. */
void ctl_print_json(struct json_object *o);

/* The parsed "data" of an event or NULL; the caller puts it. */
struct json_object *ctl_event_data(const tracerd_event *event);

/*
 * Walks a paged list: calls `method` with `params` (borrowed, may be NULL) and cursor after cursor,
 * and appends the elements of the member `member` to a new array. Returns an exit code; a failure
 * has been reported.
 */
int ctl_list(struct ctl *ctl, const char *method, struct json_object *params, const char *member,
	struct json_object **ret_array) _must_check_;
