/* SPDX-License-Identifier: Apache-2.0 */
/* The handlers, for the table; and what those of several nouns share. */
#pragma once

#include "daemon/methods/methods.h"

struct target;

enum protocol_error method_hello(struct call *call, struct json_object **ret_result);
enum protocol_error method_status(struct call *call, struct json_object **ret_result);
enum protocol_error method_config_show(struct call *call, struct json_object **ret_result);
enum protocol_error method_target_arm(struct call *call, struct json_object **ret_result);
enum protocol_error method_target_join(struct call *call, struct json_object **ret_result);
enum protocol_error method_target_disarm(struct call *call, struct json_object **ret_result);
enum protocol_error method_target_list(struct call *call, struct json_object **ret_result);
enum protocol_error method_target_show(struct call *call, struct json_object **ret_result);
enum protocol_error method_target_register(struct call *call, struct json_object **ret_result);
enum protocol_error method_snapshot_create(struct call *call, struct json_object **ret_result);
enum protocol_error method_snapshot_list(struct call *call, struct json_object **ret_result);
enum protocol_error method_snapshot_show(struct call *call, struct json_object **ret_result);
enum protocol_error method_snapshot_cancel(struct call *call, struct json_object **ret_result);
enum protocol_error method_snapshot_delete(struct call *call, struct json_object **ret_result);
enum protocol_error method_snapshot_fetch(struct call *call, struct json_object **ret_result);
enum protocol_error method_trigger_add(struct call *call, struct json_object **ret_result);
enum protocol_error method_trigger_list(struct call *call, struct json_object **ret_result);
enum protocol_error method_trigger_remove(struct call *call, struct json_object **ret_result);
enum protocol_error method_subscribe(struct call *call, struct json_object **ret_result);
enum protocol_error method_unsubscribe(struct call *call, struct json_object **ret_result);

/*
 * "cursor" of a list as the id after which the page starts (0: the first page); false: no cursor of
 * this daemon.
 */
bool cursor_read(const struct call *call, uint64_t *ret_after);
/* "next" of such a list. */
void cursor_add(struct json_object *result, bool more, uint64_t after);

/*
 * The target that parameter "target" names, if the caller may see it and no other has the same pid.
 */
enum protocol_error method_find_target(struct call *call, struct target **ret_target);
/* {target: T} for this caller. */
struct json_object *method_target_answer(struct call *call, struct target *target);
