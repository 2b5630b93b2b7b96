// SPDX-License-Identifier: Apache-2.0
#include "decode/go/batch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define HEADER_BYTES 16u

void gostream_init(struct gostream *s, gobatch_read_fn read, void *arg)
{
	s->read = read;
	s->arg = arg;
	s->at = s->n = 0;
	s->offset = 0;
	s->ended = false;
	s->error = 0;
}

/* Makes sure that there is a byte; false at the end and after an error. */
static bool more(struct gostream *s)
{
	ssize_t n;

	if (s->at < s->n)
		return true;
	if (s->ended)
		return false;
	do
		n = s->read(s->arg, s->piece, sizeof(s->piece));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		s->error = -errno;
	s->ended = n <= 0;
	s->at = 0;
	s->n = n > 0 ? (size_t)n : 0;
	return n > 0;
}

static size_t take(struct gostream *s, uint8_t *to, size_t size)
{
	size_t done = 0;

	while (done < size && more(s)) {
		const size_t n = s->n - s->at < size - done ? s->n - s->at : size - done;

		memcpy(to + done, s->piece + s->at, n);
		s->at += n;
		s->offset += n;
		done += n;
	}
	return done;
}

int gostream_version(struct gostream *s, char *why, size_t size)
{
	uint8_t h[HEADER_BYTES];
	const size_t n = take(s, h, sizeof(h));
	int minor;

	if (s->error)
		return s->error;
	if (n != sizeof(h) || memcmp(h, "go 1.", 5) != 0 || h[5] < '0' || h[5] > '9' ||
	    h[6] < '0' || h[6] > '9' || memcmp(h + 7, " trace\0\0\0", 9) != 0) {
		/* 1.5 and 1.7 have one digit */
		(void)snprintf(why, size, "bad file format: not a Go execution trace?");
		return 0;
	}
	minor = (h[5] - '0') * 10 + h[6] - '0';
	switch (minor) {
	case 22:
	case 23:
	case 25:
	case 26:
		return minor;
	case 11:
	case 19:
	case 21:
		(void)snprintf(
			why, size,
			"a trace of the old format (go 1.%d), which Go wrote before 1.22: not supported",
			minor);
		return 0;
	default:
		(void)snprintf(why, size, "unknown or unsupported trace version go 1.%d", minor);
		return 0;
	}
}

static bool number(struct gostream *s, const char *what, uint64_t *ret, char *why, size_t size)
{
	uint64_t v = 0;

	for (unsigned int i = 0; i < 10; i++) {
		uint8_t b;

		if (take(s, &b, 1) != 1) {
			(void)snprintf(why, size, "error reading batch %s: %s", what,
				       i ? "unexpected EOF" : "EOF");
			return false;
		}
		v |= (uint64_t)(b & 0x7f) << 7 * i;
		if (b >= 0x80)
			continue;
		if (i == 9 && b > 1)
			break;
		*ret = v;
		return true;
	}
	(void)snprintf(why, size,
		       "error reading batch %s: binary: varint overflows a 64-bit integer", what);
	return false;
}

static int read_one(struct gostream *s, struct gobatch *b, char *why, size_t size)
{
	uint64_t bytes;
	uint8_t type;
	size_t n;

	b->is_end = false;
	b->experiment = 0;
	if (take(s, &type, 1) != 1)
		return GOBATCH_END;
	if (type == GOFMT_END_OF_GENERATION) {
		b->is_end = true;
		b->gen = 0;
		return GOBATCH_ONE;
	}
	if (type != GOFMT_EVENT_BATCH && type != GOFMT_EXPERIMENTAL_BATCH) {
		(void)snprintf(why, size, "expected batch event, got event %d", type);
		return GOBATCH_BROKEN;
	}
	if (type == GOFMT_EXPERIMENTAL_BATCH && take(s, &b->experiment, 1) != 1)
		return GOBATCH_END;
	if (!number(s, "gen", &b->gen, why, size) || !number(s, "M ID", &b->m, why, size) ||
	    !number(s, "timestamp", &b->time, why, size) || !number(s, "size", &bytes, why, size))
		return GOBATCH_BROKEN;
	if (bytes > GOFMT_MAX_BATCH) {
		(void)snprintf(why, size, "invalid batch size %" PRIu64 ", maximum is %u", bytes,
			       GOFMT_MAX_BATCH);
		return GOBATCH_BROKEN;
	}
	b->size = (uint32_t)bytes;
	n = take(s, b->data, b->size);
	if (n != b->size) {
		(void)snprintf(why, size, "failed to read full batch: read %zu but wanted %u", n,
			       b->size);
		return GOBATCH_BROKEN;
	}
	return GOBATCH_ONE;
}

int gostream_next(struct gostream *s, struct gobatch *ret, char *why, size_t size)
{
	int r = read_one(s, ret, why, size);

	return s->error ? s->error : r;
}
