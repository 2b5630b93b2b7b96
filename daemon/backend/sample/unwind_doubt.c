// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/unwind_doubt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void unwind_doubts_fini(struct unwind_doubts *d)
{
	free(d->v);
	*d = (struct unwind_doubts){0};
}

static void forget(struct unwind_doubts *d, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t to = d->v[i].to_ns == UINT64_MAX ? d->v[i].from_ns : d->v[i].to_ns;

		if (to > d->lost_ns)
			d->lost_ns = to;
	}
	memmove(d->v, d->v + n, (d->n - n) * sizeof(*d->v));
	d->n -= n;
}

void unwind_doubts_begin(struct unwind_doubts *d, const struct unwind_doubt *doubt)
{
	if (!d->v)
		d->v = calloc(UNWIND_DOUBTS_MAX, sizeof(*d->v));
	if (!d->v) {
		d->lost_ns = doubt->from_ns;
		return;
	}
	if (d->n == UNWIND_DOUBTS_MAX)
		forget(d, UNWIND_DOUBTS_MAX / 4);
	d->v[d->n++] = *doubt;
}

void unwind_doubts_end(struct unwind_doubts *d, uint32_t pid, uint64_t now_ns)
{
	for (size_t i = 0; i < d->n; i++)
		if (d->v[i].pid == pid && d->v[i].to_ns == UINT64_MAX)
			d->v[i].to_ns = now_ns;
}

int unwind_doubts_copy(const struct unwind_doubts *d, struct unwind_doubts *ret)
{
	struct unwind_doubt *v = NULL;

	if (d->n) {
		v = reallocarray(NULL, d->n, sizeof(*v));
		if (!v)
			return -ENOMEM;
		memcpy(v, d->v, d->n * sizeof(*v));
	}
	*ret = (struct unwind_doubts){.v = v, .n = d->n, .lost_ns = d->lost_ns};
	return 0;
}

bool unwind_doubts_believes(const struct unwind_doubts *d, uint32_t pid, uint64_t time_ns,
			    const uint64_t *chain, size_t n)
{
	if (time_ns < d->lost_ns)
		return false;
	for (size_t i = 0; i < d->n; i++) {
		const struct unwind_doubt *doubt = &d->v[i];

		if (doubt->pid != pid || time_ns < doubt->from_ns || time_ns > doubt->to_ns)
			continue;
		for (size_t k = 0; k < n; k++)
			if (chain[k] >= doubt->start && chain[k] <= doubt->end)
				return false;
	}
	return true;
}
