/* SPDX-License-Identifier: Apache-2.0 */
/* The region of the program because of which this was recorded, on the track of the marks. */
#include "config.h"

#include "decode/timeline/timeline_internal.h"

#include <inttypes.h>
#include <stdio.h>

/* "7.31 ms", "5 ms": in the largest unit, at most two places. */
static void duration_text(char *buf, size_t size, uint64_t ns)
{
	static const struct {
		uint64_t ns;
		const char *name;
	} units[] = {{1000000000, "s"}, {1000000, "ms"}, {1000, "us"}, {1, "ns"}};
	unsigned int u = 0, places;

	while (u < ARRAY_SIZE(units) - 1 && ns < units[u].ns)
		u++;
	places = (unsigned int)(ns % units[u].ns * 100 / units[u].ns);
	if (places == 0)
		(void)snprintf(buf, size, "%" PRIu64 " %s", ns / units[u].ns, units[u].name);
	else if (places % 10 == 0)
		(void)snprintf(buf, size, "%" PRIu64 ".%u %s", ns / units[u].ns, places / 10,
			       units[u].name);
	else
		(void)snprintf(buf, size, "%" PRIu64 ".%02u %s", ns / units[u].ns, places,
			       units[u].name);
}

static void cause_end(struct timeline *tl, uint64_t mono)
{
	const struct timeline_cause *c = &tl->options.cause;
	char text[256], took[32], over[32], who[32] = "";
	int name_len = (int)writer_text_len(c->region, 120);

	writer_slice_end(tl->w, timeline_marks_track(tl), mono, NULL);
	duration_text(took, sizeof(took), c->end_ns - c->begin_ns);
	duration_text(over, sizeof(over), c->over_ns);
	if (c->tid)
		(void)snprintf(who, sizeof(who), " in thread %" PRIu32, c->tid);
	(void)snprintf(text, sizeof(text), "trigger: %.*s took %s (over %s)%s", name_len, c->region,
		       took, over, who);
	(void)summary_mark(tl->summary, text, mono);
	timeline_mark_draw(tl, mono, text);
}

static void cause_begin(struct timeline *tl, uint64_t mono)
{
	const struct timeline_cause *c = &tl->options.cause;
	const struct tl_event_names *n = tl->event_names;
	struct tl_args a = {.n = 0};
	char text[160];

	(void)snprintf(text, sizeof(text), "slow: %.*s", (int)writer_text_len(c->region, 120),
		       c->region);
	if (c->tid)
		tl_args_uint(&a, n->key_tid, c->tid);
	tl_args_uint(&a, n->key_ns, c->end_ns - c->begin_ns);
	tl_args_uint(&a, n->key_over, c->over_ns);
	writer_slice_begin(tl->w, timeline_marks_track(tl), mono,
				&(struct writer_event){.name = writer_name(tl->w, text),
						       .category = tl->mark_category,
						       .args = a.a,
						       .n_args = a.n});
}

void timeline_cause_pass(struct timeline *tl, uint64_t ts)
{
	const struct timeline_cause *c = &tl->options.cause;

	if (c->end_ns < c->begin_ns)
		return;
	if (!tl->slow_begun && ts >= c->begin_ns) {
		uint64_t mono = timeline_monotonic(tl, c->begin_ns);

		/* A region of hours does not make the trace hours long. */
		tl->slow_begun = true;
		cause_begin(tl, mono > tl->stats.first_ns ? mono : tl->stats.first_ns);
	}
	if (tl->slow_begun && ts >= c->end_ns) {
		tl->slow_ended = true;
		cause_end(tl, timeline_monotonic(tl, c->end_ns));
	}
}
