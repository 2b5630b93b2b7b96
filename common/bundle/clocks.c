// SPDX-License-Identifier: Apache-2.0
#include "common/bundle/clocks.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

#include "common/base/io.h"
#include "common/control/json.h"

#define TRIES 8
/* The wall clock's distance from BOOTTIME changes by steps only; reading it takes a little. */
#define STEP_MIN_NS 20000
/*
 * Of a rate that is carried on, as the decoder does it (decode/base/clockmap.c): of brackets that
 * are closer it would be made of errors.
 */
#define RATE_BASE_NS 100000000u
#define SUSPEND_MIN_NS 1000000
/*
 * What NTP may add to or take from MONOTONIC's pace, and what it usually changes from one second to
 * the next.
 */
#define DRIFT_PPM 500
#define WANDER_PPM 1

static uint64_t now(clockid_t clock)
{
	struct timespec t = {0};

	(void)clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

static uint64_t read_tsc(void)
{
#if defined(__x86_64__)
	unsigned aux;

	return __rdtscp(&aux); /* waits for what comes before it */
#else
	return 0;
#endif
}

bool clocks_tsc_is_source(void)
{
	_cleanup_free_ char *source = NULL;
	size_t len;

	if (io_read_file_at(AT_FDCWD,
			    "/sys/devices/system/clocksource/clocksource0/current_clocksource", 64,
			    &source, &len) < 0)
		return false;
	return !strcmp(source, "tsc\n");
}

bool clocks_tsc_usable(void)
{
#if defined(__x86_64__)
	unsigned a, b, c, d;

	/* invariant: ticks on in all C-states at one rate; rdtscp exists */
	if (!__get_cpuid(0x80000007, &a, &b, &c, &d) || !(d & 1U << 8))
		return false;
	if (!__get_cpuid(0x80000001, &a, &b, &c, &d) || !(d & 1U << 27))
		return false;
	return clocks_tsc_is_source();
#else
	return false;
#endif
}

void clocks_read(bool tsc, struct clocks_bracket *ret)
{
	struct clocks_bracket best = {0};

	for (int i = 0; i < TRIES; i++) {
		struct clocks_bracket b = {0};
		uint64_t before, after;

		before = now(CLOCK_MONOTONIC);
		b.raw = now(CLOCK_MONOTONIC_RAW);
		b.tsc = tsc ? read_tsc() : 0;
		b.realtime = now(CLOCK_REALTIME);
		b.boottime = now(CLOCK_BOOTTIME);
		after = now(CLOCK_MONOTONIC);
		b.monotonic = before + (after - before) / 2;
		b.width_ns = after - before;
		if (i == 0 || b.width_ns < best.width_ns)
			best = b;
	}
	*ret = best;
}

static void add_event(struct clocks *c, enum clock_event_kind kind, uint64_t monotonic,
		      int64_t amount)
{
	if (c->n_events == CLOCKS_MAX_EVENTS) {
		memmove(c->events, c->events + 1, (CLOCKS_MAX_EVENTS - 1) * sizeof(c->events[0]));
		c->n_events--;
	}
	c->events[c->n_events++] = (struct clock_event){kind, monotonic, amount};
	if (kind == CLOCK_EVENT_SUSPEND)
		c->suspends++;
	else
		c->steps++;
}

static void notice(struct clocks *c, const struct clocks_bracket *a, const struct clocks_bracket *b)
{
	const int64_t slack = (int64_t)(a->width_ns + b->width_ns);
	int64_t slept = (int64_t)((b->boottime - b->monotonic) - (a->boottime - a->monotonic));
	int64_t step = (int64_t)((b->realtime - b->boottime) - (a->realtime - a->boottime));

	if (slept > SUSPEND_MIN_NS + slack)
		add_event(c, CLOCK_EVENT_SUSPEND, b->monotonic, slept);
	if (step > STEP_MIN_NS + slack || step < -(STEP_MIN_NS + slack))
		add_event(c, CLOCK_EVENT_STEP, b->monotonic, step);
}

void clocks_add(struct clocks *c, const struct clocks_bracket *b)
{
	if (c->n_brackets > 0)
		notice(c, &c->brackets[c->n_brackets - 1], b);
	if (c->n_brackets == CLOCKS_MAX_BRACKETS) {
		/* the old half gets thinner, the new one stays as it is */
		size_t kept = 0;

		for (size_t i = 0; i < CLOCKS_MAX_BRACKETS; i++)
			if (i % 2 == 0 || i >= CLOCKS_MAX_BRACKETS / 2)
				c->brackets[kept++] = c->brackets[i];
		c->n_brackets = kept;
	}
	c->brackets[c->n_brackets++] = *b;
}

void clocks_take(struct clocks *c)
{
	struct clocks_bracket b;

	clocks_read(c->tsc_usable, &b);
	clocks_add(c, &b);
}

void clocks_forget(struct clocks *c, uint64_t monotonic_ns)
{
	size_t n = 0;

	while (n + 1 < c->n_brackets && c->brackets[n + 1].monotonic <= monotonic_ns)
		n++;
	c->n_brackets -= n;
	memmove(c->brackets, c->brackets + n, c->n_brackets * sizeof(c->brackets[0]));
	n = 0;
	while (n < c->n_events && c->events[n].monotonic < monotonic_ns)
		n++;
	c->n_events -= n;
	memmove(c->events, c->events + n, c->n_events * sizeof(c->events[0]));
}

/* ---- conversion */

static uint64_t raw_of(const struct clocks_bracket *b)
{
	return b->raw;
}

static uint64_t tsc_of(const struct clocks_bracket *b)
{
	return b->tsc;
}

/*
 * The segment whose line is used: the one around `t`, or the first or last. Segments that are too
 * short to have a slope that means something are joined with their neighbours.
 */
static size_t find_segment(const struct clocks *c, uint64_t (*of)(const struct clocks_bracket *),
			   uint64_t t)
{
	size_t i = 0;

	while (i + 2 < c->n_brackets && of(&c->brackets[i + 1]) <= t)
		i++;
	return i;
}

static int convert(const struct clocks *c, uint64_t (*of)(const struct clocks_bracket *),
		   bool nanoseconds, uint64_t t, uint64_t *ret, uint64_t *ret_error)
{
	const struct clocks_bracket *a, *b;
	long double slope = 1, dx, dy, at;
	uint64_t distance, error;
	bool inside;
	size_t i;

	if (c->n_brackets == 0 || (!nanoseconds && c->n_brackets < 2))
		return -ENODATA;
	i = find_segment(c, of, t);
	a = b = &c->brackets[i];
	if (c->n_brackets > 1)
		b = &c->brackets[i + 1];
	dx = (long double)of(b) - (long double)of(a);
	dy = (long double)b->monotonic - (long double)a->monotonic;
	if (dx > 0)
		slope = dy / dx;
	else if (!nanoseconds)
		return -ENODATA;
	at = (long double)a->monotonic + ((long double)t - (long double)of(a)) * slope;
	if (at < 0)
		at = 0;
	inside = t >= of(a) && t <= of(b);
	/* from the nearer end, in ns of MONOTONIC */
	if (at < (long double)a->monotonic + dy / 2)
		distance = (uint64_t)(at < (long double)a->monotonic
					      ? (long double)a->monotonic - at
					      : at - (long double)a->monotonic);
	else
		distance = (uint64_t)(at < (long double)b->monotonic
					      ? (long double)b->monotonic - at
					      : at - (long double)b->monotonic);
	error = a->width_ns > b->width_ns ? a->width_ns : b->width_ns;
	error += distance / 1000000 * (inside ? WANDER_PPM : DRIFT_PPM) + 1;
	*ret = (uint64_t)(at + 0.5L);
	*ret_error = error;
	return 0;
}

int clocks_raw_to_monotonic(const struct clocks *c, uint64_t raw, uint64_t *ret_monotonic,
			    uint64_t *ret_error_ns)
{
	return convert(c, raw_of, true, raw, ret_monotonic, ret_error_ns);
}

int clocks_tsc_to_monotonic(const struct clocks *c, uint64_t tsc, uint64_t *ret_monotonic,
			    uint64_t *ret_error_ns)
{
	if (!c->tsc_usable)
		return -ENODATA;
	return convert(c, tsc_of, false, tsc, ret_monotonic, ret_error_ns);
}

/*
 * So much time on RAW, by the rate between two brackets that are at least `base_ns` apart; else the
 * two clocks are taken to run alike.
 */
static uint64_t at_rate(uint64_t ns, const struct clocks_bracket *a, const struct clocks_bracket *b,
			uint64_t base_ns)
{
	if (b->monotonic <= a->monotonic || b->raw <= a->raw || b->raw - a->raw < base_ns)
		return ns;
	return (uint64_t)((unsigned __int128)ns * (b->raw - a->raw) /
			  (b->monotonic - a->monotonic));
}

uint64_t clocks_monotonic_to_raw(const struct clocks *c, uint64_t monotonic, size_t *segment)
{
	const struct clocks_bracket *a, *b;
	size_t i = *segment < c->n_brackets ? *segment : 0;

	if (c->n_brackets == 0)
		return monotonic;
	while (i + 1 < c->n_brackets && c->brackets[i + 1].monotonic <= monotonic)
		i++;
	while (i > 0 && c->brackets[i].monotonic > monotonic)
		i--;
	*segment = i;
	a = b = &c->brackets[i];
	if (i + 1 < c->n_brackets)
		b = &c->brackets[i + 1];
	if (monotonic < a->monotonic) {
		const uint64_t ago = at_rate(a->monotonic - monotonic, a, b, RATE_BASE_NS);

		return ago < a->raw ? a->raw - ago : 0;
	}
	return a->raw + at_rate(monotonic - a->monotonic, a, b, 1);
}

/* ---- meta.json */

struct json_object *clocks_to_json(const struct clocks *c, uint64_t from_monotonic_ns)
{
	struct json_object *o = json_object_new_object(), *brackets, *events;
	size_t first = 0;

	if (!o)
		return NULL;
	json_add_string(o, "samples", "monotonic_raw");
	json_add_bool(o, "tsc_usable", c->tsc_usable);
	brackets = json_add_new_array(o, "brackets");
	events = json_add_new_array(o, "events");
	while (first + 1 < c->n_brackets && c->brackets[first + 1].monotonic <= from_monotonic_ns)
		first++;
	for (size_t i = first; brackets && i < c->n_brackets; i++) {
		const struct clocks_bracket *b = &c->brackets[i];
		struct json_object *e = json_object_new_object();

		if (!e)
			break;
		json_add_uint(e, "monotonic", b->monotonic);
		json_add_uint(e, "raw", b->raw);
		json_add_uint(e, "realtime", b->realtime);
		json_add_uint(e, "boottime", b->boottime);
		if (c->tsc_usable)
			json_add_uint(e, "tsc", b->tsc);
		json_add_uint(e, "width_ns", b->width_ns);
		json_append(brackets, e);
	}
	for (size_t i = 0; events && i < c->n_events; i++) {
		struct json_object *e;

		if (c->events[i].monotonic < from_monotonic_ns)
			continue;
		e = json_object_new_object();
		if (!e)
			break;
		json_add_string(e, "kind",
				c->events[i].kind == CLOCK_EVENT_SUSPEND ? "suspend" : "step");
		json_add_uint(e, "monotonic", c->events[i].monotonic);
		json_add_int(e, "amount_ns", c->events[i].amount_ns);
		json_append(events, e);
	}
	return o;
}

void clocks_add_suspends(const struct clocks *c, uint64_t from_monotonic_ns,
			 struct json_object *gaps)
{
	for (size_t i = 0; i < c->n_events; i++) {
		const struct clock_event *e = &c->events[i];
		struct json_object *gap;
		char kind[64];
		size_t after = 0;

		while (after < c->n_brackets && c->brackets[after].monotonic < e->monotonic)
			after++;
		if (e->kind != CLOCK_EVENT_SUSPEND || e->monotonic < from_monotonic_ns ||
		    after == 0 || after == c->n_brackets)
			continue;
		gap = json_object_new_object();
		(void)snprintf(kind, sizeof(kind), "the machine was suspended for %" PRIi64 " ms",
			       e->amount_ns / 1000000);
		json_add_string(gap, "kind", kind);
		json_add_uint(gap, "from_ns", c->brackets[after - 1].raw);
		json_add_uint(gap, "to_ns", c->brackets[after].raw);
		json_append(gaps, gap);
	}
}

int clocks_from_json(struct json_object *json, struct clocks *ret)
{
	struct json_object *brackets = json_get_array(json, "brackets"),
			   *events = json_get_array(json, "events");

	if (!brackets || json_object_array_length(brackets) > CLOCKS_MAX_BRACKETS)
		return -EPROTO;
	memset(ret, 0, sizeof(*ret));
	(void)json_get_bool(json, "tsc_usable", &ret->tsc_usable);
	for (size_t i = 0; i < json_object_array_length(brackets); i++) {
		struct json_object *e = json_object_array_get_idx(brackets, i);
		struct clocks_bracket *b = &ret->brackets[i];

		if (!json_object_is_type(e, json_type_object) ||
		    !json_get_uint(e, "monotonic", &b->monotonic) ||
		    !json_get_uint(e, "raw", &b->raw) ||
		    !json_get_uint(e, "realtime", &b->realtime) ||
		    !json_get_uint(e, "boottime", &b->boottime) ||
		    !json_get_uint(e, "width_ns", &b->width_ns))
			return -EPROTO;
		if (!json_get_uint(e, "tsc", &b->tsc))
			b->tsc = 0;
		if (i > 0 && (b->monotonic < b[-1].monotonic || b->raw < b[-1].raw))
			return -EPROTO;
		ret->n_brackets++;
	}
	for (size_t i = 0; events && i < json_object_array_length(events) && i < CLOCKS_MAX_EVENTS;
	     i++) {
		struct json_object *e = json_object_array_get_idx(events, i);
		struct clock_event *v = &ret->events[i];
		const char *kind;

		kind = json_object_is_type(e, json_type_object) ? json_get_string(e, "kind") : NULL;
		if (!kind || !json_get_uint(e, "monotonic", &v->monotonic) ||
		    !json_get_int(e, "amount_ns", &v->amount_ns))
			return -EPROTO;
		v->kind = !strcmp(kind, "suspend") ? CLOCK_EVENT_SUSPEND : CLOCK_EVENT_STEP;
		ret->n_events++;
	}
	return 0;
}
