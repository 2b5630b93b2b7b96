// SPDX-License-Identifier: Apache-2.0
/*
 * A unit that is stopped and started again: its control group goes, and another one comes under the
 * same path. The target goes on with that; what the old processes have left stays with it, as in a
 * target that has exited.
 */
#include "common/base/raw_clock.h"
#include "daemon/config.h"
#include "daemon/target/backend.h"
#include "daemon/target/target_internal.h"
#include "daemon/target/unit_watch.h"

/*
 * Each look may open and close events on all CPUs, and the owner of a control group may make and
 * remove it as often as he likes.
 */
#define LOOKS_MAX 8

void unit_look(struct target *target)
{
	if (target->watched.looks == LOOKS_MAX)
		return;
	target->watched.looks++;
	target_work(target, WORK_SCAN);
}

void unit_away(struct target *target)
{
	const uint64_t now = clock_raw_ns(),
		       keep_ns = (uint64_t)target->targets->config->exited_keep_s * 1000000000u;

	if (!target->away_ns) {
		target->away_ns = now;
		members_end(target, now);
		target_report_end(target);
	} else if (now - target->away_ns >= keep_ns) {
		target_exited(target, target->away_ns);
	}
}

void unit_back(struct target *target, struct cgroup *cgroup)
{
	/* Whoever was in the old one has ended: one with the same number is another process. */
	members_end(target, clock_raw_ns());
	cgroup_close(&target->cgroup);
	target->cgroup = *cgroup;
	cgroup->dirfd = -1;
	target->away_ns = 0;
	unit_watch_set(target->targets->unit_watch, target);
	/*
	 * Its events first: what a process does between its joining and them would be drawn as
	 * sleep.
	 */
	if (target->backend->review)
		target->backend->review(target, false);
	unit_look(target);
}
