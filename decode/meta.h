/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What decoding needs of a bundle's meta.json: brackets of the clocks, pids as their own
 * namespaces number them, the moment of the freeze, and losses that have a time. Everything is
 * optional: a bundle without it decodes all the same, with less said.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "decode/clockmap.h"
#include "decode/session.h"

#define META_MAX_BYTES (16u << 20)
#define META_MAX_NOTES 8192u

struct meta {
	struct meta_pid {
		uint32_t pid, nspid;
	} * pids; /* sorted by pid */
	size_t n_pids;
	struct clock_bracket *brackets;
	size_t n_brackets;
	struct session_note *notes; /* sorted by end */
	size_t n_notes;
	uint64_t frozen_raw; /* 0: not told */
	uint64_t complete_from; /* from then on nothing was overwritten; 0: not told */
	char kernel_release[128], machine[128];
};

enum { META_E_INVALID = 1 /* not strict JSON, or too long */ };

/* Reads from `fd`, which stays the caller's. 0, META_E_INVALID, or a negative errno. */
int meta_read(int fd, struct meta *ret) _must_check_;
void meta_fini(struct meta *m);

/* For struct session_options; `arg` is the meta. */
uint32_t meta_nspid(void *arg, uint32_t pid);
