/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The AUX area of one perf event's ring in overwrite mode: memory that a hardware tracer writes
 * around and around. The kernel tells where the tracer stopped (aux_head), but not whether it has
 * come around: until it has, what follows the head still is the zeros that the kernel made.
 *
 * It is copied only while all its events are disabled. Does not know what the bytes mean.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

struct ring;

struct aux {
	void *base; /* NULL: not mapped */
	size_t size;
	bool wrapped; /* it was seen to have come around; sticky */
};

/* `ring` is mapped writable on the same fd; `bytes` is a power of two of pages. 0 or -errno. */
int aux_map(const struct ring *ring, int fd, size_t bytes, struct aux *ret) _must_check_;
void aux_unmap(struct aux *aux);

/* Where the tracer stopped: below the size. */
uint64_t aux_head(const struct aux *aux, const struct ring *ring);

struct aux_copy {
	uint8_t *data; /* owned; oldest byte first */
	size_t len;
	bool wrapped;
};
/* 0 or -ENOMEM. Updates aux->wrapped. */
int aux_copy(struct aux *aux, uint64_t head, struct aux_copy *ret) _must_check_;
void aux_copy_fini(struct aux_copy *copy);
