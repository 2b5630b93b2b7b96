// SPDX-License-Identifier: Apache-2.0
/* How calls begin and end in what is written: slices of the timeline, or lines of text. */
#include "config.h"

#include "decode/replay/pt_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "decode/dwarf/source.h"
#include "decode/pt/code.h"
#include "decode/pt/slot.h"
#include "decode/replay/session_internal.h"

struct code *replay_pt_code(const struct pt_thread *t)
{
	struct replay_pt *p = t->p;
	struct process *process = session_process(p->s, t->pid);

	if (!process)
		return NULL;
	process->code.space = t->space;
	return &process->code;
}

/*
 * The frame of a function: by its number once it was seen, since calls are many and functions few.
 */
uint32_t replay_pt_frame(struct pt_thread *t, const struct callfunc *f, uint64_t ip)
{
	struct replay_pt *p = t->p;
	struct code *code;
	uint32_t frame;

	if (f->id < p->n_frames && p->frames[f->id] && f->known)
		return p->frames[f->id];
	code = replay_pt_code(t);
	if (!code)
		return STACKTAB_FRAME_FULL;
	frame = resolver_frame(p->s->resolver, code, ip, RESOLVE_EXACT);
	if (f->id >= p->n_frames) {
		const uint32_t n = f->id + f->id / 2 + 256;
		uint32_t *v = reallocarray(p->frames, n, sizeof(*v));

		if (!v)
			return frame;
		memset(v + p->n_frames, 0, (n - p->n_frames) * sizeof(*v));
		p->frames = v;
		p->n_frames = n;
	}
	p->frames[f->id] = frame;
	return frame;
}

const struct callfunc *replay_pt_function(struct pt_thread *t, uint64_t ip, bool *ret_first)
{
	struct known *k = &t->p->known[(ip ^ ip >> 10) % KNOWN];

	if (!k->f || k->ip != ip || k->space != t->space) {
		k->f = ptcode_function(t->p->code, t->space, ip, &k->first);
		k->ip = ip;
		k->space = t->space;
	}
	*ret_first = k->first;
	return k->f;
}

static const struct callfunc *on_function(void *arg, uint64_t ip, bool *ret_first)
{
	return replay_pt_function(arg, ip, ret_first);
}

static bool on_lands(void *arg, uint64_t call, uint64_t pad)
{
	const struct pt_thread *t = arg;

	return ptcode_lands(t->p->code, t->space, call, pad);
}

static enum callstack_slot on_slot(void *arg, uint64_t ip)
{
	const struct pt_thread *t = arg;
	struct known_slot *k = &t->p->slots[(ip ^ ip >> 10) % KNOWN_SLOTS];

	if (k->ip != ip || k->space != t->space) {
		k->slot = slot_before(t->p->code, t->space, ip);
		k->ip = ip;
		k->space = t->space;
	}
	return k->slot;
}

static bool on_in_parts(void *arg, uint64_t from, uint64_t to)
{
	const struct pt_thread *t = arg;

	return slot_in_parts(t->p->code, t->space, from, to);
}

static bool on_is_half(void *arg, uint64_t ip)
{
	const struct pt_thread *t = arg;

	return slot_is_half(t->p->code, t->space, ip);
}

/*
 * What threads do between two times of the trace has times in between: what others do then may have
 * been before, or after.
 */
static bool on_is_unordered(void *arg)
{
	const struct pt_thread *t = arg;

	return t->program && t->program->inexact && t->program->n_running > t->running;
}

static struct callstack_run on_goroutine(void *arg, uint64_t since, bool begins)
{
	const struct pt_thread *t = arg;
	struct callstack_run run;

	if (t->program && t->program->runs &&
	    goruns_next(t->program->runs, t->tid, since, begins, &run.goroutine, &run.run))
		return run;
	return (struct callstack_run){0};
}

/* Of what happens at the event, or (what was there before) earlier. */
struct dump_time replay_pt_time(const struct replay_pt *p, uint64_t ns)
{
	return (struct dump_time){.ns = ns, .interpolated = p->interpolated && ns == p->ns};
}

static const char *how_of(enum callstack_why why)
{
	static const char *const how[] = {
		[CALLSTACK_TAIL] = "tail call",
		[CALLSTACK_UNWOUND] = "unwound to",
		[CALLSTACK_FOUND] = "begin not recorded",
		[CALLSTACK_SIGNAL] = "signal",
		[CALLSTACK_GAP] = "goes on after a gap",
		[CALLSTACK_RESUMED] = "its stack goes on",
		[CALLSTACK_DOUBTED] = "its stack goes on, in doubt: others wait there",
		[CALLSTACK_GOROUTINE] = "goroutine goes on",
		[CALLSTACK_GOROUTINE_DOUBTED] = "goroutine goes on, in doubt: perhaps another one",
		[CALLSTACK_SWITCHED] = "on the thread's own stack",
		[CALLSTACK_SIGNAL_DOUBTED] = "signal, in doubt: perhaps another stack",
		[CALLSTACK_UNWOUND_DOUBTED] = "unwound to, in doubt: perhaps to another call of it",
		[CALLSTACK_BACK] = "goes on, jumped back to",
		[CALLSTACK_FORKED] = "forked within it",
		[CALLSTACK_SEEN] = "begin not recorded, from its stack",
		[CALLSTACK_NEW_STACK] = "on a new stack",
		[CALLSTACK_SEEN_CUT] = "begin not recorded, from its stack: callers unknown",
	};

	return how[why];
}

/*
 * Whether a first frame that begins so is seen in the middle, or begins: else it takes the place of
 * another one.
 */
static bool is_found(enum callstack_why why)
{
	return why != CALLSTACK_TAIL && why != CALLSTACK_UNWOUND &&
	       why != CALLSTACK_UNWOUND_DOUBTED && why != CALLSTACK_BACK;
}

/* Whether one that begins so may have callers that are not known. */
static bool is_in_call(enum callstack_why why)
{
	return why == CALLSTACK_FOUND || why == CALLSTACK_GAP || why == CALLSTACK_SIGNAL ||
	       why == CALLSTACK_SIGNAL_DOUBTED || why == CALLSTACK_SEEN ||
	       why == CALLSTACK_SEEN_CUT;
}

/* The line of an instruction; NULL: nobody wants to know, or nobody knows. */
const char *replay_pt_line(struct replay_pt *p, const struct pt_thread *t, uint64_t ip)
{
	struct source *source = p->s->o.source;
	struct code *code = source && ip ? replay_pt_code(t) : NULL;
	const char *line;
	struct image *img;
	uint64_t vaddr;

	img = code ? resolver_image(p->s->resolver, code, ip, &vaddr) : NULL;
	if (!img)
		return NULL;
	line = source_place(source, img, vaddr);
	if (source_error(source) < 0)
		p->error = source_error(source);
	return line;
}

struct call *replay_pt_innermost(const struct pt_thread *t)
{
	const struct callfunc *f;
	uint32_t i;
	struct call *c = callstack_innermost(t->calls, &f, &i);

	return c && t->n_inlined && t->inlined[t->n_inlined - 1].within == i
		       ? &t->inlined[t->n_inlined - 1].call
		       : c;
}

void replay_pt_begin_call(struct pt_thread *t, const struct call *c, const char *how,
			  const char *site)
{
	struct replay_pt *p = t->p;
	int r;

	if (t->dump)
		r = dump_call(t->dump, replay_pt_time(p, c->begin), c->frame, how, site);
	else
		r = timeline_call(p->s->o.tl, t->tid, c, how, site);
	if (r < 0)
		p->error = r;
}

void replay_pt_end_call(struct pt_thread *t, uint64_t time, const struct call *c,
			struct call *caller)
{
	struct replay_pt *p = t->p;
	const struct timeline_return end = {.ns = time,
		.insns = t->insns - c->insns,
		.interpolated = p->interpolated && time == p->ns,
		.caller = caller ? caller->frame : 0};
	int r;

	if (caller)
		caller->callee_insns += end.insns;
	else
		t->outer_insns += end.insns;
	if (t->dump)
		r = dump_return(t->dump, replay_pt_time(p, time), c, end.insns);
	else
		r = timeline_return(p->s->o.tl, t->tid, time > p->ns ? time : p->ns, c, &end);
	if (r < 0)
		p->error = r;
}

static void on_begin(void *arg, uint64_t time, const struct callstack_frame *fr, struct call *call,
		     enum callstack_why why)
{
	struct pt_thread *t = arg;
	struct replay_pt *p = t->p;
	const uint32_t frame = replay_pt_frame(t, fr->f, fr->ip);
	const char *site = replay_pt_line(p, t, fr->site);
	int r = 0;

	*call = (struct call){.frame = frame,
		.begin = time,
		.interpolated = p->interpolated && time == p->ns,
		.insns = t->insns};
	if (callstack_n_open(t->calls) == 0 && is_found(why)) {
		t->found_ns = time;
		t->found_insns = t->insns;
		t->outer_insns = 0;
		r = t->dump ? dump_resync(t->dump)
			    : timeline_resync(p->s->o.tl, t->tid, time, is_in_call(why));
	}
	if (r < 0)
		p->error = r;
	else
		replay_pt_begin_call(t, call, how_of(why), site);
}

static void on_outside(void *arg, uint64_t time, const struct callstack_frame *fr,
		       struct call *call, uint32_t more, enum callstack_why why)
{
	struct pt_thread *t = arg;
	struct replay_pt *p = t->p;
	int r;

	*call = (struct call){.frame = replay_pt_frame(t, fr->f, fr->ip),
			      .begin = t->found_ns,
			      .insns = t->found_insns};
	if (more == 0) {
		call->callee_insns = t->outer_insns;
		t->outer_insns = 0;
	}
	if (t->dump)
		r = dump_outside(t->dump, replay_pt_time(p, t->found_ns), call->frame, more,
				 how_of(why));
	else
		r = timeline_call_outside(p->s->o.tl, t->tid, time, call, more, how_of(why));
	if (r < 0)
		p->error = r;
}

static void on_identified(void *arg, enum callstack_why why)
{
	struct pt_thread *t = arg;
	struct replay_pt *p = t->p;
	int r;

	if (t->dump)
		r = dump_identified(t->dump, how_of(CALLSTACK_FOUND), how_of(why));
	else
		r = timeline_identified(p->s->o.tl, t->tid, how_of(CALLSTACK_FOUND), how_of(why));
	if (r < 0)
		p->error = r;
}

static void on_end(void *arg, uint64_t time, struct call *call)
{
	struct pt_thread *t = arg;
	const uint32_t frame = callstack_depth(t->calls);

	/* what was inlined in a call ends with it */
	while (t->n_inlined && t->inlined[t->n_inlined - 1].within == frame) {
		const struct call *c = &t->inlined[--t->n_inlined].call;
		struct inlined *around = t->n_inlined ? &t->inlined[t->n_inlined - 1] : NULL;

		replay_pt_end_call(t, time, c,
				   around && around->within == frame ? &around->call : call);
	}
	replay_pt_end_call(t, time, call, replay_pt_innermost(t));
}

const struct callstack_ops replay_pt_drawing = {
	.function = on_function,
	.lands = on_lands,
	.slot = on_slot,
	.is_half = on_is_half,
	.in_parts = on_in_parts,
	.is_unordered = on_is_unordered,
	.goroutine = on_goroutine,
	.begin = on_begin,
	.outside = on_outside,
	.identified = on_identified,
	.end = on_end,
};
