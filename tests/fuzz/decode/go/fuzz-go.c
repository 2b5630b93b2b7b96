// SPDX-License-Identifier: Apache-2.0
/*
 * A Go trace from a stranger: read whole and byte by byte, which must give the same events, each
 * later than the one before it; and drawn, which must begin and end each slice in order.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/io.h"
#include "common/control/json.h"
#include "decode/go/reader.h"
#include "decode/object/process_maps.h"
#include "decode/replay/gofeed.h"
#include "decode/replay/session.h"
#include "tests/fuzz/decode/go/check-writer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *p;
	size_t n, step;
};

static ssize_t read_some(void *arg, void *buf, size_t size)
{
	struct input *in = arg;
	size_t n = in->n < size ? in->n : size;

	n = n < in->step ? n : in->step;
	memcpy(buf, in->p, n);
	in->p += n;
	in->n -= n;
	return (ssize_t)n;
}

struct seen {
	uint64_t events, hash, offset;
	int end;
	char why[256];
};

static void run(const uint8_t *data, size_t size, size_t step, struct seen *ret)
{
	struct input in = {.p = data, .n = size, .step = step};
	struct budget budget = {.max = 64u << 20};
	struct goreader *r;
	struct goevent e;
	uint64_t last = 0;

	memset(ret, 0, sizeof(*ret));
	if (goreader_new(read_some, &in, &budget, &r) < 0)
		abort();
	while ((ret->end = goreader_next(r, &e)) == GOREADER_EVENT) {
		const struct gogeneration *g = goreader_generation(r);
		struct goframe f;

		if (ret->events++ && (int64_t)e.time <= (int64_t)last)
			abort();
		last = e.time;
		ret->hash = ret->hash * 31 + e.time + (uint64_t)e.kind + e.m + e.g + e.p +
			    e.name.len + e.text.len;
		for (uint32_t i = 0; g && i < gogeneration_stack_depth(g, e.stack); i++) {
			gogeneration_frame(g, e.stack, i, &f);
			ret->hash += f.pc + f.line + f.func.len +
				     (f.file.len ? (uint8_t)f.file.p[f.file.len - 1] : 0);
		}
	}
	/*
	 * each byte is an event at most, but for those of a switch, and what begins and ends
	 * generations
	 */
	if (ret->events > 3 * size + 8)
		abort();
	ret->offset = goreader_offset(r);
	(void)strncpy(ret->why, goreader_why(r), sizeof(ret->why) - 1);
	goreader_free(r);
	if (budget.used)
		abort();
}

static int ask(void *arg, const struct file_request *request, struct file_answer *ret_file,
	       int *ret_fd)
{
	(void)arg, (void)request, (void)ret_file, (void)ret_fd;
	return 0;
}

/* `end`: where the recording was frozen, so long after the trace's begin; 0: it was not. */
static void draw(int in, uint64_t end)
{
	const struct file_requester files = {.ask = ask};
	struct budget budget = {.max = 64u << 20};
	_cleanup_(clock_map_freep) struct clock_map *clocks = NULL;
	_cleanup_(images_freep) struct images *images = NULL;
	_cleanup_(process_maps_freep) struct process_maps *maps = NULL;
	_cleanup_(stacktab_freep) struct stacktab *st = NULL;
	_cleanup_(writer_freep) struct writer *w = NULL;
	_cleanup_(gofeed_freep) struct gofeed *feed = NULL;
	_cleanup_(timeline_freep) struct timeline *tl = NULL;
	_cleanup_(session_freep) struct session *s = NULL;
	_cleanup_json_ struct json_object *summary = NULL;
	struct gofeed_options go = {.fd = in, .budget = &budget};
	struct timeline_options to = {0};
	struct session_options so = {0};
	struct session_go one = {0};

	if (stacktab_new(4 << 20, &st) < 0 || images_new(&files, &budget, &images) < 0 ||
	    process_maps_new(images, &budget, false, &maps) < 0 ||
	    clock_map_new(CLOCK_SOURCE_MONOTONIC, &clocks) < 0 || check_writer_new(&w) < 0)
		abort();
	clock_map_finish(clocks);
	go.clocks = to.clocks = clocks;
	if (gofeed_new(&go, &feed) < 0)
		return;
	if (end) {
		go.end_ns = gofeed_survey(feed)->first_ns + end;
		feed = gofeed_free(feed);
		if (gofeed_new(&go, &feed) < 0)
			return;
	}
	if (timeline_new(&to, st, w, &tl) < 0)
		abort();
	one.feed = feed;
	so = (struct session_options){.go = &one,
				      .n_go = 1,
				      .images = images,
				      .maps = maps,
				      .st = st,
				      .tl = tl,
				      .files = &files,
				      .budget = &budget};
	if (session_new(&so, &s) < 0)
		abort();
	if (session_run(s) == 0 && timeline_finish(tl, &summary) < 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int in = -1;
	struct seen whole, pieces;

	run(data, size, size + 1, &whole);
	run(data, size, 1, &pieces);
	if (memcmp(&whole, &pieces, sizeof(whole)) != 0)
		abort();
	if (in < 0)
		in = io_memfd("fuzz-go");
	if (in < 0 || ftruncate(in, 0) < 0 || io_pwrite_all(in, data, size, 0) < 0)
		abort();
	draw(in, 0);
	draw(in, 1000);
	return 0;
}
