/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records whose stack was unwound in the kernel, as the rings have them (common/bundle/schedev.h), made into what other stacks
 * are in: a tick's into a sample of the clock, others into a "sched" record with a call chain. Registers and stack bytes, for
 * which these events have fields, are not there, and the record says so.
 */
#pragma once

#include "daemon/backend/sample/event_group.h"
#include "daemon/perf/record.h"

#define UNWOUND_RECORD_MAX 2048u

/*
 * `view` is of a record of `*event`. 0: it is no such record; 1: *view and *event are of the one that was made, in `buf`;
 * -EBADMSG.
 */
int unwound_expand(const struct event_group *group, struct record_view *view, enum group_event *event,
		   uint8_t buf[static UNWOUND_RECORD_MAX]) _must_check_;
