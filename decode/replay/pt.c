// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/replay/pt_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "common/base/io.h"
#include "common/control/json.h"
#include "decode/calls/callstack.h"
#include "decode/calls/waiting.h"
#include "decode/object/process_maps.h"
#include "decode/perf/event.h"
#include "decode/pt/auxtrace.h"
#include "decode/pt/code.h"
#include "decode/pt/dump.h"
#include "decode/pt/missing_code.h"
#include "decode/pt/pipeline.h"
#include "decode/pt/who_ran.h"
#include "decode/replay/gofeed.h"
#include "decode/replay/pt_notes.h"
#include "decode/replay/session_internal.h"

int replay_pt_new(struct perfdata *pd, struct workers *workers, struct budget *budget,
		  struct dump *dump, bool inlined, bool verify, struct replay_pt **ret)
{
	_cleanup_(replay_pt_freep) struct replay_pt *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	p->budget = budget;
	p->dump = dump;
	p->kind = dump_kind(dump);
	p->workers = workers;
	p->verify = verify;
	r = auxtrace_new(pd, budget, &p->aux);
	if (r > 0)
		return REPLAY_PT_E_NONE;
	if (r == 0)
		r = auxtrace_scan(p->aux);
	if (r == 0)
		r = who_ran_new(budget, &p->who_ran);
	if (r == 0)
		r = pt_notes_new(p->aux, &p->notes);
	if (r == 0 && inlined)
		r = pt_inline_new(&p->inlined);
	if (r < 0)
		return r;
	*ret = take_ptr(p);
	return 0;
}

void replay_pt_set_blinds(struct replay_pt *p, const struct pt_blind *v, size_t n)
{
	p->blinds = v;
	p->n_blinds = n;
}

void replay_pt_set_end(struct replay_pt *p, uint64_t ns)
{
	p->end_ns = ns;
}

int replay_pt_record(struct replay_pt *p, const struct perfevent *ev)
{
	return who_ran_record(p->who_ran, ev);
}

int replay_pt_open(struct replay_pt *p, struct images *images, struct process_maps *maps)
{
	struct pipeline_options wo = {.aux = p->aux,
		.maps = maps,
		.who_ran = p->who_ran,
		.workers = p->workers,
		.budget = p->budget,
		.all = p->kind == DUMP_BRANCHES || p->kind == DUMP_INSNS || p->inlined || p->verify,
		.verify = p->verify};
	const uint64_t began = io_now_ns();
	int r = ptcode_new(images, p->budget, &p->code);

	p->maps = maps;
	wo.code = p->code;
	p->code_ns = io_now_ns() - began;
	if (r >= 0 && p->end_ns)
		r = who_ran_end(p->who_ran, p->end_ns, PIPELINE_OTHERS);
	return r < 0 ? r : pipeline_new(&wo, &p->work);
}

struct replay_pt *replay_pt_free(struct replay_pt *p)
{
	uint32_t pos = 0;
	uint64_t value;

	if (!p)
		return NULL;
	while (p->all) {
		struct pt_thread *t = p->all;

		p->all = t->next;
		callstack_free(t->calls);
		free(t->inlined);
		pt_stacks_free(t);
		free(t);
		budget_give(p->budget, THREAD_BYTES);
	}
	while ((value = hashmap_next(&p->programs, &pos)) != 0) {
		struct pt_program *program = (struct pt_program *)(uintptr_t)value;

		waiting_free(program->waiting);
		goruns_free(program->runs);
		free(program);
	}
	hashmap_fini(&p->programs);
	hashmap_fini(&p->threads);
	hashmap_fini(&p->processes);
	pt_notes_free(p->notes);
	pipeline_free(p->work);
	missing_code_free(p->missing);
	who_ran_free(p->who_ran);
	ptcode_free(p->code);
	auxtrace_free(p->aux);
	pt_inline_free(p->inlined);
	free(p->frames);
	free(p);
	return NULL;
}

/* ---- threads and processes */

static struct pt_program *program_of(struct replay_pt *p, uint32_t pid)
{
	struct pt_program *program = hashmap_pointer(&p->programs, pid);

	if (program)
		return program;
	program = calloc(1, sizeof(*program));
	if (!program)
		return NULL;
	if (waiting_new(p->budget, &program->waiting) < 0 ||
	    hashmap_put_pointer(&p->programs, pid, program) < 0) {
		waiting_free(program->waiting);
		free(program);
		return NULL;
	}
	return program;
}

int replay_pt_add_go(struct replay_pt *p, const struct gofeed *feed)
{
	struct pt_program *program = program_of(p, gofeed_pid(feed));
	int r;

	if (!program)
		return -ENOMEM;
	r = program->runs ? 0 : goruns_new(gofeed_options(feed), &program->runs);
	if (r != -ENOMEM)
		return r;
	/* Where the trace is too large to be read twice, it is drawn, and decides nothing. */
	p->runs_not_read++;
	return 0;
}

static void set_running(struct pt_thread *t, bool running)
{
	if (t->program && running != t->running)
		t->program->n_running += running ? 1 : -1;
	t->running = t->program && running;
}

static int leave_process(struct replay_pt *p, struct pt_thread *t)
{
	int r = 0;

	if (t->elder)
		t->elder->sibling = t->sibling;
	else if (t->sibling)
		r = hashmap_put_pointer(&p->processes, t->pid, t->sibling);
	if (t->sibling)
		t->sibling->elder = t->elder;
	t->sibling = t->elder = NULL;
	t->pid = 0;
	set_running(t, false);
	t->program = NULL;
	return r;
}

static int enter_process(struct replay_pt *p, struct pt_thread *t, uint32_t pid)
{
	struct pt_thread *first;
	int r;

	if (t->pid == pid)
		return 0;
	r = leave_process(p, t);
	if (r < 0)
		return r;
	first = hashmap_pointer(&p->processes, pid);
	r = hashmap_put_pointer(&p->processes, pid, t);
	if (r < 0)
		return r;
	/* one that has left alone is named there still */
	if (first && first != t && first->pid == pid) {
		t->sibling = first;
		first->elder = t;
	}
	t->pid = pid;
	t->program = program_of(p, pid);
	if (!t->program)
		return -ENOMEM;
	callstack_set_waiting(t->calls, t->program->waiting);
	return 0;
}

static struct pt_thread *thread_of(struct replay_pt *p, uint32_t pid, uint32_t tid)
{
	struct pt_thread *t = hashmap_pointer(&p->threads, tid);

	if (t)
		return enter_process(p, t, pid) < 0 ? NULL : t;
	if (!budget_take(p->budget, THREAD_BYTES))
		return NULL;
	t = calloc(1, sizeof(*t));
	if (!t) {
		budget_give(p->budget, THREAD_BYTES);
		return NULL;
	}
	t->p = p;
	t->tid = tid;
	if (callstack_new(&replay_pt_drawing, t, p->budget, &t->calls) < 0 ||
	    hashmap_put_pointer(&p->threads, tid, t) < 0) {
		callstack_free(t->calls);
		free(t);
		budget_give(p->budget, THREAD_BYTES);
		return NULL;
	}
	t->next = p->all;
	p->all = t;
	return enter_process(p, t, pid) < 0 ? NULL : t;
}

int replay_pt_peek(struct replay_pt *p, uint64_t *ret_ns)
{
	int r = pipeline_peek(p->work, ret_ns);

	if (r == 0)
		*ret_ns = UINT64_MAX;
	return r < 0 ? r : 0;
}

/*
 * Who and what code it is may be another one only where tracing begins, out of the kernel, and once
 * its calls were ended.
 */
static int begin_event(struct replay_pt *p, struct pt_thread *t, const struct pipeline_event *ev)
{
	const bool begins = ev->flow->kind == PTFLOW_ENABLE || ev->flow->kind == PTFLOW_RESYNC ||
			    pt_event_leaves_kernel(ev->flow);

	if (!t->space || begins)
		t->space = process_maps_at(p->maps, ev->pid, ev->ns);
	if (t->thread && !begins)
		return 0;
	t->thread = session_thread(p->s, ev->pid, ev->tid);
	return t->thread ? session_declare_thread(p->s, t->thread, ev->ns) : -ENOMEM;
}

/* Where code is missing the way is lost, until the next event of the trace. */
static int account_missing(struct replay_pt *p, const struct pt_thread *t,
			   const struct pipeline_event *ev)
{
	const struct mapping *map;
	int r = 0;

	if (ev->flow->kind != PTFLOW_DESYNC || ev->flow->error != PTFLOW_E_NO_CODE) {
		if (p->missing)
			missing_code_event(p->missing, ev);
		return 0;
	}
	if (!p->missing)
		r = missing_code_new(auxtrace_n_buffers(p->aux), &p->missing);
	map = address_space_find(t->space, ev->flow->from);
	return r < 0 ? r : missing_code_lost(p->missing, ev, map ? map->image : NULL);
}

static int step(struct replay_pt *p, const struct pipeline_event *ev)
{
	struct pt_thread *t;
	int r;

	p->ns = ev->ns;
	p->interpolated = ev->flow->interpolated;
	t = p->last && p->last->tid == ev->tid && p->last->pid == ev->pid
		    ? p->last
		    : thread_of(p, ev->pid, ev->tid);
	if (!t)
		return -ENOMEM;
	p->last = t;
	t->insns += ev->insns;
	r = begin_event(p, t, ev);
	if (r == 0 && ev->flow->kind != PTFLOW_NOTE &&
	    (p->missing || ev->flow->kind == PTFLOW_DESYNC))
		r = account_missing(p, t, ev);
	if (r < 0)
		return r;
	if (p->kind == DUMP_BRANCHES)
		return replay_pt_view_branch(p, t, ev->flow);
	if (p->kind == DUMP_INSNS)
		return replay_pt_view_line(p, t, ev->flow);
	if (!t->space)
		return 0;
	if (p->dump && !t->dump)
		r = dump_thread(p->dump, ev->pid, ev->tid,
				t->thread->name[0] ? t->thread->name : t->thread->process->name,
				&t->dump);
	if (r < 0)
		return r;
	if (ev->flow->loads_sp)
		callstack_loaded(t->calls);
	if (ev->flow->kind == PTFLOW_NOTE) {
		r = pt_notes_event(p->notes, p->s, t->dump, ev);
	} else {
		if (p->inlined)
			pt_inline_line(t, ev->flow, t->insns - ev->insns);
		if (!ev->flow->minor)
			r = replay_pt_event(p, t, ev);
		if (p->inlined)
			pt_inline_go_on(t, ev->flow);
	}
	if (ev->flow->kind != PTFLOW_NOTE)
		set_running(t, ev->flow->kind != PTFLOW_DISABLE &&
				       ev->flow->kind != PTFLOW_DISABLE_ASYNC &&
				       callstack_runs_goroutines(t->calls));
	t->program->inexact |= ev->flow->interpolated;
	t->last_ns = ev->ns;
	if (p->error < 0)
		return p->error;
	return timeline_answer(r);
}

/* Whoever waits for the time of others has drawn what the recording says of its end. */
static void pass_end(struct replay_pt *p, uint64_t ns)
{
	if (p->end_ns && ns >= p->end_ns && p->ns < p->end_ns)
		p->ns = p->end_ns;
}

int replay_pt_run(struct replay_pt *p, struct session *s, uint64_t before, size_t *ret_n)
{
	struct pipeline_event ev;
	struct pipeline_run run;
	int r = pipeline_run(p->work, before, &run);

	if (r <= 0)
		return r;
	p->s = s;
	for (size_t i = 0; i < run.n; i++) {
		pipeline_run_event(&run, i, &ev);
		if (ev.tid == PIPELINE_OTHERS)
			pass_end(p, ev.ns);
		else if (ev.tid)
			r = step(p, &ev);
		else
			r = ev.flow->kind == PTFLOW_NOTE && !p->dump
				    ? pt_notes_event(p->notes, s, NULL, &ev)
				    : 0;
		if (r < 0)
			return r;
	}
	*ret_n = run.n;
	return 0;
}

/* A stack with one call more. */
static uint32_t stack_with(struct replay_pt *p, uint32_t stack, struct call *c)
{
	if (!c)
		return stack;
	if (c->stack == STACKTAB_ROOT)
		c->stack = stacktab_push(p->s->o.st, stack, c->frame);
	return c->stack;
}

/* If others are around them than when somebody asked last. */
static void forget_stacks(struct pt_thread *t)
{
	const uint32_t n = callstack_n_outer(t->calls);

	if (t->n_around == n)
		return;
	t->n_around = n;
	for (uint32_t i = 0; i < callstack_depth(t->calls); i++) {
		struct call *c = callstack_call_at(t->calls, i);

		if (c)
			c->stack = STACKTAB_ROOT;
	}
	for (uint32_t i = 0; i < t->n_inlined; i++)
		t->inlined[i].call.stack = STACKTAB_ROOT;
}

uint32_t replay_pt_stack(struct replay_pt *p, uint32_t tid)
{
	struct pt_thread *t = p->s ? hashmap_pointer(&p->threads, tid) : NULL;
	uint32_t stack = STACKTAB_ROOT, k = 0, i;

	if (!t || callstack_n_open(t->calls) == 0)
		return STACKTAB_ROOT;
	forget_stacks(t);
	for (i = 0; i < t->n_around; i++) {
		const struct callstack_frame fr = callstack_outer_at(t->calls, i);

		stack = stacktab_push(p->s->o.st, stack, replay_pt_frame(t, fr.f, fr.ip));
	}
	/* calls are many and waits few: a stack is looked for when somebody asks for it */
	for (i = callstack_depth(t->calls); i > 0; i--) {
		const struct call *c = callstack_call_at(t->calls, i - 1);

		if (c && c->stack != STACKTAB_ROOT)
			break;
	}
	if (i > 0) {
		i--;
		while (k < t->n_inlined && t->inlined[k].within < i)
			k++;
	}
	for (; i < callstack_depth(t->calls); i++) {
		stack = stack_with(p, stack, callstack_call_at(t->calls, i));
		for (; k < t->n_inlined && t->inlined[k].within == i; k++)
			stack = stack_with(p, stack, &t->inlined[k].call);
	}
	return stack;
}

/* What happened in the trace has been drawn up to there. */
static void reach(struct replay_pt *p, struct session *s, uint64_t ns)
{
	p->s = s;
	p->ns = ns;
	p->interpolated = false;
}

int replay_pt_reach(struct replay_pt *p, struct session *s, uint32_t tid, uint64_t ns)
{
	struct pt_thread *t = p->n_blinds ? hashmap_pointer(&p->threads, tid) : NULL;

	if (!t || !t->untraced)
		return 0;
	reach(p, s, ns);
	return timeline_answer(replay_pt_end_blind(p, t));
}

int replay_pt_fork(struct replay_pt *p, struct session *s, const struct perfevent *ev)
{
	const struct pt_thread *parent = hashmap_pointer(&p->threads, ev->fork.ptid);
	struct pt_thread *t;
	int r;

	/* Those of what was there before have no time: they say nothing of a begin. */
	if (!ev->has_time || ev->time == 0 || p->kind == DUMP_BRANCHES || p->kind == DUMP_INSNS)
		return 0;
	r = replay_pt_end_thread(p, s, ev->tid, ev->time);
	if (r < 0)
		return r;
	t = thread_of(p, ev->pid, ev->tid);
	if (!t)
		return -ENOMEM;
	t->is_new = ev->pid == ev->fork.ppid;
	t->stopped_ns = ev->time;
	if (!t->is_new) {
		waiting_begin(t->program->waiting);
		waiting_miss(t->program->waiting);
	}
	if (t->is_new || !parent || parent == t || parent->pid != ev->fork.ppid)
		return 0;
	t->forked_bytes = callstack_size(parent->calls);
	if (t->forked_bytes > FORKED_BYTES - p->forked_bytes) {
		t->forked_bytes = 0;
		p->forks_without++;
		return 0;
	}
	p->forked_bytes += t->forked_bytes;
	return callstack_fork(t->calls, parent->calls);
}

int replay_pt_exec(struct replay_pt *p, struct session *s, uint32_t pid, uint32_t tid, uint64_t ns)
{
	struct pt_thread *t = hashmap_pointer(&p->processes, pid), *next;
	int r = replay_pt_end_thread(p, s, tid, ns);

	if (ns == 0)
		return r;
	for (; t && t->pid == pid && r >= 0; t = next) {
		r = replay_pt_end_thread(p, s, t->tid, ns);
		next = t->sibling;
		t->sibling = t->elder = NULL;
		t->pid = 0;
		t->program = NULL;
	}
	if (r < 0)
		return r;
	t = thread_of(p, pid, tid);
	if (!t)
		return -ENOMEM;
	t->is_new = true;
	t->stopped_ns = ns;
	waiting_begin(t->program->waiting);
	return 0;
}

int replay_pt_off_cpu(struct replay_pt *p, uint32_t tid, uint64_t ns, const char *why)
{
	const struct pt_thread *t = hashmap_pointer(&p->threads, tid);

	return t && t->dump && callstack_n_open(t->calls)
		       ? dump_remark(t->dump, (struct dump_time){.ns = ns}, why)
		       : 0;
}

int replay_pt_end_thread(struct replay_pt *p, struct session *s, uint32_t tid, uint64_t ns)
{
	struct pt_thread *t = hashmap_pointer(&p->threads, tid);
	int r;

	if (!t)
		return 0;
	reach(p, s, ns);
	r = t->untraced ? timeline_answer(replay_pt_end_blind(p, t)) : 0;
	if (r < 0)
		return r;
	pt_stacks_end(t);
	callstack_finish(t->calls, ns);
	p->forked_bytes -= t->forked_bytes;
	t->forked_bytes = 0;
	r = replay_pt_end_gap(p, t, ns);
	if (r < 0)
		return r;
	set_running(t, false);
	t->space = NULL;
	t->thread = NULL;
	t->is_new = false;
	pt_event_forget_kernel(t);
	t->dump = NULL; /* it may have another name from now on */
	t->untraced = false;
	return p->error;
}

int replay_pt_finish(struct replay_pt *p, struct session *s, uint64_t ns)
{
	int r = 0;

	for (struct pt_thread *t = p->all; t && r >= 0; t = t->next)
		r = replay_pt_end_thread(p, s, t->tid, p->ns > ns ? p->ns : ns);
	return r;
}

void replay_pt_report_times(const struct replay_pt *p, uint64_t *setup_ns, uint64_t *run_ns,
			    struct json_object *stages)
{
	const uint64_t wait = pipeline_wait_ns(p->work);

	json_add_uint(stages, "code_ns", p->code_ns);
	pipeline_report_times(p->work, stages);
	json_add_uint(stages, "waiting_ns", wait);
	*setup_ns -= *setup_ns > p->code_ns ? p->code_ns : *setup_ns;
	*run_ns -= *run_ns > wait ? wait : *run_ns;
}

void replay_pt_report(const struct replay_pt *p, struct json_object *stats,
		      struct json_object *losses)
{
	struct callstack_stats sum = {0};
	uint64_t not_told = p->runs_not_read, value;
	uint32_t pos = 0;

	while ((value = hashmap_next(&p->programs, &pos)) != 0) {
		const struct pt_program *program = (const struct pt_program *)(uintptr_t)value;

		not_told += program->runs ? goruns_left_out(program->runs) : 0;
	}
	auxtrace_report(p->aux, stats, losses);
	pipeline_report(p->work, stats, losses);
	ptcode_report(p->code, losses);
	if (process_maps_refused(p->maps))
		json_add_uint(losses, "maps_over_memory", process_maps_refused(p->maps));
	pt_notes_report(p->notes, stats);
	if (p->missing)
		missing_code_report(p->missing, losses);
	for (const struct pt_thread *t = p->all; t; t = t->next) {
		const struct callstack_stats *c = callstack_stats(t->calls);

		sum.calls += c->calls;
		sum.returns += c->returns;
		sum.tails += c->tails;
		sum.unwound += c->unwound;
		sum.switches += c->switches;
		sum.signals += c->signals;
		sum.inferred += c->inferred;
		sum.adopted += c->adopted;
		sum.unexplained += c->unexplained;
		sum.doubted += c->doubted;
		sum.told += c->told;
		sum.contradicted += c->contradicted;
		sum.given_up += c->given_up;
		sum.forgotten += c->forgotten;
		sum.too_deep += c->too_deep;
		sum.seen += c->seen;
		sum.stacks_agree += c->stacks_agree;
		sum.stacks_disagree += c->stacks_disagree;
		sum.seen_refuted += c->seen_refuted;
	}
	json_add_uint(stats, "calls", sum.calls);
	if (p->inlined)
		json_add_uint(stats, "inlined_calls", pt_inline_calls(p->inlined));
	json_add_uint(stats, "returns", sum.returns);
	json_add_uint(stats, "tail_calls", sum.tails);
	json_add_uint(stats, "unwindings", sum.unwound);
	json_add_uint(stats, "stack_switches", sum.switches);
	json_add_uint(stats, "signals", sum.signals);
	json_add_uint(stats, "callers_inferred", sum.inferred);
	if (sum.adopted)
		json_add_uint(stats, "frames_kept_over_gaps", sum.adopted);
	if (sum.seen)
		json_add_uint(stats, "callers_from_stacks", sum.seen);
	if (sum.stacks_agree)
		json_add_uint(stats, "stacks_that_agree", sum.stacks_agree);
	if (p->stacks_dropped)
		json_add_uint(losses, "stacks_not_compared", p->stacks_dropped);
	if (p->stacks_elsewhere)
		json_add_uint(stats, "stacks_of_another_place", p->stacks_elsewhere);
	if (sum.stacks_disagree)
		json_add_uint(losses, "stacks_that_disagree", sum.stacks_disagree);
	if (sum.seen_refuted)
		json_add_uint(losses, "stacks_refuted", sum.seen_refuted);
	if (sum.told)
		json_add_uint(stats, "goroutines_told", sum.told);
	if (sum.contradicted)
		json_add_uint(losses, "goroutines_contradicted", sum.contradicted);
	if (not_told)
		json_add_uint(losses, "goroutines_not_told", not_told);
	if (sum.doubted)
		json_add_uint(losses, "stack_switches_in_doubt", sum.doubted);
	if (sum.given_up)
		json_add_uint(losses, "stacks_given_up", sum.given_up);
	if (sum.forgotten)
		json_add_uint(losses, "frames_before_gaps_forgotten", sum.forgotten);
	if (p->blind_resumes)
		json_add_uint(losses, "pt_resumed_blind", p->blind_resumes);
	if (sum.unexplained)
		json_add_uint(losses, "branches_unexplained", sum.unexplained);
	if (sum.too_deep)
		json_add_uint(losses, "calls_too_deep", sum.too_deep);
	if (p->forks_without)
		json_add_uint(losses, "forked_stacks_unknown", p->forks_without);
}
