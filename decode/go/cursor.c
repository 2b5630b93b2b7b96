// SPDX-License-Identifier: Apache-2.0
#include "decode/go/cursor.h"

#include <stdio.h>
#include <string.h>

/* A time and all arguments. */
#define SHORT_NUMBERS ((1 + GOFMT_MAX_ARGS) * GOFMT_SHORT_UVARINT)

static int broken(char *why, size_t size, const char *text)
{
	(void)snprintf(why, size, "%s", text);
	return GOCURSOR_BROKEN;
}

static __attribute__((noinline, cold)) int broken_event(uint8_t type, char *why, size_t size)
{
	(void)snprintf(why, size,
		       type >= GOFMT_N_TYPES ? "found invalid event type: %d"
					     : "found event without a timestamp: type=%d",
		       type);
	return GOCURSOR_BROKEN;
}

/* Goes to the chunk that follows, if there is one. */
static bool next_chunk(struct gocursor *c, const struct gogeneration *g)
{
	const struct gochunk *chunk;

	if (!c->next)
		return false;
	chunk = &g->chunks[c->next - 1];
	c->p = g->bytes + chunk->at;
	c->end = c->p + chunk->size;
	c->next = chunk->next;
	c->base = gogeneration_ns(g, chunk->time);
	c->last = 0;
	return true;
}

/* The event has its numbers. */
static inline int done(struct gocursor *c, const struct gogeneration *g, const uint8_t *p,
		       uint64_t dt)
{
	c->p = p;
	c->last = (c->last ? c->last : c->base) + gogeneration_ns(g, dt);
	c->ev.time = c->last;
	return GOCURSOR_EVENT;
}

/* The numbers of an event that are near the end of the chunk, or long: each is checked. */
static __attribute__((noinline)) int next_checked(struct gocursor *c, const struct gogeneration *g,
						  char *why, size_t size)
{
	const uint8_t *p = c->p + 1;
	uint64_t dt;
	int n = gofmt_uvarint(p, (uint64_t)(c->end - p), &dt);

	if (n <= 0)
		return broken(why, size, "found invalid uvarint for timestamp");
	p += n;
	for (unsigned int i = 0; i < gofmt_spec(c->ev.type)->n_args; i++) {
		n = gofmt_uvarint(p, (uint64_t)(c->end - p), &c->ev.args[i]);
		if (n <= 0)
			return broken(why, size, "found invalid uvarint");
		p += n;
	}
	return done(c, g, p, dt);
}

int gocursor_next(struct gocursor *c, const struct gogeneration *g, char *why, size_t size)
{
	const struct gofmt_spec *spec;
	const uint8_t *p;
	uint64_t dt;
	unsigned int n;

	while (c->p == c->end)
		if (!next_chunk(c, g))
			return GOCURSOR_END;
	p = c->p;
	c->ev.type = *p++;
	spec = gofmt_spec(c->ev.type);
	c->ev.spec = spec;
	if (!spec->timed)
		return broken_event(c->ev.type, why, size);
	memset(c->ev.args, 0, sizeof(c->ev.args));
	if ((size_t)(c->end - p) < SHORT_NUMBERS)
		return next_checked(c, g, why, size);
	n = gofmt_short_uvarint(p, &dt);
	if (n == 0)
		return next_checked(c, g, why, size);
	p += n;
#pragma GCC unroll 4
	for (unsigned int i = 0; i < spec->n_args; i++) {
		n = gofmt_short_uvarint(p, &c->ev.args[i]);
		if (n == 0)
			return next_checked(c, g, why, size);
		p += n;
	}
	return done(c, g, p, dt);
}
