/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Go trace as text, byte for byte as `go tool trace -d=parsed` and `-d=wire` of Go 1.27 print it,
 * so that the two can be compared.
 */
#pragma once

#include <stdint.h>

#include "decode/base/budget.h"
#include "decode/go/batch.h"

struct gotext_stats {
	uint64_t events, generations; /* wire: batches, ends of generations */
	uint64_t bytes_read, bytes_out;
	int write_error; /* -errno */
	char why[256];	 /* the trace is broken, from bytes_read on; "": it is not */
};

/*
 * All events, in their order. 0, also where the trace is broken, or -errno; -EFBIG: more than
 * max_bytes (0: any).
 */
int gotext_parsed(gobatch_read_fn read, void *arg, struct budget *budget, int fd,
		  uint64_t max_bytes, struct gotext_stats *ret) _must_check_;
/* What is in the file, in its order. */
int gotext_wire(gobatch_read_fn read, void *arg, struct budget *budget, int fd, uint64_t max_bytes,
		struct gotext_stats *ret) _must_check_;
