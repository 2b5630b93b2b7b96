/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A source: rings that have, or had for a time, the records of a target. It has several while it
 * changes over from one group to another; the present one is the first. What rings lack is the
 * target's only as far as they were the target's.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct event_group;

/*
 * So often a service manager starts at once what crashes (systemd: five times in 10 s), and the
 * empty one behind it.
 */
#define SOURCES_MAX 6

struct source {
	struct event_group *group; /* referenced */
	uint64_t from_ns, to_ns;   /* when its clock was the target's */
	/* from then on it has nothing more of the target: switches take a moment to go elsewhere */
	uint64_t end_ns;
	uint64_t lost_at;	   /* what the group had lost when the target came */
	uint64_t lost_end;	   /* and when its recording ended; UINT64_MAX: it goes on */
};

/* What rings that have lost so much have lost since the target came, until its recording ended. */
uint64_t source_lost(const struct source *source, uint64_t lost);
/*
 * Since when the source has all of the target in its time, if its rings have everything since
 * `oldest_ns`.
 */
uint64_t source_complete_ns(const struct source *source, uint64_t oldest_ns);
/*
 * Since when the target is whole, with the rings of sources[i] whole since oldest_ns[i]. *ret_used,
 * which may be NULL: as many of them are needed for that; a source behind one that lacks something
 * adds nothing.
 */
uint64_t sources_complete_ns(const struct source *sources, const uint64_t *oldest_ns, size_t n,
			     size_t *ret_used);
