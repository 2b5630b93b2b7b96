/* SPDX-License-Identifier: Apache-2.0 */
/* The copy of a target's own records out of the overwrite rings: the frozen side of the sampling back end. */
#pragma once

#include "common/base/cleanup.h"

struct frozen;
struct frozen_stats;
struct json_object;
struct perfdata_writer;
struct target;

int export_freeze(struct target *target, struct frozen *frozen) _must_check_;
int export_copy(struct frozen *frozen, struct perfdata_writer *writer, struct frozen_stats *stats) _must_check_;
void export_resume(struct frozen *frozen);
void export_free(struct frozen *frozen);
void export_meta(const struct frozen *frozen, struct json_object *events, struct json_object *losses,
		     struct json_object *gaps);
