/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Was this executable built with frame pointers? The beginnings of its functions show it: those
 * that call others and are more than a few instructions long would set one up there. The answer
 * decides whether `--stacks auto` trusts the kernel's call chains.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"

struct json_object;

struct probe_answer {
	uint64_t functions; /* that were judged */
	uint64_t with;      /* of those, with a frame pointer */
	bool known;         /* enough functions for a verdict */
	bool frame_pointers;
	/* its functions that call nobody have no frame, nor has one at its first instructions */
	bool go;
};

/* The part of judged functions that must set up a frame pointer; hand-written assembly never does.
 */
#define PROBE_PERCENT 80u
#define PROBE_MIN_FUNCTIONS 4u

/* Judges one ELF file (the descriptor stays the caller's). 0, or -EBADMSG: it is no such file. */
int probe_file(int fd, struct budget *budget, struct probe_answer *ret) _must_check_;

/* Judges by the bytes of one function: -1 not to be judged, 0 without, 1 with. */
int probe_function(const uint8_t *code, size_t len);
