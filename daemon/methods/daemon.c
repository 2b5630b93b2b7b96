// SPDX-License-Identifier: Apache-2.0
/* Methods about the daemon and the connection itself. */
#include <string.h>

#include "common/base/escape.h"
#include "daemon/caps.h"
#include "daemon/config.h"
#include "daemon/methods/methods_internal.h"
#include "daemon/status/picture.h"

enum protocol_error method_hello(struct call *call, struct json_object **ret_result)
{
	struct json_object *o = json_object_new_object();

	json_add_string(o, "version", PACKAGE_VERSION);
	json_add_int(o, "protocol", PROTOCOL_VERSION);
	json_add_uint(o, "uid", call->peer->uid);
	json_add_string(o, "role", call->peer->admin ? "admin" : "user");
	json_add(o, "capabilities", caps_have());
	*ret_result = o;
	return API_OK;
}

enum protocol_error method_status(struct call *call, struct json_object **ret_result)
{
	struct picture *p = pictures_get(call->methods->pictures);

	if (!p)
		return call_fail(call, API_BUSY, "out of memory");
	*ret_result = json_object_get(picture_object(p));
	picture_unref(p);
	return API_OK;
}

enum protocol_error method_config_show(struct call *call, struct json_object **ret_result)
{
	struct json_object *o = json_object_new_object();

	json_add(o, "config", config_to_json(call->methods->config));
	*ret_result = o;
	return API_OK;
}

enum protocol_error method_subscribe(struct call *call, struct json_object **ret_result)
{
	size_t n = params_count(&call->params, "events");
	uint64_t mask = n == 0 ? UINT64_MAX : 0;

	for (size_t i = 0; i < n; i++) {
		const char *name = params_nth(&call->params, "events", i);
		int e = protocol_event_find(name);
		char shown[64];

		if (e < 0) {
			(void)escape_text(shown, sizeof(shown), name, strlen(name));
			return call_fail(call, API_BAD_PARAMS, "events: no event is named \"%s\"",
					 shown);
		}
		mask |= UINT64_C(1) << e;
	}
	if (conn_subscribe(call->conn, mask) < 0)
		return call_fail(call, API_BUSY, "out of memory");
	*ret_result = json_object_new_object();
	return API_OK;
}

enum protocol_error method_unsubscribe(struct call *call, struct json_object **ret_result)
{
	(void)!conn_subscribe(call->conn, 0); /* nothing is allocated for none */
	*ret_result = json_object_new_object();
	return API_OK;
}
