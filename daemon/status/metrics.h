/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenMetrics text out of the status object, by one const table: what is in /metrics is in
 * /status too, under the path that the table names.
 */
#pragma once

#include <stddef.h>

#include "common/control/json.h"

/* The whole exposition, NUL-terminated; the caller frees it. NULL without memory. */
char *metrics_render(struct json_object *status, size_t *ret_len);
