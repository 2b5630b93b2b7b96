/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is asked of the kernel for a PT recording: the attribute of the tracing event, and that of
 * the dummy event whose records of switches say whose instructions a CPU's bytes are. One table has
 * the settings; what a processor lacks is left out or replaced by the nearest that it has, and said
 * in words. Opens nothing.
 */
#pragma once

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "daemon/backend/pt/pmu.h"

/* How often the trace says the time, and so how much it costs. */
enum pt_timing { PT_TIMING_LOW, PT_TIMING_NORMAL, PT_TIMING_HIGH, PT_TIMINGS };
const char *pt_timing_name(enum pt_timing timing);
/* PT_TIMINGS: there is none of this name. */
enum pt_timing pt_timing_find(const char *name);

struct pt_attr_spec {
	enum pt_timing timing;
	bool inherit;	       /* threads to come */
	bool inherit_processes; /* also processes to come */
	bool kernel;	       /* also what the kernel does for them */
};

/*
 * The tracing event. `lacks` gets what the processor cannot do, as one sentence; "" if it can do
 * all. 0; -EOPNOTSUPP: it cannot trace branches with their time.
 */
int pt_attr_fill(const struct pt_pmu *pmu, const struct pt_attr_spec *spec,
		 struct perf_event_attr *ret, char *lacks, size_t lacks_size) _must_check_;
/* The dummy: it goes on while the tracing event is disabled. */
void pt_attr_sideband(const struct pt_attr_spec *spec, uint64_t read_format,
		      struct perf_event_attr *ret);
