/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The picture of the daemon's state: built when somebody asks and the last one is older than
 * 250 ms, then shared by all who ask, as an object, as JSON text and as metrics. However many
 * dashboards poll, the cost of looking is bounded.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/control/json.h"

struct daemon;
struct status;
struct picture;

int status_new(struct daemon *d, struct status **ret) _must_check_;
struct status *status_free(struct status *s);

/* A reference that the caller gives back; NULL without memory. */
struct picture *status_picture(struct status *s);
struct picture *picture_ref(struct picture *p);
void picture_unref(struct picture *p);

struct json_object *picture_object(const struct picture *p); /* borrowed, not to be changed */
/* Whole HTTP answers: head and body. */
const char *picture_status(const struct picture *p, size_t *ret_len);
const char *picture_metrics(const struct picture *p, size_t *ret_len);
