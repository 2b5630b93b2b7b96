/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Go trace as a stream of bytes: its header, and one batch after the other. It reads ahead no
 * further than one piece of the input, and does not know what is in a batch.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "decode/go/format.h"

/* As read(2): bytes, 0 at the end, -1 and errno. */
typedef ssize_t (*gobatch_read_fn)(void *arg, void *buf, size_t size);

struct gostream {
	gobatch_read_fn read;
	void *arg;
	uint8_t piece[65536];
	size_t at, n;
	uint64_t offset; /* of piece[at], in the input */
	bool ended;
	int error;
};

struct gobatch {
	bool is_end;	      /* of the generation (1.26); nothing else is set then */
	uint8_t experiment;   /* 0: none */
	uint64_t gen, m, time;
	uint32_t size;
	uint8_t data[GOFMT_MAX_BATCH];
};

enum gobatch_answer {
	GOBATCH_END,	/* of the input */
	GOBATCH_ONE,
	GOBATCH_BROKEN, /* the reason is in `why` */
};

void gostream_init(struct gostream *s, gobatch_read_fn read, void *arg);

/*
 * The number after "go 1." of the header: 22, 23, 25 or 26; 0: it cannot be read, and `why` says
 * why. -errno of the input.
 */
int gostream_version(struct gostream *s, char *why, size_t size) _must_check_;
/* The next batch; enum gobatch_answer, or -errno of the input. */
int gostream_next(struct gostream *s, struct gobatch *ret, char *why, size_t size) _must_check_;
