/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounds of what a file says of where goroutines are (common/bundle/goroutine.h): what is read of a
 * thread's memory is decided by these numbers. On the way from the decoder to the daemon they are
 * an array.
 */
#pragma once

#include <stdbool.h>

#include "common/base/cleanup.h"
#include "common/bundle/goroutine.h"

struct json_object;

bool go_layout_ok(const struct go_layout *layout);
/* NULL on allocation failure. */
struct json_object *go_layout_json(const struct go_layout *layout);
/* 0; -EBADMSG: it is none, or is not go_layout_ok(). */
int go_layout_parse(struct json_object *array, struct go_layout *ret) _must_check_;
