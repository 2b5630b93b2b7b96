/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scenarios for the rules from branches to calls: functions are letters at 0x100 * letter, what is
 * drawn is a line of text.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "decode/base/budget.h"
#include "decode/calls/callstack.h"
#include "decode/calls/waiting.h"

#define AT(letter, offset) ((uint64_t)(letter) * 0x100 + (offset))
#define KERNEL 0x8000000000000000ull

struct scene {
	struct callstack *cs;
	struct waiting *waiting; /* its own process's */
	char open[64], text[512];
	size_t n_open, n;
	uint32_t n_outside; /* are told next */
	uint64_t clock;
	bool quiet; /* nothing is told */
	/* the runtime tells next of a goroutine that stops, and of one that goes on */
	struct callstack_run left, begun;
	bool unordered; /* other threads run, and times are not exact */
};

extern struct callfunc functions[128];

/* Before anything has happened. */
void scene_new(struct scene *s);
void scene_begin(struct scene *s);
void scene_end(struct scene *s, const char *want);
/* Calls are at an offset of their function and four bytes long. */
void call(struct scene *s, char from, unsigned offset, char to);
/* A return to behind a call that is there. */
void ret(struct scene *s, char from, char to, unsigned offset);
void jump(struct scene *s, char from, char to, unsigned offset);
void pass(struct scene *s, char letter, unsigned from, unsigned to);
