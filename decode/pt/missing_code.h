/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the account of what could not be followed since its code is not known: by object, how often the way was lost
 * there and how many bytes of the trace went by until it was known again. Refuses to know why the code is missing.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/pt/pipeline.h"

struct image;
struct json_object;
struct ptmissing;

/* For so many buffers. */
int ptmissing_new(size_t n_buffers, struct ptmissing **ret) _must_check_;
struct ptmissing *ptmissing_free(struct ptmissing *m);
DEFINE_CLEANUP(struct ptmissing *, ptmissing_free)

/* The way was lost by the event, in this image (NULL: nothing is mapped there), which is borrowed. 0 or -ENOMEM. */
int ptmissing_lost(struct ptmissing *m, const struct ptwork_event *ev, const struct image *image);
/* Any other event. */
void ptmissing_event(struct ptmissing *m, const struct ptwork_event *ev);

/* Adds "code_missing", a list of {name, times, trace_bytes} with the most bytes first, to `losses`. */
void ptmissing_report(const struct ptmissing *m, struct json_object *losses);
