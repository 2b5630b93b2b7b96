/* SPDX-License-Identifier: Apache-2.0 */
/* What client/report*.c share; nobody else includes it. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "client/ui/field.h"

/*
 * A stack (outermost first) as "innermost <- caller <- ...": what is cut off at a terminal's edge
 * is then what all stacks have in common. The caller frees it.
 */
char *report_stack_text(struct json_object *stack);

/* Prints a text behind `indent` spaces and a label, cut at the terminal's edge. */
void report_print_cut(FILE *out, size_t indent, const char *label, const char *text);

void report_print_heaviest(FILE *out, struct json_object *window);

/* Is this a wait for a lock? */
bool report_is_lock_wait(struct json_object *wait);

/* Who ended the wait; of a lock, who had it. */
void report_print_waker(FILE *out, struct json_object *w, bool lock);

/* The waits for a lock, or all the others. */
void report_print_waits(FILE *out, struct json_object *window, bool lock);

/* In report_regions.c. The region that the snapshot is about: what its thread did in that time. */
void report_print_focus_region(FILE *out, struct json_object *region);
void report_print_regions(FILE *out, struct json_object *summary);
