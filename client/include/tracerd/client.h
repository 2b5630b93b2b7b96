/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libtracerd: talk to the flight recorder daemon tracerd from C or C++.
 *
 * This is the control client: one connection to the daemon's Unix socket. A call has parameters and
 * an answer, both JSON texts, and may carry file descriptors in either direction. The daemon sends
 * events. `tracerd --print-schema` prints the schema with the methods, their parameters and their
 * limits.
 *
 * Rules that hold for every function here:
 *
 *  - Errors. 0 is success. A negative value is a negative errno: the call did not get through
 *    (-ECONNREFUSED or -ENOENT: no daemon, -ETIMEDOUT: no answer in time, -ECONNRESET: the daemon
 *    closed the connection, -EPROTO: it violated the protocol, -ENOMEM, ...).
 *    A positive value is one of enum tracerd_code: the daemon received the request and refused it;
 *    tracerd_error_message() returns its reason.
 *  - Outputs are set on success only.
 *  - Times are milliseconds. TRACERD_FOREVER waits without a limit.
 *  - Texts are NUL-terminated UTF-8. A `const char *` that a function returns belongs to the
 *    object that was its argument and lives as long as that object, unless stated otherwise.
 *  - File descriptors that are passed to the library stay the caller's. Those that the library
 *    returns belong to the reply until the caller takes them; all are close-on-exec.
 *  - A connection may be used by one thread at a time; different connections are independent. The
 *    control client starts no threads, installs no signal handlers, writes to no terminal and keeps
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

/* As a number of milliseconds: no limit. */
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
 * The path of the daemon's control socket: the environment variable TRACERD_SOCKET if it is set and
 * not empty (and the program is not set-user-ID), else the built-in path. Valid until the
 * environment changes.
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
 * On success the library owns `fd` and closes it in tracerd_close(); on error it stays the
 * caller's.
 */
int tracerd_connect_fd(int fd, tracerd_client **ret_client);

/* Closes the connection and frees it with all events that were not fetched. NULL is allowed. */
void tracerd_close(tracerd_client *client);

/*
 * The connection's socket, for a program that waits for events in its own loop. Whenever the socket
 * is readable, and once before the first wait, call tracerd_next_event() with a timeout of 0 until
 * it returns -EAGAIN: the library may have read events already. Do not read, write or close the
 * socket.
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
 * -EMSGSIZE (the request is larger than the protocol's 64 KiB), -ETIMEDOUT, -ECONNRESET, -EPROTO,
 * and every positive code. After -ETIMEDOUT the connection remains usable, and a late answer is
 * dropped. After -ECONNRESET, -EPROTO, or a timeout in the middle of sending, the connection is not
 * usable: every later call returns -ENOTCONN.
 */
int tracerd_call(tracerd_client *client, const char *method, const char *params, const int *fds,
		 size_t n_fds, int timeout_ms, tracerd_reply **ret_reply);

/* The "result" object of the answer, as JSON text. */
const char *tracerd_reply_json(const tracerd_reply *reply);

/* How many file descriptors came with the answer, taken or not. */
size_t tracerd_reply_fd_count(const tracerd_reply *reply);

/*
 * Takes the file descriptor at `index` from the answer; the caller owns it from now on.
 * -EBADF if there is none at that index or it was taken before.
 */
int tracerd_reply_take_fd(tracerd_reply *reply, size_t index);

/* Frees an answer and closes the descriptors that were not taken. NULL is allowed. */
void tracerd_reply_free(tracerd_reply *reply);

/*
 * Returns the next event, in order of arrival. The method "subscribe" asks for events. While it
 * waits, this answers the daemon's own requests.
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
 * How many events were lost just before this one: the daemon dropped them because this client read
 * too slowly, or the library dropped them because the program did not fetch them.
 */
uint64_t tracerd_event_missed(const tracerd_event *event);

/* Frees an event. NULL is allowed. */
void tracerd_event_free(tracerd_event *event);

/*
 * The daemon's reason, in a sentence, of the last call on this connection that returned a positive
 * code; "" if there was none. Valid until the next call on the connection.
 */
const char *tracerd_error_message(const tracerd_client *client);

/*
 * The name of an error that a function here returned: the protocol's code ("not_permitted") for a
 * positive one, else the short name of an errno ("ETIMEDOUT"). Static, never NULL.
 */
const char *tracerd_error_name(int error);

/*
 * ---- The calls that most tools need. Each makes one or a few calls of tracerd_call(), with its
 * errors and its timeout. `ret_reply` may be NULL unless stated otherwise. The protocol schema
 * describes the objects Target, Snapshot and Status. `target` is a target's id ("t3"), or the id of
 * a recorded process ("1234").
 */

/* How a process is to be recorded; zero means the default. */
typedef struct tracerd_arm_options {
	size_t size;	     /* sizeof(tracerd_arm_options), so that the struct can grow */
	const char *backend; /* what records: "auto" or a name that the schema lists */
	const char *stacks;  /* how stacks are found: "auto", "fp" or "dwarf" */
	int no_waits;	     /* not 0: do not record the stack of each wait */
} tracerd_arm_options;

/*
 * Starts to record a process with all its threads: {"target": Target}. The library opens
 * /proc/PID/maps and passes the descriptor to the daemon, so that the kernel decides whether the
 * caller may. `options` may be NULL. More errors: -ESRCH (there is no such process), -EINVAL.
 */
int tracerd_arm(tracerd_client *client, pid_t pid, const tracerd_arm_options *options,
		int timeout_ms, tracerd_reply **ret_reply);

/* Ends a recording and forgets it: {"target": Target}. */
int tracerd_disarm(tracerd_client *client, const char *target, int timeout_ms,
		   tracerd_reply **ret_reply);

/*
 * Takes a snapshot of the last moments of a target: {"snapshot": Snapshot}.
 *
 *  reason  free text that is kept in it, or NULL
 *  wait    not 0: wait until the snapshot has ended; its "state" is "done", "failed" or "cancelled"
 *          then. A
 *	    timeout does not end the snapshot
 *
 * tracerd_reply_text() returns its "snapshot.id" and "snapshot.state"; the method "snapshot.fetch"
 * fetches its files.
 */
int tracerd_take_snapshot(tracerd_client *client, const char *target, const char *reason, int wait,
			  int timeout_ms, tracerd_reply **ret_reply);

/* What tracerd_list() lists. */
enum tracerd_kind { TRACERD_TARGETS, TRACERD_SNAPSHOTS };

/*
 * Lists all that the caller may see: {"targets": [Target]} or {"snapshots": [Snapshot]}.
 * `ret_reply` must not be NULL.
 */
int tracerd_list(tracerd_client *client, enum tracerd_kind kind, int timeout_ms,
		 tracerd_reply **ret_reply);

/* Returns the daemon's state: Status. */
int tracerd_get_status(tracerd_client *client, int timeout_ms, tracerd_reply **ret_reply);

/*
 * A text of the answer, for programs without a JSON parser. `path` has the names of the members
 * that lead to the text ("snapshot.id"). NULL if there is none, or if it is no text. Lives as long
 * as the reply.
 */
const char *tracerd_reply_text(const tracerd_reply *reply, const char *path);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* TRACERD_CLIENT_H */
