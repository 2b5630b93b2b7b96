/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control protocol as const tables: methods with their parameters, errors, events, limits.
 *
 * The parser of the daemon, the client's help and completion, the manual's fragments and the
 * schema file (common/control/protocol.schema.json) all come from here, so that they cannot drift.
 * Knows what a message looks like, not what any method does.
 *
 *   request  {"v":1,"id":7,"method":"target.show","params":{"target":"t1"},"nfds":0}
 *   reply    {"v":1,"id":7,"result":{...}}   or   {"v":1,"id":7,"error":{"code":"gone","message":"..."}}
 *   event    {"v":1,"event":"snapshot.state","seq":12,"missed":0,"data":{...}}
 *
 * "nfds" may be left out where it is 0. Requests of the daemon to a client have negative ids and
 * are answered in the same envelope. Unknown fields are ignored everywhere.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/control/json.h"

#define PROTOCOL_VERSION 1

/* ---- errors */

enum protocol_error {
	API_OK = 0,
	API_BAD_REQUEST,
	API_UNKNOWN_METHOD,
	API_BAD_PARAMS,
	API_TOO_LARGE,
	API_NOT_FOUND,
	API_GONE,
	API_NOT_PERMITTED,
	API_QUOTA,
	API_BUSY,
	API_UNSUPPORTED,
	API_IO,
	API_NO_SPACE,
	API_TIMEOUT,
	API_CANCELLED,
	API_SHUTTING_DOWN,
	API_DECODE_FAILED,
	API_INTERNAL,
	_API_ERROR_MAX,
};

struct protocol_error_info {
	const char *code;
	const char *doc;
};
extern const struct protocol_error_info protocol_errors[_API_ERROR_MAX]; /* [API_OK] is empty */

/* "gone" ... ; an unknown value is "internal". */
const char *protocol_error_code(enum protocol_error e);
/* API_INTERNAL for a code that this version does not know. */
enum protocol_error protocol_error_from_code(const char *code);
/* A negative errno as the error to answer with. */
enum protocol_error protocol_error_from_errno(int negative_errno);

/* ---- methods */

enum protocol_type {
	PARAM_STRING, /* min..max: length in bytes; no control characters */
	PARAM_INT,    /* min..max: value */
	PARAM_BOOL,
	PARAM_CHOICE,  /* one of `choices`, which are separated by '|' */
	PARAM_STRINGS, /* array of strings of 1..PROTOCOL_NAME_MAX bytes; min..max: count */
	PARAM_TARGET,  /* a target's id ("t3") or a pid (number) */
};

#define PROTOCOL_NAME_MAX 1024 /* paths in a bundle with objects are long */

struct protocol_param {
	const char *name; /* NULL ends a list */
	enum protocol_type type;
	bool required;
	int64_t min, max;
	const char *choices;
	const char *def; /* the default as text (true, 50, auto); NULL: none */
	const char *doc;
};

enum protocol_method_id {
	METHOD_HELLO,
	METHOD_STATUS,
	METHOD_CONFIG_SHOW,
	METHOD_TARGET_ARM,
	METHOD_TARGET_JOIN,
	METHOD_TARGET_DISARM,
	METHOD_TARGET_LIST,
	METHOD_TARGET_SHOW,
	METHOD_TARGET_REGISTER,
	METHOD_SNAPSHOT_CREATE,
	METHOD_SNAPSHOT_LIST,
	METHOD_SNAPSHOT_SHOW,
	METHOD_SNAPSHOT_CANCEL,
	METHOD_SNAPSHOT_DELETE,
	METHOD_SNAPSHOT_FETCH,
	METHOD_TRIGGER_ADD,
	METHOD_TRIGGER_LIST,
	METHOD_TRIGGER_REMOVE,
	METHOD_SUBSCRIBE,
	METHOD_UNSUBSCRIBE,
	METHOD_PING, /* the daemon asks, the client answers */
	METHOD_GO_TRACE, /* likewise */
	_METHOD_MAX,
};

enum protocol_flags {
	METHOD_ADMIN = 1 << 0,       /* root and members of the socket's group only */
	METHOD_AUDIT = 1 << 1,       /* one log line for each call */
	METHOD_TO_CLIENT = 1 << 2,   /* sent by the daemon */
	METHOD_REPLY_FDS = 1 << 3,   /* the reply may carry descriptors */
};

struct protocol_method {
	const char *name;
	unsigned int flags;
	unsigned int max_fds; /* that a request may carry */
	const struct protocol_param *params;
	const char *result; /* the result's shape, in the words of the schema */
	const char *doc;
};
extern const struct protocol_method protocol_methods[_METHOD_MAX];

/* NULL: no such method. */
const struct protocol_method *protocol_method_find(const char *name);

/*
 * Checks `params` (NULL counts as {}) against the method's table: types, ranges, required ones.
 * 0, or API_BAD_PARAMS with a sentence in `why`.
 */
enum protocol_error protocol_check_params(
	const struct protocol_method *m, struct json_object *params, char *why, size_t why_size);

/*
 * Accessors for checked params: the value, or the table's default where it was not given (NULL, 0
 * or false without one). Asking for a parameter that the table does not list is our own bug.
 */
struct params {
	const struct protocol_method *method;
	struct json_object *object; /* borrowed, may be NULL */
};
bool params_has(const struct params *p, const char *name);
const char *params_string(const struct params *p, const char *name);
#define PROTOCOL_TARGET_SIZE 24 /* of an integer as text */
/* A PARAM_TARGET: its text, or its number in `buf`. */
const char *params_target_name(const struct params *p, const char *name,
			       char buf[PROTOCOL_TARGET_SIZE]);
int64_t params_int(const struct params *p, const char *name);
bool params_bool(const struct params *p, const char *name);
size_t params_count(const struct params *p, const char *name);
const char *params_nth(const struct params *p, const char *name, size_t i);

/* ---- events */

struct protocol_event {
	const char *name;
	const char *data; /* shape */
	const char *doc;
};
extern const struct protocol_event protocol_events[];
extern const size_t protocol_n_events;
/* Index in the table, or -1. */
int protocol_event_find(const char *name);

/* ---- limits: what the two sides may rely on */

struct protocol_limit {
	const char *name;
	int64_t value;
	const char *doc;
};
extern const struct protocol_limit protocol_limits[];
extern const size_t protocol_n_limits;
#define PROTOCOL_PAGE_DEFAULT 50
#define PROTOCOL_PAGE_MAX 500
#define PROTOCOL_FETCH_MAX 16

/*
 * ---- messages; each returns a new object, NULL or one without text where memory has failed.
 * Values are taken over.
 */

struct json_object *protocol_request(int64_t id, const char *method, struct json_object *params,
				     size_t n_fds);
struct json_object *protocol_result(int64_t id, struct json_object *result, size_t n_fds);
/* Without an id (a request that could not be read): has_id false gives "id":null. */
struct json_object *protocol_error(bool has_id, int64_t id, enum protocol_error code,
				   const char *message);
struct json_object *protocol_event(const char *event, uint64_t seq, uint64_t missed,
				   struct json_object *data);

/* The schema file's text as one object. */
struct json_object *protocol_schema(void);
