// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/source.h"

uint64_t source_lost(const struct source *source, uint64_t lost)
{
	if (lost > source->lost_end)
		lost = source->lost_end;
	return lost > source->lost_at ? lost - source->lost_at : 0;
}

uint64_t source_complete_ns(const struct source *source, uint64_t oldest_ns)
{
	/* What others have overwritten since the target left them was not the target's. */
	const uint64_t ns = oldest_ns < source->end_ns ? oldest_ns : source->end_ns;

	return ns > source->from_ns ? ns : source->from_ns;
}

uint64_t sources_complete_ns(const struct source *sources, const uint64_t *oldest_ns, size_t n,
			     size_t *ret_used)
{
	uint64_t ns = 0;
	size_t used = 0;

	while (used < n) {
		const struct source *source = &sources[used];

		ns = source_complete_ns(source, oldest_ns[used]);
		used++;
		if (ns == source->from_ns)
			continue;
		/*
		 * Some of what is lacking may be in the rings before it, where the last switches
		 * went.
		 */
		if (used < n && sources[used].end_ns != UINT64_MAX && sources[used].end_ns > ns)
			ns = sources[used].end_ns;
		break;
	}
	if (ret_used)
		*ret_used = used;
	return ns;
}
