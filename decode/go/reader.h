/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads an execution trace of a Go program (runtime/trace; format version 2, Go 1.22 and later),
 * event by event in their order. It reads the input once, from front to end, and keeps one
 * generation of it, about a second. The bytes may be anything: what cannot be is an error, and the
 * events before it are right.
 *
 * It must not know where the bytes come from, nor what is made of the events.
 */
#pragma once

#include "common/base/cleanup.h"
#include "decode/base/budget.h"
#include "decode/go/batch.h"
#include "decode/go/event.h"

struct goreader;

/* Of one generation, so that the time it takes is bounded by the input's size. */
#define GOREADER_MAX_THREADS 65536u
/* Events that were looked at in vain, beyond some for each that was not. */
#define GOREADER_MAX_RETRIES (1u << 26)

enum goreader_answer {
	GOREADER_END,
	GOREADER_EVENT,
	GOREADER_BROKEN, /* goreader_why(); and so for ever */
};

/* `read` and `arg` as in batch.h. 0 or -ENOMEM. */
int goreader_new(gobatch_read_fn read, void *arg, struct budget *budget,
		 struct goreader **ret) _must_check_;
struct goreader *goreader_free(struct goreader *r);
DEFINE_CLEANUP(struct goreader *, goreader_free)

/* enum goreader_answer, or -errno: of the input, or -ENOMEM where the budget is used up. */
int goreader_next(struct goreader *r, struct goevent *ret) _must_check_;
const char *goreader_why(const struct goreader *r);
/* 22, 23, 25, 26; 0 before the first event and where the header is broken. */
int goreader_version(const struct goreader *r);
/* What the stacks of the last event are of; NULL: no generation. */
const struct gogeneration *goreader_generation(const struct goreader *r);
/* So many bytes of the input were read; and how many generations are whole. */
uint64_t goreader_offset(const struct goreader *r);
uint64_t goreader_generations(const struct goreader *r);
