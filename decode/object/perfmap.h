/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names that a JIT compiler (node, java with an agent, python -X perf) writes to
 * /tmp/perf-PID.map: lines of "start size name", hex. The file is the target's own: any bytes, any
 * size, any order. Where entries overlap, the later line wins at its start. What was where when is
 * not in it: code that was thrown away, and what took its place, are two names for an address, of
 * which one may be wrong.
 *
 * The file may also be no map at all but somebody's secrets, which the target's user made appear at
 * that path: tables of numbers, a crontab, keys. It is recognised as a map where at least one line,
 * and of PERFMAP_LINES_PER_STRANGE lines all but one, are "start size name" in hex, with code at an
 * address that user space can have. (A line's break in a function's name makes a strange line.)
 * What is not recognised gives no name either.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"

#define PERFMAP_MAX_BYTES (256u << 20)
#define PERFMAP_LINES_PER_STRANGE 64u
/* vm.mmap_min_addr: no code is below; "30 4 * * * backup" is a crontab's */
#define PERFMAP_MIN_ADDRESS UINT64_C(0x10000)
#define PERFMAP_MAX_ADDRESS (UINT64_C(1) << 56)
#define PERFMAP_MAX_FUNCTION (UINT64_C(1) << 30)

struct perfmap;

/*
 * Reads a map from `fd` (stays the caller's). -EBADMSG: not recognised; -EFBIG, -ENOMEM, or what
 * read() said.
 */
int perfmap_read(int fd, struct budget *budget, struct perfmap **ret) _must_check_;
struct perfmap *perfmap_free(struct perfmap *m);
DEFINE_CLEANUP(struct perfmap *, perfmap_free)

/* The name of what lies at `addr` (not NUL-terminated: *ret_len) and its start, or NULL. */
const char *perfmap_find(
	const struct perfmap *m, uint64_t addr, size_t *ret_len, uint64_t *ret_start);

/* Whether it has a line with another name for that address, too. */
bool perfmap_has_another(const struct perfmap *m, uint64_t addr);

/* Lines that are no entries. */
uint64_t perfmap_bad_lines(const struct perfmap *m);
