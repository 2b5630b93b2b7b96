// SPDX-License-Identifier: Apache-2.0
#include "daemon/target/backend.h"

#include <string.h>

const struct backend *const backends[BACKENDS] = {&backend_pt, &backend_sample, &backend_step,
						  &backend_events};

/* Without any, sampling: it says what is missing. */
static const struct backend *automatic(const struct targets *targets)
{
	char why[200];
	const char *method;

	for (size_t i = 0; backends[i] != &backend_sample; i++)
		if (backends[i]->probe(targets, &method, why, sizeof(why)))
			return backends[i];
	return &backend_sample;
}

const struct backend *backend_find(const struct targets *targets, const char *name)
{
	if (!name || strcmp(name, "auto") == 0)
		return automatic(targets);
	for (size_t i = 0; i < BACKENDS; i++)
		if (backends[i]->probe && strcmp(backends[i]->name, name) == 0)
			return backends[i];
	return NULL;
}
