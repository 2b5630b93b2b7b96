/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The summary of a decoded recording (the decoder's "summary" object) as text: its threads, where
 * they spent their time, the longest waits and who ended them.
 */
#pragma once

#include <stdio.h>

#include "client/ui/field.h"

/* Prints nothing for a `summary` that is NULL or null. */
void report_print(FILE *out, struct json_object *summary);

/* What a decoder's result (with "stats" and "losses") says that its timeline does not show; nothing
 * where all is there. */
void report_print_incomplete(FILE *out, struct json_object *result);

/* What was decoded, and where the time went ("stats" and "losses"). */
void report_print_stats(FILE *out, struct json_object *result);
/* Where and how libipt and we differ ("stats" with "verify"). */
void report_print_verify(FILE *out, struct json_object *result);

/* One line: how a trace at `path` is opened. */
void report_print_how_to_open(FILE *out, const char *path);
