/* SPDX-License-Identifier: Apache-2.0 */
/* The grammar by itself, for json.c: is this text strict JSON within the limits of json.h? */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* True with the members of all objects together; else what is wrong, and at which byte. */
bool json_scan(const char *text, size_t len, size_t *ret_members, const char **ret_error, size_t *ret_at);
