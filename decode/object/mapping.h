/* SPDX-License-Identifier: Apache-2.0 */
/* What a record says of a mapping: the piece of the address space, and whose code is in it. */
#pragma once

#include <stdbool.h>

#include "common/base/cleanup.h"

struct images;
struct perfevent;
struct mapping;

/* False: it is the kernel's own, or no piece of an address space. No image is in *ret yet. */
bool mapping_range(const struct perfevent *ev, struct mapping *ret);

/* If it is executable, its image. 0 or -ENOMEM. */
int mapping_image(const struct perfevent *ev, struct images *images, struct mapping *map) _must_check_;
