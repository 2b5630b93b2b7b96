/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stacks of a process that do not run: of coroutines, of goroutines, and of threads that run
 * one of these. All threads of the process have one such pool: what one of them has left may go on
 * on any other. Stacks that are the same from end to end are kept once, and counted. It knows
 * neither what a switch of stacks is nor what is drawn.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"

/*
 * Of one process. What comes later than these is given up, the oldest first, and all stacks are in
 * doubt from then on.
 */
#define WAITING_MAX_STACKS 16384u /* that differ */
#define WAITING_MAX_BYTES (32u << 20)

struct waiting;

int waiting_new(struct budget *budget, struct waiting **ret) _must_check_;
struct waiting *waiting_free(struct waiting *w);
DEFINE_CLEANUP(struct waiting *, waiting_free)

/* The process begins: none is there that has not been seen. */
void waiting_begin(struct waiting *w);
/* Something of it has not been seen: some may wait that are not known, or go on elsewhere. */
void waiting_miss(struct waiting *w);
