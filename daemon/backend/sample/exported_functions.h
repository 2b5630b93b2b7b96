/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Python functions that the stacks of a bundle have: collected while these are copied, then
 * written. The copier's.
 */
#pragma once

#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/base/hashmap.h"
#include "daemon/backend/sample/unwound.h"

struct python;

struct exported_functions {
	struct python *from;  /* borrowed; NULL: none are found */
	struct hashmap wanted; /* by number */
	uint64_t missing;     /* of these, not known any more */
};

void exported_functions_fini(struct exported_functions *f);
/* A record that was expanded and is copied. */
void exported_functions_see(struct exported_functions *f, const struct record_view *view);
/*
 * The next one as a record of event `id`; starts at *pos = 0. How long it is; 0: there is no more.
 */
size_t exported_functions_next(struct exported_functions *f, uint32_t *pos, uint64_t id,
			       uint64_t time_ns, uint8_t buf[static UNWOUND_RECORD_MAX]);
