// SPDX-License-Identifier: Apache-2.0
/*
 * The names of errors.
 */
#include <string.h>

#include "client/lib/client_internal.h"

static const char *const code_names[] = {
	[TRACERD_E_UNKNOWN] = "unknown",
	[TRACERD_E_BAD_REQUEST] = "bad_request",
	[TRACERD_E_UNKNOWN_METHOD] = "unknown_method",
	[TRACERD_E_BAD_PARAMS] = "bad_params",
	[TRACERD_E_TOO_LARGE] = "too_large",
	[TRACERD_E_NOT_FOUND] = "not_found",
	[TRACERD_E_GONE] = "gone",
	[TRACERD_E_NOT_PERMITTED] = "not_permitted",
	[TRACERD_E_QUOTA] = "quota",
	[TRACERD_E_BUSY] = "busy",
	[TRACERD_E_UNSUPPORTED] = "unsupported",
	[TRACERD_E_IO] = "io",
	[TRACERD_E_NO_SPACE] = "no_space",
	[TRACERD_E_TIMEOUT] = "timeout",
	[TRACERD_E_CANCELLED] = "cancelled",
	[TRACERD_E_SHUTTING_DOWN] = "shutting_down",
	[TRACERD_E_DECODE_FAILED] = "decode_failed",
	[TRACERD_E_INTERNAL] = "internal",
};

enum tracerd_code code_from_name(const char *name)
{
	for (size_t i = TRACERD_E_UNKNOWN; i < ARRAY_SIZE(code_names); i++) {
		if (!strcmp(code_names[i], name))
			return (enum tracerd_code)i;
	}
	return TRACERD_E_UNKNOWN;
}

const char *tracerd_error_name(int error)
{
	const char *name;

	if (error == 0)
		return "ok";
	if (error > 0)
		return (size_t)error < ARRAY_SIZE(code_names) ? code_names[error] : "unknown";
	name = strerrorname_np(-error);
	return name ? name : "unknown";
}
