/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The capabilities that tracerd can use, which of them it has, and what the others would give.
 * They are what the process was started with: nothing is raised here.
 */
#pragma once

#include "common/json.h"

/* ["perfmon", ...] of the effective set; NULL without memory. */
struct json_object *caps_have(void);
/* Appends {what, cost} for each that is lacking. */
void caps_lack(struct json_object *list);
