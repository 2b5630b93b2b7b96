/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must be known of all records before the first is replayed. Owns the one walk over them that
 * finds it out. The decoder of PT (decode/replay/pt.h) and the maps that it needs take part in it;
 * where nobody has to know anything there is none.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/perf/data.h"

struct process_maps;
struct replay_pt;

struct prescan {
	uint64_t period_ns; /* that a sample stands for; 0: not known */
	/*
	 * Where perf's rings kept only the newest (record --overwrite): since when there is all of
	 * every CPU; 0 if they did not, or nothing of them was overwritten.
	 */
	uint64_t complete_from_ns;
	/* Records were lost in these, in the order of their ends. */
	struct prescan_loss {
		uint64_t begin, end;
	} *losses;
	size_t n_losses;
};

struct prescan_options {
	struct perfdata *pd;
	struct replay_pt *pt; /* NULL: the recording has no PT */
	struct process_maps *maps; /* with PT; without, the session feeds them */
	bool complete_from;   /* nothing else says when */
};
/* The next record is then the first again. 0 or -errno. */
int prescan_run(const struct prescan_options *o, struct prescan *ret) _must_check_;
void prescan_fini(struct prescan *p);
