// SPDX-License-Identifier: Apache-2.0
/*
 * target.register: a producer attached to the connection that it registered by. The end of one ends
 * the other.
 */
#include <errno.h>
#include <string.h>

#include "daemon/base/clockseries.h"
#include "daemon/methods/methods_internal.h"
#include "daemon/producer/producer.h"
#include "daemon/target/target.h"

struct attachment {
	struct conn *conn; /* not owned; outlives it */
	struct producer *producer; /* referenced */
};

static void attachment_free(struct attachment *a)
{
	(void)producer_unref(a->producer);
	free(a);
}

/* ---- from the connection */

static void on_connection_gone(void *arg)
{
	struct attachment *a = arg;

	producer_connect(a->producer, NULL);
	producer_end(a->producer);
	attachment_free(a);
}

/* ---- from the producer */

static void on_control(void *arg)
{
	struct attachment *a = arg;

	conn_post(a->conn, protocol_event("control.changed", 0, 0, json_object_new_object()));
}

static bool on_alive(void *arg)
{
	struct attachment *a = arg;

	return conn_is_open(a->conn);
}

/* The process is gone; another that has its socket does not speak for it. */
static void on_ended(void *arg)
{
	struct attachment *a = arg;
	struct conn *c = a->conn;

	attachment_free(a);
	conn_detach(c);
	conn_close(c, "its process has ended");
}

static int on_go_ask(void *arg, struct json_object *params, producer_go_fn done, void *done_arg,
		     void **ret)
{
	struct attachment *a = arg;
	struct ask *ask;
	int r = conn_ask(a->conn, protocol_methods[METHOD_GO_TRACE].name, params, done, done_arg,
			 &ask);

	if (r == 0)
		*ret = ask;
	return r;
}

static void on_go_drop(void *request)
{
	ask_drop(request);
}

static enum protocol_error register_error(struct call *call, int r, const char *why)
{
	static const enum protocol_error answers[] = {
		[PRODUCER_E_BAD] = API_BAD_PARAMS,
		[PRODUCER_E_TOO_LARGE] = API_TOO_LARGE,
		[PRODUCER_E_QUOTA] = API_QUOTA,
		[PRODUCER_E_BUSY] = API_BUSY,
		[PRODUCER_E_GONE] = API_GONE,
		[PRODUCER_E_UNSUPPORTED] = API_UNSUPPORTED,
	};

	if (r > 0)
		return call_fail(call, answers[r], "%s", why);
	return call_fail(call, protocol_error_from_errno(r), "event rings: %s", strerror(-r));
}

static enum protocol_error name_fds(struct call *call, int *ret_rings, int *ret_wake,
				    int *ret_stream)
{
	*ret_rings = *ret_wake = *ret_stream = -1;
	if (call->n_fds != 2 && call->n_fds != 3)
		return call_fail(call, API_BAD_PARAMS,
				 "fds: 2 or 3 descriptors are required, but %zu were sent",
				 call->n_fds);
	if (params_count(&call->params, "fds") != call->n_fds)
		return call_fail(call, API_BAD_PARAMS,
				 "fds: names %zu descriptors, but %zu were sent",
				 params_count(&call->params, "fds"), call->n_fds);
	for (size_t i = 0; i < call->n_fds; i++) {
		const char *name = params_nth(&call->params, "fds", i);
		int *slot = strcmp(name, "rings") == 0	     ? ret_rings
			    : strcmp(name, "wake") == 0	     ? ret_wake
			    : strcmp(name, "go_stream") == 0 ? ret_stream
							     : NULL;

		if (!slot || *slot >= 0)
			return call_fail(
				call, API_BAD_PARAMS, "fds: %s",
				slot ? "names a descriptor twice"
				     : "a descriptor must be \"rings\", \"wake\" or \"go_stream\"");
		*slot = call->fds[i];
	}
	if (*ret_rings < 0 || *ret_wake < 0)
		return call_fail(call, API_BAD_PARAMS, "fds: \"rings\" and \"wake\" are required");
	return API_OK;
}

/* The producer lives on its connection. */
static void undo_register(struct call *call)
{
	conn_shut(call->conn, "no memory to answer its producer");
}

enum protocol_error method_target_register(struct call *call, struct json_object **ret_result)
{
	struct methods *m = call->methods;
	struct attachment *a;
	struct producer *producer;
	struct target *target;
	int rings_fd, wake_fd, stream_fd, control_fd = -1, r;
	enum protocol_error e;
	char why[200] = "";

	e = name_fds(call, &rings_fd, &wake_fd, &stream_fd);
	if (e != API_OK)
		return e;
	if (conn_is_attached(call->conn))
		return call_fail(call, API_BUSY, "this connection has a producer already");
	a = calloc(1, sizeof(*a));
	if (!a)
		return call_fail(call, API_BUSY, "out of memory");
	a->conn = call->conn;
	r = producers_register(m->producers, call->peer, rings_fd, wake_fd, &producer, &control_fd,
			       why, sizeof(why));
	if (r != 0) {
		free(a);
		return register_error(call, r, why);
	}
	a->producer = producer_ref(producer);
	r = stream_fd >= 0 ? producer_set_go_stream(producer, stream_fd, why, sizeof(why)) : 0;
	if (r != 0) {
		(void)close_fd(control_fd);
		producer_end(producer);
		attachment_free(a);
		return register_error(call, r, why);
	}
	target = targets_of_producer(m->targets, producer_pid(producer),
				     producer_start_time(producer), call->peer->uid);
	if (!target || conn_attach(call->conn, on_connection_gone, a) < 0) {
		(void)close_fd(control_fd);
		producer_end(producer);
		attachment_free(a);
		return call_fail(call, API_BUSY, "out of memory, or the process has just ended");
	}
	producer_connect(producer, &(struct producer_connection){.control = on_control,
								 .alive = on_alive,
								 .ended = on_ended,
								 .go_ask = on_go_ask,
								 .go_drop = on_go_drop,
								 .arg = a});
	if (params_has(&call->params, "go"))
		producer_set_go(producer, params_string(&call->params, "go"),
				(uint64_t)params_int(&call->params, "go_keep_ns"));
	clockseries_start(m->clocks);
	call_object(call, target_name(target));
	call->reply_fds[call->n_reply_fds++] = control_fd;
	*ret_result = method_target_answer(call, target);
	call->undo = undo_register;
	return API_OK;
}
