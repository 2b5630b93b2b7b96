/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The picture of the daemon's state: made when somebody asks and the last one is older than 250 ms,
 * then shared by all who ask, as an object, as JSON text and as metrics. However many dashboards
 * poll, the cost of looking is bounded. Must not know what the object says.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/control/json.h"

struct picture;
struct pictures;

/* Makes the object; NULL without memory. */
typedef struct json_object *(*pictures_make)(void *arg);

int pictures_new(pictures_make make, void *arg, struct pictures **ret) _must_check_;
struct pictures *pictures_free(struct pictures *s);

/* What it shows has changed in a way that nobody may miss: the next who asks gets a new one. */
void pictures_forget(struct pictures *s);
/* A reference that the caller gives back; NULL without memory. */
struct picture *pictures_get(struct pictures *s);
struct picture *picture_ref(struct picture *p);
void picture_unref(struct picture *p);

struct json_object *picture_object(const struct picture *p); /* borrowed, not to be changed */
/* Whole HTTP answers: head and body. */
const char *picture_status(const struct picture *p, size_t *ret_len);
const char *picture_metrics(const struct picture *p, size_t *ret_len);
