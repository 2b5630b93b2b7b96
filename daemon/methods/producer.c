// SPDX-License-Identifier: Apache-2.0
/*
 * The registration of a program's event rings. It lives on the connection that it came by: what ends one ends the
 * other.
 */
#include <errno.h>
#include <string.h>

#include "daemon/base/clockseries.h"
#include "daemon/methods/methods_internal.h"
#include "daemon/producer/producer.h"
#include "daemon/target/target.h"

struct registration {
	struct conn *conn; /* not owned; outlives it */
	struct producer *producer; /* referenced */
};

static void registration_free(struct registration *r)
{
	(void)producer_unref(r->producer);
	free(r);
}

/* ---- from the connection */

static void on_connection_gone(void *arg)
{
	struct registration *r = arg;

	producer_connect(r->producer, NULL);
	producer_end(r->producer);
	registration_free(r);
}

/* ---- from the producer */

static void on_control(void *arg)
{
	struct registration *r = arg;

	conn_post(r->conn, protocol_event("control.changed", 0, 0, json_object_new_object()));
}

static bool on_alive(void *arg)
{
	struct registration *r = arg;

	return conn_is_open(r->conn);
}

/* The process is gone; who else has its socket has nothing to say for it. */
static void on_ended(void *arg)
{
	struct registration *r = arg;
	struct conn *c = r->conn;

	registration_free(r);
	conn_detach(c);
	conn_close(c, "its process has ended");
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

static enum protocol_error name_fds(struct call *call, int *ret_rings, int *ret_wake)
{
	*ret_rings = *ret_wake = -1;
	if (call->n_fds != 2)
		return call_fail(call, API_BAD_PARAMS, "fds: names 2 descriptors, %zu came", call->n_fds);
	for (size_t i = 0; i < call->n_fds; i++) {
		const char *name = params_nth(&call->params, "fds", i);
		int *slot = strcmp(name, "rings") == 0 ? ret_rings : strcmp(name, "wake") == 0 ? ret_wake : NULL;

		if (!slot || *slot >= 0)
			return call_fail(call, API_BAD_PARAMS, "fds: %s",
					 slot ? "the same name twice" : "\"rings\" and \"wake\"");
		*slot = call->fds[i];
	}
	return API_OK;
}

/* The connection is the registration. */
static void undo_register(struct call *call)
{
	conn_shut(call->conn, "no memory for its registration");
}

enum protocol_error method_target_register(struct call *call, struct json_object **ret_result)
{
	struct methods *m = call->methods;
	struct registration *reg;
	struct producer *producer;
	struct target *target;
	int rings_fd, wake_fd, control_fd = -1, r;
	enum protocol_error e;
	char why[200] = "";

	e = name_fds(call, &rings_fd, &wake_fd);
	if (e != API_OK)
		return e;
	if (conn_is_attached(call->conn))
		return call_fail(call, API_BUSY, "this connection is a registration already");
	reg = calloc(1, sizeof(*reg));
	if (!reg)
		return call_fail(call, API_BUSY, "out of memory");
	reg->conn = call->conn;
	r = producers_register(m->producers, call->peer, rings_fd, wake_fd, &producer, &control_fd, why, sizeof(why));
	if (r != 0) {
		free(reg);
		return register_error(call, r, why);
	}
	reg->producer = producer_ref(producer);
	target = targets_of_program(m->targets, producer_pid(producer), producer_start_time(producer), call->peer->uid);
	if (!target || conn_attach(call->conn, on_connection_gone, reg) < 0) {
		(void)close_fd(control_fd);
		producer_end(producer);
		registration_free(reg);
		return call_fail(call, API_BUSY, "out of memory, or the process has just ended");
	}
	producer_connect(producer, &(struct producer_connection){
					   .control = on_control, .alive = on_alive, .ended = on_ended, .arg = reg});
	clockseries_start(m->clocks);
	call_object(call, target_name(target));
	call->reply_fds[call->n_reply_fds++] = control_fd;
	*ret_result = method_target_answer(call, target);
	call->undo = undo_register;
	return API_OK;
}
