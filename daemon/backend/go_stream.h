/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a Go program has left of its execution trace in memory that it shared
 * (common/bundle/gostream.h): where, and copying it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/bundle/gostream.h"

struct go_stream {
	struct go_extent {
		uint64_t at, bytes;
	} extents[GOSTREAM_AREAS]; /* in the trace's order */
	size_t n;
	uint64_t bytes, lost;
};

/*
 * 0, also if nothing is in it (n is 0); -EBADMSG: it contradicts itself; -errno. `size` is that of
 * the memory.
 */
int go_stream_read(int fd, uint64_t size, struct go_stream *ret) _must_check_;
int go_stream_copy(int fd, const struct go_stream *s, int out) _must_check_;
