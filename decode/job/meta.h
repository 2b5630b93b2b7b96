/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What decoding needs of a bundle's meta.json: brackets of the clocks, pids as their own
 * namespaces number them, the moment of the freeze and what caused it, losses that have a time,
 * copies of event rings. Everything is
 * optional: a bundle without it decodes all the same, with less said.
 */
#pragma once

#include <json-c/json.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/clockmap.h"
#include "decode/pt/blind.h"
#include "decode/replay/gofeed.h"
#include "decode/replay/session.h"

#define META_MAX_BYTES (16u << 20)
#define META_MAX_NOTES 8192u
#define META_MAX_BLINDS 4096u
#define META_MAX_RINGS 256u
#define META_MAX_GO 64u
#define META_MAX_GO_THREADS 65536u
#define META_MAX_FILTERS 4u
#define META_MAX_FILTER_NAME 1025u /* escaped, with the NUL */

struct meta {
	struct meta_pid {
		uint32_t pid, nspid;
	} * pids; /* sorted by pid */
	size_t n_pids;
	struct clock_bracket *brackets;
	size_t n_brackets;
	/*
	 * the same moments: `source` is the TSC, 0 where it was not read, `monotonic` MONOTONIC_RAW
	 */
	struct clock_bracket *tsc;
	size_t n_tsc;
	struct meta_ring {
		char file[128]; /* in the bundle */
		uint32_t pid;
		char comm[64]; /* escaped */
	} * rings;
	size_t n_rings, rings_left_out;
	struct meta_go { /* execution traces of Go programs */
		char file[128];
		uint32_t pid, nspid;
		bool streamed; /* what the program had left when it ended: it may end long before */
		struct gofeed_tid *tids; /* of a pid namespace, by the program's own numbers */
		size_t n_tids;
	} *go;
	size_t n_go, go_left_out;
	struct session_note *notes; /* sorted by end */
	size_t n_notes;
	struct session_end *ends; /* of processes; sorted by time */
	size_t n_ends;
	struct pt_blind *blinds;
	size_t n_blinds;
	uint64_t pt_end_raw; /* all that are traced by Intel PT had stopped; 0: not known */
	uint64_t frozen_raw; /* 0: not known */
	uint64_t suspended;  /* since when nothing was recorded any more; 0: it was */
	uint64_t wait_min_ns; /* shorter waits have no stacks */
	/* stacks were asked to be unwound in the kernel, with Python's functions */
	bool unwinds;
	uint64_t complete_from; /* from then on no CPU's ring was overwritten; 0: not known */
	/* the region that was over its threshold; end 0: it was none */
	struct {
		char region[896]; /* escaped */
		uint32_t tid;	  /* 0: not known */
		uint64_t begin_raw, end_raw, over;
	} slow;
	/* what alone was traced, escaped: an array of strings; NULL: everything */
	struct json_object *only;
	char kernel_release[128], machine[128];
};

enum { META_E_INVALID = 1 /* not strict JSON, or too long */ };

/* Reads from `fd`, which stays the caller's. 0, META_E_INVALID, or a negative errno. */
int meta_read(int fd, struct meta *ret) _must_check_;
void meta_fini(struct meta *m);

/*
 * The trace's last event is at `last`. What is missing of a streamed one, up to the end of its
 * process or of the recording, is among the notes then.
 */
void meta_go_ends(struct meta *m, const struct meta_go *go, uint64_t last);

/* For struct session_options; `arg` is the meta. */
uint32_t meta_nspid(void *arg, uint32_t pid);
