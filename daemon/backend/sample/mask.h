/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of a ring's records belongs into a bundle. The rings of a shared group hold records of all
 * armed targets. A bundle gets those whose subject was a process of the target at the time, and of
 * others only what its reader may see: an admin sees kernel addresses and who ran instead, a user
 * only own processes.
 */
#pragma once

#include "daemon/backend/sample/sampling.h"
#include "daemon/perf/record.h"

struct frozen;

enum mask_answer { MASK_KEEP, MASK_FOREIGN, MASK_MALFORMED, MASK_OUTSIDE };

/* What becomes of a record of the source's rings, in place. */
enum mask_answer mask_record(const struct frozen *frozen, const struct source *source,
			     enum group_event event, struct record_view *view);
/*
 * When the stack of the record was taken: before its time, of a wait that ends with it. 0: at no
 * time.
 */
uint64_t mask_stack_ns(const struct record_view *view);
/* The same as mask_record() of one of a switch, of whatever time. */
enum mask_answer mask_sched(const struct frozen *frozen, struct record_view *view);
