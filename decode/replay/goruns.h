/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what the execution trace of a Go program tells of when its threads went on with a goroutine
 * and when they left it, in the order of each thread. Whoever follows the thread's calls sees the
 * same switches, and asks at each which goroutine it was. It knows no calls.
 *
 * The clocks of both are not exactly alike. So it is the order that counts: a thread leaves what it
 * has gone on with, and each is told once. A time only says what is too old, and whether the trace
 * had begun.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"

struct gofeed_options;
struct goruns;

#define GORUNS_MAX (4u << 20) /* of all threads. What comes later is not told */

/* Reads the trace to its end. 0, -ENOMEM or -errno of the file. */
int goruns_new(const struct gofeed_options *options, struct goruns **ret) _must_check_;
struct goruns *goruns_free(struct goruns *g);
DEFINE_CLEANUP(struct goruns *, goruns_free)

/*
 * The goroutine that the thread goes on with (`begins`) or leaves, at `since` (input clock) or next
 * after it, and which of its runs that is the begin or end of: the first of a goroutine that runs
 * when the trace begins is 0, any other's is 1. Each is told once. false: the trace tells of
 * something else first, or of nothing.
 */
bool goruns_next(struct goruns *g, uint32_t tid, uint64_t since, bool begins,
		 uint64_t *ret_goroutine, uint64_t *ret_run);

/* For want of memory. */
uint64_t goruns_left_out(const struct goruns *g);
