// SPDX-License-Identifier: Apache-2.0
/* A Go trace from a stranger: read whole and byte by byte, which must give the same events, each later than the one before it. */
#include <stdlib.h>
#include <string.h>

#include "decode/go/reader.h"

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
		ret->hash = ret->hash * 31 + e.time + (uint64_t)e.kind + e.m + e.g + e.p + e.name.len + e.text.len;
		for (uint32_t i = 0; g && i < gogeneration_stack_depth(g, e.stack); i++) {
			gogeneration_frame(g, e.stack, i, &f);
			ret->hash += f.pc + f.line + f.func.len + (f.file.len ? (uint8_t)f.file.p[f.file.len - 1] : 0);
		}
	}
	/* each byte is an event at most, but for those of a switch, and what begins and ends generations */
	if (ret->events > 3 * size + 8)
		abort();
	ret->offset = goreader_offset(r);
	(void)strncpy(ret->why, goreader_why(r), sizeof(ret->why) - 1);
	goreader_free(r);
	if (budget.used)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct seen whole, pieces;

	run(data, size, size + 1, &whole);
	run(data, size, 1, &pieces);
	if (memcmp(&whole, &pieces, sizeof(whole)) != 0)
		abort();
	return 0;
}
