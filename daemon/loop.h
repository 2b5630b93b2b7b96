/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one callback of the event loop may take: who has more to do goes on at the loop's next turn, or on another
 * thread. And how long the loop's turns are, for status.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/io.h"

#define LOOP_BUDGET_NS 2000000u

/* When a callback that begins now must have ended; asked between two things that take some microseconds. */
static inline uint64_t loop_deadline(void)
{
	return io_now_ns() + LOOP_BUDGET_NS;
}

static inline bool loop_is_over(uint64_t deadline)
{
	return io_now_ns() >= deadline;
}
