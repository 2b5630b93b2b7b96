/* SPDX-License-Identifier: Apache-2.0 */
/* What client/ui/report*.c share; nobody else includes it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "client/ui/field.h"

/*
 * Prints a line: `indent` spaces, the label, and the stack (outermost first) as "innermost <-
 * caller <- ...". On a terminal it is wrapped, and the middle of a deep stack is left out: the
 * innermost frames say what happened, those of the program itself come after them.
 */
void report_print_stack(FILE *out, size_t indent, const char *label, struct json_object *stack);

void report_print_heaviest(FILE *out, struct json_object *window);

/* The part of a wait that is in the window, or the region, that it is listed for. */
uint64_t report_inside_ns(struct json_object *wait);

/* Is this a wait for a lock? */
bool report_is_lock_wait(struct json_object *wait);

/* Who ended the wait; of a lock, who had it. */
void report_print_waker(FILE *out, struct json_object *w, bool lock);

/* The waits for a lock, or all the others. */
void report_print_waits(FILE *out, struct json_object *window, bool lock);

/* In report_regions.c. The region that the snapshot is about: what its thread did in that time. */
void report_print_focus_region(FILE *out, struct json_object *region);
void report_print_regions(FILE *out, struct json_object *summary);
