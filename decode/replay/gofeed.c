// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/replay/gofeed.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/hashmap.h"
#include "decode/go/reader.h"
#include "decode/rings/event.h"

/*
 * On Linux the trace's clock is MONOTONIC, and a snapshot of both differs by a tick. Elsewhere it
 * is another one.
 */
#define SAME_CLOCK_NS 1000000u

struct gofeed {
	struct gofeed_options o;
	struct gosurvey survey;
	struct goreader *reader;
	uint64_t at; /* of the file */
	struct goevent event;
	bool has_event, at_end, done;
	uint64_t time;	 /* of the event or the end; input clock */
	uint64_t end;	 /* options.end_ns on MONOTONIC */
	int64_t shift;	 /* from the trace's clock to MONOTONIC */
	struct hashmap tids; /* M that is no Linux tid -> made-up tid */
	struct gofeed_stats stats;
	bool broken;
};

static ssize_t read_file(void *arg, void *buf, size_t size)
{
	struct gofeed *f = arg;
	ssize_t n = pread(f->o.fd, buf, size, (off_t)f->at);

	if (n > 0)
		f->at += (uint64_t)n;
	return n;
}

static uint64_t monotonic(const struct gofeed *f, uint64_t trace)
{
	return f->shift < 0 && (uint64_t)-f->shift > trace ? 0 : trace + (uint64_t)f->shift;
}

/* What was already so when the trace began is told late, perhaps after the freeze. */
static bool is_status(const struct goevent *e)
{
	return e->kind == GOEVENT_TRANSITION && e->scope == GOSCOPE_GOROUTINE &&
	       e->from == GOSTATE_UNDETERMINED;
}

int gofeed_next(struct gofeed *f)
{
	uint64_t mono;
	int r;

	if (f->at_end || f->done) {
		f->done = true;
		return 0;
	}
	while ((r = goreader_next(f->reader, &f->event)) == GOREADER_EVENT) {
		f->stats.events++;
		mono = monotonic(f, f->event.time);
		if (f->end && mono > f->end) {
			f->stats.late++;
			if (!is_status(&f->event))
				continue;
			mono = f->end;
		}
		f->time = clock_map_from_monotonic(f->o.clocks, mono);
		f->has_event = true;
		return 0;
	}
	f->stats.generations = goreader_generations(f->reader);
	f->stats.bytes = goreader_offset(f->reader);
	if (r < 0)
		return r;
	f->broken = r == GOREADER_BROKEN;
	f->at_end = true;
	if (f->stats.late)
		f->time = f->o.end_ns;
	f->done = !f->has_event;
	return 0;
}

int gofeed_new(const struct gofeed_options *options, struct gofeed **ret)
{
	_cleanup_(gofeed_freep) struct gofeed *f = calloc(1, sizeof(*f));
	int64_t shift;
	int r;

	if (!f)
		return -ENOMEM;
	f->o = *options;
	r = gosurvey_run(read_file, f, options->budget, &f->survey);
	if (r < 0)
		return r;
	f->at = 0;
	shift = (int64_t)(f->survey.clock.mono - f->survey.clock.trace);
	if (f->survey.clock.mono && (shift > SAME_CLOCK_NS || shift < -(int64_t)SAME_CLOCK_NS))
		f->shift = shift;
	if (options->end_ns)
		f->end = clock_map_monotonic(options->clocks, options->end_ns);
	r = goreader_new(read_file, f, options->budget, &f->reader);
	if (r == 0)
		r = gofeed_next(f);
	if (r < 0)
		return r;
	*ret = take_ptr(f);
	return 0;
}

struct gofeed *gofeed_free(struct gofeed *f)
{
	if (!f)
		return NULL;
	goreader_free(f->reader);
	gosurvey_fini(&f->survey);
	hashmap_fini(&f->tids);
	free(f);
	return NULL;
}

const struct gofeed_options *gofeed_options(const struct gofeed *f)
{
	return &f->o;
}

uint32_t gofeed_pid(const struct gofeed *f)
{
	return f->o.pid ? f->o.pid : RINGEVENT_TID_MADE;
}

const struct gosurvey *gofeed_survey(const struct gofeed *f)
{
	return &f->survey;
}

static int by_inner(const void *key, const void *elem)
{
	const uint32_t inner = *(const uint32_t *)key,
		       other = ((const struct gofeed_tid *)elem)->inner;

	return inner < other ? -1 : inner > other;
}

/* 0: nobody knows it. */
static uint32_t host_tid(const struct gofeed *f, uint32_t inner)
{
	const struct gofeed_tid *t =
		f->o.n_tids ? bsearch(&inner, f->o.tids, f->o.n_tids, sizeof(*f->o.tids), by_inner)
			    : NULL;

	return t ? t->tid : 0;
}

uint32_t gofeed_tid(struct gofeed *f, uint64_t m, bool *ret_foreign)
{
	uint32_t tid;

	*ret_foreign = true;
	if (m == GOFMT_NO_ID || m == 0)
		return 0;
	if (m < RINGEVENT_TID_MADE) {
		tid = f->o.foreign_tids ? host_tid(f, (uint32_t)m) : (uint32_t)m;
		*ret_foreign = tid == 0;
		return tid ? tid : (uint32_t)m | RINGEVENT_TID_MADE;
	}
	/* a thread's handle, on systems other than Linux */
	tid = hashmap_index(&f->tids, 0, m);
	if (!tid) {
		tid = RINGEVENT_TID_MADE + f->tids.n + 1;
		if (hashmap_put(&f->tids, 0, m, tid) < 0)
			return 0;
	}
	return tid;
}

uint64_t gofeed_last(const struct gofeed *f)
{
	return clock_map_from_monotonic(f->o.clocks, monotonic(f, f->survey.last_ns));
}

uint64_t gofeed_peek(const struct gofeed *f)
{
	return f->done ? UINT64_MAX : f->time;
}

const struct goevent *gofeed_event(const struct gofeed *f)
{
	return f->at_end ? NULL : &f->event;
}

const struct gogeneration *gofeed_generation(const struct gofeed *f)
{
	return goreader_generation(f->reader);
}

void gofeed_stats(const struct gofeed *f, struct gofeed_stats *ret)
{
	*ret = f->stats;
}

const char *gofeed_why(const struct gofeed *f, uint64_t *ret_at)
{
	*ret_at = f->stats.bytes;
	return f->broken ? goreader_why(f->reader) : NULL;
}
