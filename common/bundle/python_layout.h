/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of an interpreter (common/bundle/python.h) as JSON, in which tracerd-decode tells it
 * to the daemon.
 */
#pragma once

#include <stdbool.h>

#include "common/base/cleanup.h"
#include "common/bundle/python.h"

struct json_object;

struct json_object *python_layout_json(const struct python_layout *layout);
/* 0, or -EBADMSG: something is missing, or so far that it would not be read. */
int python_layout_parse(struct json_object *array, struct python_layout *ret) _must_check_;
/* Whether the program can go by it. */
bool python_layout_ok(const struct python_layout *layout);
