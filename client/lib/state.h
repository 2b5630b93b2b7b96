/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the page that the kernel empties in a forked child: the switch that programs see as
 * tracerd_state, and the pointers that the child must not use. Must not know what they point to.
 */
#pragma once

#include <stdint.h>

#include "client/lib/eventlib.h"

#pragma GCC visibility push(hidden)

struct ringmem;

/* The whole of tracerd_state's first page. */
struct __attribute__((may_alias)) state_page {
	uint32_t on; /* ringmem.epoch of the memory that is written to; 0: off */
	uint32_t entered; /* by process_enter() */
	struct ringmem *mem; /* the memory, also while off */
};

/*
 * Takes the address at run time, because the loader may have moved the symbol into the program
 * (copy relocation).
 */
static inline struct state_page *state_page(void)
{
	return (struct state_page *)&tracerd_state;
}

static inline uint32_t state_on(void)
{
	return __atomic_load_n(&tracerd_state.on, __ATOMIC_RELAXED);
}

static inline struct ringmem *state_mem(void)
{
	return __atomic_load_n(&state_page()->mem, __ATOMIC_ACQUIRE);
}

#pragma GCC visibility pop
