/* SPDX-License-Identifier: Apache-2.0 */
/* What there is to say of a target that is sampled: how its stacks come about. */
#pragma once

#include "common/base/cleanup.h"

struct json_object;
struct target;

/*
 * How the stacks of its processes were unwound, null where they are not; which run Python. NULL on
 * allocation failure.
 */
struct json_object *describe_target(const struct target *target);
