/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command that lists: all pages of one of the daemon's lists, as JSON, as bare ids or as a table.
 */
#pragma once

#include <stdio.h>

#include "client/core/ctl.h"
#include "client/ui/option.h"

struct listing {
	const char *method, *member;	/* of the protocol: "target.list", "targets" */
	struct json_object *params;	/* of the method, borrowed; NULL: none */
	const char *empty;		/* printed instead of an empty table */
	void (*view)(FILE *out, struct json_object *array);
};

/* The options of each such command, and their table. */
struct listing_options {
	bool ids;
};
extern const struct option_spec listing_specs[];

/* Returns an exit code. */
int listing_print(struct ctl *ctl, const struct listing_options *o, const struct listing *listing);
