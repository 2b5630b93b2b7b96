/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Triggers, and what causes snapshots, of the protocol as text for people.
 */
#pragma once

#include <stdio.h>

#include "client/ui/field.h"

/*
 * A snapshot's cause in one phrase: "region serve took 7.31 ms (over 5.00 ms)", what a client or a
 * program gave as its reason, "" without one. The caller frees it.
 */
char *trigger_cause_words(struct json_object *cause);
/* The same with who it was: " in thread 1234". The caller frees it. */
char *trigger_cause_sentence(struct json_object *cause);

/* "g3: region serve of t1 (slowlock, pid 1234) over 5.00 ms"; the caller frees it. */
char *trigger_words(struct json_object *trigger);
/* "cooldown 3, busy 1"; "none". The caller frees it. */
char *trigger_suppressed(struct json_object *counts);

void trigger_view(FILE *out, struct json_object *trigger);
void trigger_view_list(FILE *out, struct json_object *triggers);
