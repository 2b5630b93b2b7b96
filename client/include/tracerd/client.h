/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libtracerd: talk to the flight recorder daemon tracerd from C or C++.
 *
 * This is the control client: one connection to the daemon's Unix socket, calls with a JSON text
 * as parameters and a JSON text as answer, file descriptors in both directions, and the daemon's
 * events. Methods, their parameters and their limits are in the protocol schema that comes with
 * tracerd (`tracerd --print-schema`).
 *
 * Rules that hold for every function here:
 *
 *  - Errors. 0 is success. A negative value is a negative errno: the call did not get through
 *    (-ECONNREFUSED or -ENOENT: no daemon, -ETIMEDOUT: no answer in time, -ECONNRESET: the daemon
 *    closed the connection, -EPROTO: it said something that is not the protocol, -ENOMEM, ...).
 *    A positive value is one of enum tracerd_code: the daemon received the request and refused it;
 *    tracerd_error_message() has its words.
 *  - Outputs are set on success only.
 *  - Times are milliseconds. TRACERD_FOREVER waits without a limit.
 *  - Texts are NUL-terminated UTF-8. What a function returns as `const char *` belongs to the
 *    object it was asked of and lives as long as that object, unless it says otherwise.
 *  - File descriptors given to the library stay the caller's. Those that it hands out belong to
 *    the reply until they are taken from it; all are close-on-exec.
 *  - A connection may be used by one thread at a time; different connections are independent.
 *    The control client starts no threads, installs no signal handlers, writes to no terminal and keeps
 *    no global state. After fork() the child must not use the parent's connection.
 *
 * Example:
 *
 *	tracerd_client *c = NULL;
 *	tracerd_reply *r = NULL;
 *
 *	if (tracerd_connect(NULL, 1000, &c) == 0 &&
 *	    tracerd_list(c, TRACERD_TARGETS, 5000, &r) == 0)
 *		puts(tracerd_reply_json(r));
 *	tracerd_reply_free(r);
 *	tracerd_close(c);
 */
#ifndef TRACERD_CLIENT_H
#define TRACERD_CLIENT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* A connection to the daemon. */
typedef struct tracerd_client tracerd_client;

/* The answer to one call. */
typedef struct tracerd_reply tracerd_reply;

/* One event of the daemon, after the method "subscribe". */
typedef struct tracerd_event tracerd_event;

/* No limit, where a number of milliseconds is asked for. */
#define TRACERD_FOREVER (-1)

/* The greatest number of file descriptors in one call or one reply. */
#define TRACERD_MAX_FDS 16

/* Why the daemon refused a request: the error codes of the protocol. */
enum tracerd_code {
	TRACERD_E_UNKNOWN = 1,	    /* a code that this library does not know: a newer daemon */
	TRACERD_E_BAD_REQUEST,	    /* "bad_request": the envelope is not valid */
	TRACERD_E_UNKNOWN_METHOD,   /* "unknown_method" */
	TRACERD_E_BAD_PARAMS,	    /* "bad_params": missing, of a wrong type or out of range */
	TRACERD_E_TOO_LARGE,	    /* "too_large": over a limit of size or count */
	TRACERD_E_NOT_FOUND,	    /* "not_found": no such process, target or snapshot */
	TRACERD_E_GONE,		    /* "gone": it was there, and has exited or was removed */
	TRACERD_E_NOT_PERMITTED,    /* "not_permitted" */
	TRACERD_E_QUOTA,	    /* "quota": the user's share is used up */
	TRACERD_E_BUSY,		    /* "busy": may work later */
	TRACERD_E_UNSUPPORTED,	    /* "unsupported": not on this machine or kernel */
	TRACERD_E_IO,		    /* "io" */
	TRACERD_E_NO_SPACE,	    /* "no_space": the disk or the spool is full */
	TRACERD_E_TIMEOUT,	    /* "timeout": the daemon's own deadline passed */
	TRACERD_E_CANCELLED,	    /* "cancelled" */
	TRACERD_E_SHUTTING_DOWN,    /* "shutting_down" */
	TRACERD_E_DECODE_FAILED,    /* "decode_failed": recorded, but not decoded */
	TRACERD_E_INTERNAL	    /* "internal" */
};

/*
 * The library's version, "MAJOR.MINOR.PATCH". Static.
 */
const char *tracerd_version(void);

/*
 * Where the daemon's control socket is expected: the environment variable TRACERD_SOCKET if it is
 * set and not empty (and the program is not set-user-ID), else the path that was built in. Valid
 * until the environment is changed.
 */
const char *tracerd_default_socket(void);

/*
 * Connects to the daemon.
 *
 *  path        the control socket, or NULL for tracerd_default_socket()
 *  timeout_ms  how long to wait for a daemon whose queue of connections is full
 *  ret_client  the connection; release it with tracerd_close()
 *
 * Nothing is sent yet. Errors: -ENOENT or -ECONNREFUSED (no daemon), -EACCES (the socket's mode
 * forbids it), -ENAMETOOLONG (path longer than a socket address holds), -ETIMEDOUT, -ENOMEM and
 * others of socket(2) and connect(2).
 */
int tracerd_connect(const char *path, int timeout_ms, tracerd_client **ret_client);

/*
 * Takes over a connected stream socket, for programs that were handed one.
 * On success the library owns `fd` and closes it in tracerd_close(); on error it stays the caller's.
 */
int tracerd_connect_fd(int fd, tracerd_client **ret_client);

/* Closes the connection and frees it, with all events not fetched yet. NULL is allowed. */
void tracerd_close(tracerd_client *client);

/*
 * The connection's socket, to wait for events in a loop of one's own: when it is readable, call
 * tracerd_next_event() with a timeout of 0 until it returns -EAGAIN. Before the first wait do so
 * too: events may have been read already. Do not read, write or close it.
 */
int tracerd_get_fd(const tracerd_client *client);

/*
 * Calls a method and waits for its answer.
 *
 *  method      e.g. "target.arm"
 *  params      a JSON object as text, or NULL for {}
 *  fds, n_fds  file descriptors that go with the request (at most TRACERD_MAX_FDS), NULL and 0
 *  timeout_ms  for sending and answering together
 *  ret_reply   the answer; release it with tracerd_reply_free(). May be NULL if only success is
 *              of interest
 *
 * Events that arrive meanwhile are kept for tracerd_next_event(), at most 1024; the daemon's own
 * requests to the client are answered. Errors: -EINVAL (params is not a JSON object, too many fds),
 * -EMSGSIZE (the request is over the protocol's 64 KiB), -ETIMEDOUT, -ECONNRESET, -EPROTO, and
 * every positive code. After -ETIMEDOUT the connection remains usable, a late answer is dropped;
 * after -ECONNRESET, -EPROTO, and a timeout in the middle of sending it is not, and every later
 * call returns -ENOTCONN.
 */
int tracerd_call(tracerd_client *client, const char *method, const char *params, const int *fds,
		 size_t n_fds, int timeout_ms, tracerd_reply **ret_reply);

/* The "result" object of the answer, as JSON text. */
const char *tracerd_reply_json(const tracerd_reply *reply);

/* How many file descriptors came with the answer, taken or not. */
size_t tracerd_reply_fd_count(const tracerd_reply *reply);

/*
 * The file descriptor at `index` of the answer, which from now on belongs to the caller.
 * -EBADF if there is none at that index or it was taken before.
 */
int tracerd_reply_take_fd(tracerd_reply *reply, size_t index);

/* Frees an answer and closes the descriptors that were not taken. NULL is allowed. */
void tracerd_reply_free(tracerd_reply *reply);

/*
 * The next event, in order of arrival; the method "subscribe" asks for them. Answers the daemon's
 * own requests while it waits.
 *
 *  timeout_ms  0: only what is there already
 *  ret_event   the event; release it with tracerd_event_free()
 *
 * Errors: -EAGAIN (timeout_ms is 0 and there is none), -ETIMEDOUT, -ECONNRESET, -EPROTO, -ENOTCONN.
 */
int tracerd_next_event(tracerd_client *client, int timeout_ms, tracerd_event **ret_event);

/* The event's name, e.g. "snapshot.state". */
const char *tracerd_event_name(const tracerd_event *event);

/* Its "data" object, as JSON text. */
const char *tracerd_event_json(const tracerd_event *event);

/* The daemon's number of the event on this connection; it counts up by one. */
uint64_t tracerd_event_seq(const tracerd_event *event);

/*
 * How many events were lost just before this one, because this client read too slowly (dropped
 * by the daemon) or did not fetch them (dropped here).
 */
uint64_t tracerd_event_missed(const tracerd_event *event);

/* Frees an event. NULL is allowed. */
void tracerd_event_free(tracerd_event *event);

/*
 * The daemon's words for the last call on this connection that returned a positive code, made for
 * people; "" if there was none. Valid until the next call on the connection.
 */
const char *tracerd_error_message(const tracerd_client *client);

/*
 * The name of an error that a function here returned: the protocol's code ("not_permitted") for a
 * positive one, else the short name of an errno ("ETIMEDOUT"). Static, never NULL.
 */
const char *tracerd_error_name(int error);

/*
 * ---- The calls that most tools need. Each is one or a few of tracerd_call(), with its errors and its
 * timeout; `ret_reply` may be NULL where it is not said otherwise. What the objects Target, Snapshot and Status
 * hold is in the protocol schema. `target` is a target's id ("t3"), or the number of a process that
 * is recorded ("1234").
 */

/* How a process is to be recorded; zero means the default. */
typedef struct tracerd_arm_options {
	size_t size;	     /* sizeof(tracerd_arm_options), so that the struct can grow */
	const char *backend; /* what records: "auto" or a name that the schema lists */
	const char *stacks;  /* how stacks are found: "auto", "fp" or "dwarf" */
	int no_waits;	     /* do not record the stack of each wait */
} tracerd_arm_options;

/*
 * Starts to record a process, with all its threads: {"target": Target}. Opens /proc/PID/maps and passes it
 * on, by which the kernel, and not the daemon, decides whether the caller may. `options` may be NULL.
 * Also: -ESRCH (there is no such process), -EINVAL.
 */
int tracerd_arm(tracerd_client *client, pid_t pid, const tracerd_arm_options *options, int timeout_ms,
		tracerd_reply **ret_reply);

/* Ends a recording and forgets it: {"target": Target}. */
int tracerd_disarm(tracerd_client *client, const char *target, int timeout_ms, tracerd_reply **ret_reply);

/*
 * Takes a snapshot of the last moments of a target: {"snapshot": Snapshot}.
 *
 *  reason  free text that is kept in it, or NULL
 *  wait    not 0: wait for its end; its "state" then is "done", "failed" or "cancelled". After a
 *	    timeout the snapshot goes on without the caller
 *
 * Ask tracerd_reply_text() for "snapshot.id" and "snapshot.state"; the method "snapshot.fetch" gets its
 * files.
 */
int tracerd_take_snapshot(tracerd_client *client, const char *target, const char *reason, int wait, int timeout_ms,
			  tracerd_reply **ret_reply);

/* What tracerd_list() lists. */
enum tracerd_kind { TRACERD_TARGETS, TRACERD_SNAPSHOTS };

/*
 * All that the caller may see, every page of it: {"targets": [Target]} or {"snapshots": [Snapshot]}.
 * `ret_reply` must not be NULL.
 */
int tracerd_list(tracerd_client *client, enum tracerd_kind kind, int timeout_ms, tracerd_reply **ret_reply);

/* The daemon's state: Status. */
int tracerd_get_status(tracerd_client *client, int timeout_ms, tracerd_reply **ret_reply);

/*
 * A text of the answer, by the names of the members on the way to it ("snapshot.id"), for programs
 * without a JSON parser. NULL if there is none, or if it is no text. Lives as long as the reply.
 */
const char *tracerd_reply_text(const tracerd_reply *reply, const char *path);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* TRACERD_CLIENT_H */
