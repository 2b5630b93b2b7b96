// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "decode/go/batch.h"
#include "decode/go/text.h"
#include "decode/go/text_out.h"

struct wire {
	struct gotext_out *o;
	const uint8_t *p, *end;
	char *why;
	size_t size;
};

static bool number(struct wire *w, uint64_t *ret)
{
	const int n = gofmt_uvarint(w->p, (uint64_t)(w->end - w->p), ret);

	w->p += n > 0 ? n : 0;
	return n > 0;
}

static bool put_numbers(struct wire *w, const char *const *names, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		uint64_t v;

		if (!number(w, &v))
			return false;
		gotext_printf(w->o, " %s=%" PRIu64, names[i], v);
	}
	return true;
}

static void put_data(struct wire *w, const uint8_t *p, uint64_t n)
{
	if (n == 0)
		return;
	gotext_printf(w->o, "\n\tdata=");
	gotext_quote(w->o, (const char *)p, n);
}

static bool put_string(struct wire *w)
{
	uint64_t id, len;

	if (!number(w, &id) || !number(w, &len) || len > (uint64_t)(w->end - w->p))
		return false;
	gotext_printf(w->o, " id=%" PRIu64, id);
	put_data(w, w->p, len);
	w->p += len;
	return true;
}

static bool put_stack(struct wire *w)
{
	static const char *const names[] = {"pc", "func", "file", "line"};
	uint64_t id, n;

	if (!number(w, &id) || !number(w, &n) || n > GOFMT_MAX_FRAMES)
		return false;
	gotext_printf(w->o, " id=%" PRIu64 " nframes=%" PRIu64, id, n);
	for (uint64_t i = 0; i < n; i++) {
		gotext_printf(w->o, "\n\t");
		for (unsigned int k = 0; k < ARRAY_SIZE(names); k++) {
			uint64_t v;

			if (!number(w, &v))
				return false;
			gotext_printf(w->o, "%s%s=%" PRIu64, k ? " " : "", names[k], v);
		}
	}
	return true;
}

static bool put_one(struct wire *w)
{
	static const char *const sample[] = {"time", "m", "p", "g", "stack"},
				 *const freq[] = {"freq"}, *const dt[] = {"dt"};
	const uint8_t type = *w->p++;
	const struct gofmt_spec *spec = gofmt_spec(type);
	bool whole = true;

	if (!spec->name || type == GOFMT_EVENT_BATCH || type == GOFMT_EXPERIMENTAL_BATCH ||
	    type == GOFMT_END_OF_GENERATION) {
		(void)snprintf(w->why, w->size, "found invalid event type: %d", type);
		return false;
	}
	gotext_printf(w->o, "%s", spec->name);
	if (spec->timed)
		whole = put_numbers(w, dt, 1) && put_numbers(w, spec->args, spec->n_args);
	else if (type == GOFMT_STRING)
		whole = put_string(w);
	else if (type == GOFMT_STACK)
		whole = put_stack(w);
	else if (type == GOFMT_CPU_SAMPLE)
		whole = put_numbers(w, sample, ARRAY_SIZE(sample));
	else if (type == GOFMT_FREQUENCY)
		whole = put_numbers(w, freq, ARRAY_SIZE(freq));
	gotext_put(w->o, "\n", 1);
	if (!whole)
		(void)snprintf(w->why, w->size, "the event %s is cut", spec->name);
	return whole;
}

static bool put_batch(struct wire *w, const struct gobatch *b)
{
	bool whole = true;

	if (b->is_end) {
		gotext_printf(w->o, "EndOfGeneration\n");
		return true;
	}
	if (b->experiment) {
		gotext_printf(w->o,
			      "ExperimentalBatch exp=%u gen=%" PRIu64 " m=%" PRIu64
			      " time=%" PRIu64,
			      b->experiment, b->gen, b->m, b->time);
		put_data(w, b->data, b->size);
		gotext_put(w->o, "\n", 1);
		return true;
	}
	gotext_printf(w->o, "EventBatch gen=%" PRIu64 " m=%" PRIu64 " time=%" PRIu64 " size=%u\n",
		      b->gen, b->m, b->time, b->size);
	w->p = b->data;
	w->end = b->data + b->size;
	while (w->p < w->end && whole)
		whole = put_one(w);
	return whole;
}

int gotext_wire(gobatch_read_fn read, void *arg, struct budget *budget, int fd, uint64_t max_bytes,
		struct gotext_stats *ret)
{
	_cleanup_free_ struct gotext_out *o = malloc(sizeof(*o));
	_cleanup_free_ struct gostream *s = malloc(sizeof(*s));
	_cleanup_free_ struct gobatch *b = malloc(sizeof(*b));
	struct wire w = {.o = o, .why = ret->why, .size = sizeof(ret->why)};
	int r = GOBATCH_ONE;

	(void)budget; /* no more than a batch is kept */
	*ret = (struct gotext_stats){0};
	if (!o || !s || !b)
		return -ENOMEM;
	o->fd = fd;
	o->max_bytes = max_bytes;
	o->bytes = o->n = 0;
	o->error = 0;
	gostream_init(s, read, arg);
	r = gostream_version(s, ret->why, sizeof(ret->why));
	r = r > 0 ? GOBATCH_ONE : r < 0 ? r : GOBATCH_BROKEN;
	while (r == GOBATCH_ONE && o->error == 0 &&
	       (r = gostream_next(s, b, ret->why, sizeof(ret->why))) == GOBATCH_ONE) {
		ret->events++;
		ret->generations += b->is_end;
		if (!put_batch(&w, b))
			r = GOBATCH_BROKEN;
	}
	gotext_flush(o);
	ret->bytes_read = s->offset;
	ret->bytes_out = o->bytes;
	if (o->error < 0 && o->error != -EFBIG)
		ret->write_error = o->error;
	return r < 0 ? r : o->error;
}
