/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the execution trace of one Go program in a replay: reads it twice, first for what is known
 * only later (decode/go/survey.h), then event by event, and puts each at its time on the input's
 * clock. It does not know what is drawn.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"
#include "decode/base/clockmap.h"
#include "decode/go/event.h"
#include "decode/go/survey.h"

struct gofeed;

/* A thread, and what a program in a pid namespace calls it. */
struct gofeed_tid {
	uint32_t inner, tid;
};

struct gofeed_options {
	int fd;		  /* borrowed: a file, read from its begin */
	uint32_t pid;	  /* 0: not known */
	/* they are of a pid namespace: only those in `tids` are known, by `inner` */
	bool foreign_tids;
	const struct gofeed_tid *tids;
	size_t n_tids;
	struct clock_map *clocks; /* of the input; borrowed */
	/* input clock; later is left out, as nothing else is known of that time; 0: nothing is */
	uint64_t end_ns;
	struct budget *budget;
};

/*
 * 0, -ENOMEM or -errno of the file. What is wrong with the trace itself is said by gofeed_why(),
 * and what came before is right.
 */
int gofeed_new(const struct gofeed_options *options, struct gofeed **ret) _must_check_;
struct gofeed *gofeed_free(struct gofeed *f);
DEFINE_CLEANUP(struct gofeed *, gofeed_free)

const struct gofeed_options *gofeed_options(const struct gofeed *f);
uint32_t gofeed_pid(const struct gofeed *f);
const struct gosurvey *gofeed_survey(const struct gofeed *f);
/*
 * The thread of that number (M) as the recording knows it; 0: none. *ret_foreign: the recording
 * cannot know it.
 */
uint32_t gofeed_tid(struct gofeed *f, uint64_t m, bool *ret_foreign);

/* When the trace's last event is, on the input's clock. */
uint64_t gofeed_last(const struct gofeed *f);
/* When the next event is, on the input's clock; UINT64_MAX: there is none. */
uint64_t gofeed_peek(const struct gofeed *f);
/* The event; NULL where the trace ends, at that time. Valid until gofeed_next(). */
const struct goevent *gofeed_event(const struct gofeed *f);
const struct gogeneration *gofeed_generation(const struct gofeed *f);
/* On to the next one. 0 or -errno. */
int gofeed_next(struct gofeed *f) _must_check_;

struct gofeed_stats {
	uint64_t events, generations, bytes, late; /* late: after end_ns */
};
void gofeed_stats(const struct gofeed *f, struct gofeed_stats *ret);
/* What is wrong with the trace, and at which byte; NULL: nothing. */
const char *gofeed_why(const struct gofeed *f, uint64_t *ret_at);
