/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names that a JIT compiler (node, java with an agent, python -X perf) writes to
 * /tmp/perf-PID.map: lines of "start size name", hex. The file is the target's own: any bytes,
 * any size, any order. Where entries overlap, the later line wins at its start.
 */
#pragma once

#include <stdint.h>

#include "common/cleanup.h"
#include "decode/budget.h"

#define PERFMAP_MAX_BYTES (256u << 20)

struct perfmap;

/* Reads a map from `fd` (stays the caller's). -EFBIG, -ENOMEM, or what read() said. */
int perfmap_read(int fd, struct budget *budget, struct perfmap **ret) _must_check_;
struct perfmap *perfmap_free(struct perfmap *m);
DEFINE_CLEANUP(struct perfmap *, perfmap_free)

/* The name of what lies at `addr` (not NUL-terminated: *ret_len) and its start, or NULL. */
const char *perfmap_find(
	const struct perfmap *m, uint64_t addr, size_t *ret_len, uint64_t *ret_start);

/* Lines that are no entries. */
uint64_t perfmap_bad_lines(const struct perfmap *m);
