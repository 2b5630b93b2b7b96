/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Some threads that do what they are handed, and who handed it waits for the piece that is next,
 * and does pieces itself meanwhile: so as many run as there are processors, whatever the work is.
 * One thread hands it in. Pieces that nobody will wait for soon are done later than the others, and
 * by the caller first. Threads exist from workers_new() on, so that the caller can forbid clone
 * afterwards; signals are blocked in them. Knows no work.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

#define WORKERS_MAX 16u /* the caller included */

struct workers;

/* `worker` is who does it: less than workers_count(); the caller is the last. */
struct work {
	void (*run)(struct work *work, unsigned int worker);
	bool later;	   /* nobody waits for it soon: the others come first */
	struct work *next; /* the pool's */
	bool done;	   /* the pool's: workers_wait() */
};

/*
 * `threads`: with the caller, so 0 and 1 are the same: what is submitted is done in workers_wait().
 */
int workers_new(unsigned int threads, struct workers **ret) _must_check_;
/* Everything that was submitted must have been waited for. */
struct workers *workers_free(struct workers *w);
DEFINE_CLEANUP(struct workers *, workers_free)

/* How many there are, the caller included: at least 1. */
unsigned int workers_count(const struct workers *w);
void workers_submit(struct workers *w, struct work *work);
void workers_wait(struct workers *w, struct work *work);

/*
 * The time on a processor that one of them has used, whatever it was for; of the caller all that
 * its thread has.
 */
uint64_t workers_cpu_ns(const struct workers *w, unsigned int worker);
