/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Targets and snapshots of the protocol as lines, tables and blocks of text for people.
 */
#pragma once

#include <stdio.h>

#include "client/ui/field.h"

/* "t3: slowlock (pid 1234)", "t4: unit nginx.service"; the caller frees it. */
char *view_target_name(struct json_object *target);

/* "stacks dwarf, waits on, recorded by cgroup"; the caller frees it. */
char *view_target_how(struct json_object *target);

void view_targets(FILE *out, struct json_object *targets);
void view_target(FILE *out, struct json_object *target);

void view_snapshots(FILE *out, struct json_object *snapshots);
void view_snapshot(FILE *out, struct json_object *snapshot);

/* A counter is a number, or an object that counts records or, if nobody knows how many, events. */
uint64_t view_counter(struct json_object *counter);

/* The sum of the members of an object of counters. */
uint64_t view_sum(struct json_object *counters);

/* "ring_overwritten 12, torn 3" without the zeros; "none". The caller frees it. */
char *view_losses(struct json_object *losses);

/* "  label      value", the label padded. */
void view_line(FILE *out, const char *label, const char *fmt, ...) _printf_(3, 4);
