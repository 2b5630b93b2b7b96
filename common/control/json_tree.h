/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of json.h share: json-c's trees where memory may fail. */
#pragma once

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Adds a member that is not there yet. False: no memory, `o` is as before and `value` still the
 * caller's. json_object_object_add() by itself loses its copy of the key when the table cannot
 * grow, so the table grows first.
 */
bool json_tree_add(struct json_object *o, const char *key, struct json_object *value);

/* Something was to be added to this object or array and memory failed. */
void json_tree_break(struct json_object *o);
bool json_tree_is_broken(struct json_object *o);
