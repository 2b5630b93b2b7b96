/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between probe.c (the life of a probe, on the loop) and probe_open.c (opening its events, on a
 * thread).
 */
#pragma once

#include <stdatomic.h>

#include "common/base/pids.h"
#include "common/base/procfs.h"
#include "daemon/base/readers.h"
#include "daemon/perf/eventset.h"
#include "daemon/trigger/probe.h"

#define PROBE_RING_BYTES 4096u
/*
 * Where a hit pauses the thread's trace: whose report is lost may be paused without anybody
 * knowing.
 */
#define PROBE_PAUSING_RING_BYTES 32768u
/* Threads that were created while others were opened: how often they are looked for. */
#define PROBE_ROUNDS 32u
#define PROBE_SETS_MAX (PROBE_ROUNDS * PROBE_COPIES_MAX)

/* Of the probe, and of what the closer still has to do with it. */
struct probe_events {
	atomic_uint refs;
	atomic_bool on; /* as they are to be, see probe_enable() */
	atomic_bool is_on; /* as they are; in between, as they were */
	struct eventset sets[PROBE_SETS_MAX]; /* the first one has the rings */
	size_t n_sets, n_fds, n_threads, n_pausing, n_grouped;
	size_t n_unsure; /* threads that began meanwhile, and may not have inherited it */
};

/* What the thread touches. */
struct opening {
	struct reader_job job; /* first */
	atomic_bool cancel;
	struct probe *probe; /* NULL: it went meanwhile */
	struct closer *closer;
	struct probe_place place;
	struct probe_process process;
	uint32_t uprobe_type;
	uint64_t fds_left; /* that the user may still have */
	/* its own */
	struct pid_set tids; /* what was opened, for any copy */
	/* out */
	int result; /* 0, PROC_E_GONE, -errno; -ENOENT: it is not mapped */
	enum probe_by used; /* PROBE_AUTO: nothing was tried */
	struct probe_copies copies;
	struct probe_events *events;
};

/* Fills what is `out`. */
void opening_run(struct reader_job *job);
/* Why there is no result. */
const char *opening_explain(const struct opening *o);
/* Closes what is open. */
void probe_events_close(struct probe_events *e);
