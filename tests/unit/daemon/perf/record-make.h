/* SPDX-License-Identifier: Apache-2.0 */
/* Records made by a test: a "sched" sample with all that it can have. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "daemon/perf/record.h"

#define RECORD_STACK_BYTES 64u

extern const struct record_layout record_dwarf_layout;
/* A switch-out of thread 101 of process 100; what runs instead is another user's. */
extern const struct tracerd_sched_event record_example;

struct record_made {
	_Alignas(8) uint8_t bytes[1024];
	size_t len;
};

/* Time 1000, id 77, two frames of the kernel's and the frames 0x401000 and 0x402000. */
void record_make(struct record_made *b, const struct tracerd_sched_event *ev, uint32_t pid,
		 uint32_t tid);
