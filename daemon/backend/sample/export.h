/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copy of a target's own records out of the overwrite rings: the frozen side of the sampling
 * back end.
 */
#pragma once

#include <stdint.h>

#include "common/base/cleanup.h"

struct frozen;
struct frozen_stats;
struct json_object;
struct perfdata_writer;
struct target;

int export_freeze(struct target *target, struct frozen *frozen) _must_check_;
/*
 * On a thread: what the rings have of its processes, at most `max_bytes`; it is copied from there
 * then. The bytes.
 */
uint64_t export_set_aside(struct frozen *frozen, uint64_t max_bytes);
int export_copy(struct frozen *frozen, struct perfdata_writer *writer,
		struct frozen_stats *stats) _must_check_;
void export_resume(struct frozen *frozen);
void export_free(struct frozen *frozen);
void export_meta(const struct frozen *frozen, struct json_object *events,
		 struct json_object *losses, struct json_object *gaps);
