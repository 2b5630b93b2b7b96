/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line on stderr that says how long work gets on, where stderr is a terminal; else nothing.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct progress {
	bool on;    /* stderr is a terminal */
	bool drawn; /* there is a line to remove */
};

void progress_init(struct progress *p);

/* Redraws: "decoding: symbols 40 %". `total` 0: not known, the number is left out. Text is escaped.
 */
void progress_show(
	struct progress *p, const char *what, const char *stage, uint64_t done, uint64_t total);

/* Removes the line. */
void progress_end(struct progress *p);
