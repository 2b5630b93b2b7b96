/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frozen side of the PT back end: takes the AUX areas, lets the CPUs run again, and writes
 * perf.data.
 */
#pragma once

#include <stdint.h>

#include "common/base/cleanup.h"

struct frozen;
struct frozen_stats;
struct json_object;
struct perfdata_writer;
struct target;

int pt_export_freeze(struct target *target, struct frozen *frozen) _must_check_;
/*
 * On a thread, when all CPUs have stopped: takes it at once, if there is so much memory, and sets
 * the switches and the waits aside.
 */
uint64_t pt_export_set_aside(struct frozen *frozen, uint64_t max_bytes);
/* If not, on the copier thread, before all else: the CPUs wait for it. */
int pt_export_take(struct frozen *frozen) _must_check_;
int pt_export_copy(struct frozen *frozen, struct perfdata_writer *writer,
		   struct frozen_stats *stats) _must_check_;
void pt_export_resume(struct frozen *frozen);
void pt_export_free(struct frozen *frozen);
void pt_export_meta(const struct frozen *frozen, struct json_object *events,
		    struct json_object *losses, struct json_object *gaps);
