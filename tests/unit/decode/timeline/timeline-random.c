/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/unit/decode/timeline/timeline-random.h"

#include <stdio.h>

#define N_FRAMES 40u
#define N_THREADS 9u
#define N_CPUS 3u

struct source {
	uint64_t state;
	struct stacktab *st;
	uint32_t frames[N_FRAMES];
};

static uint64_t draw(struct source *s, uint64_t n)
{
	s->state = s->state * 6364136223846793005ull + 1442695040888963407ull;
	return (s->state >> 33) % n;
}

/* Mostly shallow, sometimes beyond every cap. */
static uint32_t random_stack(struct source *s)
{
	uint64_t depth = draw(s, 20) == 0 ? draw(s, 700) : draw(s, 9);
	uint32_t id = STACKTAB_ROOT;

	for (uint64_t i = 0; i < depth; i++)
		id = stacktab_push(s->st, id, s->frames[draw(s, i < 3 ? 2 : N_FRAMES)]);
	return id;
}

static uint32_t random_who(struct source *s)
{
	switch (draw(s, 5)) {
	case 0:
		return TL_TID_IDLE;
	case 1:
		return TL_TID_OTHER;
	case 2:
		return TL_TID_UNKNOWN;
	case 3:
		return 4000 + (uint32_t)draw(s, 3);
	default:
		return 100 + (uint32_t)draw(s, N_THREADS);
	}
}

/* Events of the program, of which hardly any fits the one before. */
static int random_program_event(struct source *s, struct timeline *tl, uint64_t ts)
{
	static const char *const names[] = {"serve", "parse", "", "a \xc3\xa4\xe2\x82\xac"};
	struct ringevent ev = {
		.kind = (enum ringevent_kind)draw(s, RINGEVENT_LOST + 1),
		.ts = ts,
		.pid = 100,
		.tid = 100 + (uint32_t)draw(s, N_THREADS),
		.name = names[draw(s, ARRAY_SIZE(names))],
		.format = draw(s, 2) ? "%s" : NULL,
		.task = draw(s, 6),
		.parent = draw(s, 6),
		.id = draw(s, 4),
		.fiber = draw(s, 3) ? 0 : draw(s, 4),
		.began = draw(s, 3) ? 0 : ts - draw(s, 3000),
		.began_early = draw(s, 9) == 0,
		.unfinished = draw(s, 9) == 0,
		.level = (uint8_t)draw(s, 6),
		.flow = (uint8_t)draw(s, 4),
		.value_type = draw(s, 2) ? RINGEVENT_F64 : RINGEVENT_I64,
		.value.u64 = draw(s, 3) ? draw(s, 100) : UINT64_MAX,
		.n_args = draw(s, 5) ? draw(s, 3) : draw(s, RINGEVENT_MAX_ARGS + 1),
	};

	/* deep now and then */
	if (draw(s, 3) == 0)
		ev.kind = RINGEVENT_REGION_BEGIN;
	for (size_t i = 0; i < ev.n_args; i++) {
		ev.args[i] = (struct ringevent_arg){.key = names[draw(s, ARRAY_SIZE(names))],
						    .type = (enum ringevent_type)
							    draw(s, RINGEVENT_POINTER + 1),
						    .cut = draw(s, 2),
						    .value.u64 = draw(s, 1000)};
		if (ev.args[i].type == RINGEVENT_TEXT)
			ev.args[i].value.text = names[draw(s, ARRAY_SIZE(names))];
	}
	return timeline_event(tl, &ev);
}

static int random_event(struct source *s, struct timeline *tl, uint64_t ts)
{
	uint32_t tid = 100 + (uint32_t)draw(s, N_THREADS);
	uint32_t cpu = draw(s, 10) ? (uint32_t)draw(s, N_CPUS) : TL_CPU_UNKNOWN;

	if (draw(s, 3) == 0)
		return random_program_event(s, tl, ts);
	switch (draw(s, 26)) {
	case 0:
		return timeline_thread(tl, 100, tid, draw(s, 2) ? "renamed" : "worker", ts);
	case 1:
		return draw(s, 8) ? 0 : timeline_thread_exit(tl, tid, ts);
	case 2:
		return timeline_loss(tl, draw(s, 2) ? tid : 0, ts - draw(s, 3000), ts,
				     "samples overwritten", draw(s, 4));
	case 3:
		return timeline_mark(tl, ts, "trigger");
	case 4:
		return timeline_counter(tl, draw(s, 2) ? 100 : 0, ts, "queue", WRITER_UNIT_COUNT,
					(int64_t)draw(s, 100) - 50);
	case 5:
	case 6:
	case 7:
	case 8:
		return timeline_switch_out(tl, tid, ts, cpu,
					   (enum off_cpu)draw(s, draw(s, 9) ? 5 : 6),
					   draw(s, 2)   ? random_stack(s)
					   : draw(s, 2) ? TL_STACK_LATER
							: 0,
					   random_who(s), draw(s, 2) ? "someone" : NULL);
	case 9:
	case 10:
	case 11:
	case 12:
		return timeline_switch_in(tl, tid, ts, cpu, random_who(s), NULL);
	case 24:
		return timeline_blocked(tl, tid, ts, (enum off_cpu)draw(s, 5),
					draw(s, 2) ? random_stack(s) : 0);
	case 25:
		(void)timeline_waited(tl, tid, ts, draw(s, 9000), draw(s, 2) ? random_stack(s) : 0);
		return timeline_switch_in(tl, tid, ts, cpu, random_who(s), NULL);
	case 13:
	case 14:
		return timeline_wakeup(tl, tid, ts, cpu, random_who(s), 100, "waker",
				       draw(s, 3) == 0, draw(s, 2) ? random_stack(s) : 0);
	default:
		return timeline_sample(tl, tid, ts, cpu, random_stack(s));
	}
}

int timeline_random_play(uint64_t seed, uint64_t n_events, struct writer *w,
			 struct timeline_stats *ret_stats, struct json_object **ret_summary)
{
	_cleanup_(stacktab_freep) struct stacktab *st = NULL;
	_cleanup_(timeline_freep) struct timeline *tl = NULL;
	struct source s = {.state = seed * 7919 + 1};
	uint64_t ts = 5000000;
	int r = stacktab_new(0, &st);

	if (r < 0)
		return r;
	s.st = st;
	for (uint32_t i = 0; i < N_FRAMES; i++) {
		char name[32];

		(void)snprintf(name, sizeof(name), "function_%u", i);
		s.frames[i] = stacktab_frame(
			st, &(struct frame_info){.name = name,
						 .object = i % 3 ? "/usr/lib/libx.so.1" : "",
						 .file = i % 4 ? "" : "x.c",
						 .line = i});
	}
	r = timeline_new(&(struct timeline_options){.period_ns = 1000,
						    .switches = seed % 2 == 0,
						    .wait_min_ns = seed % 3 == 1 ? 1000 : 0,
						    .complete_from_ns = seed % 3 ? 0 : 5004000,
						    .depth_cap = seed % 3 == 0 ? 20 : 0,
						    .focus_begin_ns = 5002000,
						    .focus_end_ns = seed % 4 == 0 ? 0 : 5009000,
						    .cause = {.region = seed % 2 ? "serve" : NULL,
							      .tid = 100 +
								     (uint32_t)(seed % N_THREADS),
							      .begin_ns = 5003000,
							      .end_ns = 5010000,
							      .over_ns = 1500}},
			 st, w, &tl);
	if (r == 0)
		r = timeline_process(tl, 100, 1, "random", 0);
	for (uint64_t i = 0; i < seed % 5 && r == 0; i++) {
		const uint64_t at = 5000000 + draw(&s, 60000);

		timeline_incomplete(tl, at, at + draw(&s, 5000));
	}
	for (uint64_t i = 0; i < n_events && r >= 0; i++) {
		ts += draw(&s, 4) == 0 ? 0 : draw(&s, 30) == 0 ? draw(&s, 9000) : draw(&s, 400);
		r = random_event(&s, tl, ts);
	}
	if (r >= 0)
		r = timeline_finish(tl, ret_summary);
	timeline_stats(tl, ret_stats);
	return r;
}
