/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stacks of a process's goroutines that do not run. Threads of the process have one such pool: a goroutine that
 * stops on one thread goes on with its callers on any other. Stacks that are the same from end to end are kept once,
 * and counted. It does not know what is drawn, and nothing of threads.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"

/* Of one process. What comes later than these is given up, and all stacks are in doubt from then on. */
#define GOROUTINES_MAX_STACKS 1024u /* that differ */
#define GOROUTINES_MAX_BYTES (8u << 20)

struct goroutines;

int goroutines_new(struct budget *budget, struct goroutines **ret) _must_check_;
struct goroutines *goroutines_free(struct goroutines *gs);
DEFINE_CLEANUP(struct goroutines *, goroutines_free)

/* The process begins: none is there that has not been seen. */
void goroutines_begin(struct goroutines *gs);
/* Something of it has not been seen: some may wait that are not known, or go on elsewhere. */
void goroutines_miss(struct goroutines *gs);
