/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the account of what could not be followed since its code is not known: by object, how often
 * the way was lost there and how many bytes of the trace went by until it was known again. It must
 * not know why the code is missing.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/pt/pipeline.h"

struct image;
struct json_object;
struct missing_code;

/* For so many buffers. */
int missing_code_new(size_t n_buffers, struct missing_code **ret) _must_check_;
struct missing_code *missing_code_free(struct missing_code *m);
DEFINE_CLEANUP(struct missing_code *, missing_code_free)

/*
 * The way was lost by the event, in this image (NULL: nothing is mapped there), which is borrowed.
 * 0 or -ENOMEM.
 */
int missing_code_lost(struct missing_code *m, const struct pipeline_event *ev,
		      const struct image *image);
/* Any other event. */
void missing_code_event(struct missing_code *m, const struct pipeline_event *ev);

/*
 * Adds "code_missing", a list of {name, times, trace_bytes} with the most bytes first, to `losses`.
 */
void missing_code_report(const struct missing_code *m, struct json_object *losses);
