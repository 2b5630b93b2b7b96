// SPDX-License-Identifier: Apache-2.0
#include "daemon/target/backend.h"

#include <string.h>

const struct backend *const backends[BACKENDS] = {&backend_sample, &backend_step, &backend_events};

const struct backend *backend_find(const char *name)
{
	if (!name || strcmp(name, "auto") == 0)
		return backends[0];
	for (size_t i = 0; i < BACKENDS; i++)
		if (backends[i]->probe && strcmp(backends[i]->name, name) == 0)
			return backends[i];
	return NULL;
}
