// SPDX-License-Identifier: Apache-2.0
/*
 * What each event of a trace is to its thread: to the stack of calls, or as a line of the views of
 * branches and instructions.
 */
#include "config.h"

#include "decode/replay/pt_internal.h"

#include "common/base/address.h"
#include "common/base/insn.h"
#include "decode/calls/waiting.h"
#include "decode/pt/auxtrace.h"
#include "decode/pt/code.h"
#include "decode/replay/pt_notes.h"
#include "decode/replay/session_internal.h"

static int stop(struct replay_pt *p, struct pt_thread *t, const struct pipeline_event *ev,
		bool async)
{
	const struct ptflow_event *e = ev->flow;
	const char *why = async ? pt_notes_why(p->notes, ev) : e->is_syscall ? "system call" : NULL;
	int r;

	if (!async && !why && e->from >= KERNEL_HALF)
		why = "stopped in the kernel";
	if (!async && !why)
		why = auxtrace_config(p->aux)->filter[0] ? "runs outside of the address filter"
							 : "outside of the trace";
	if (!why)
		why = "interrupted";
	callstack_stop(t->calls, p->ns, e->from, async ? 0 : e->from + e->length);
	r = pt_stacks_stopped(t);
	if (r < 0)
		return r;
	t->untraced = true;
	t->in_kernel = e->from >= KERNEL_HALF;
	t->stopped_ns = p->ns;
	if (t->dump)
		return dump_remark(t->dump, replay_pt_time(p, p->ns), why);
	return timeline_untraced(p->s->o.tl, t->tid, p->ns, why);
}

void pt_event_forget_kernel(struct pt_thread *t)
{
	t->entered_ip = t->entered_back = 0;
	t->in_kernel = t->comes = false;
}

/*
 * Something is missing from `ns` on: what is open ends there, and is drawn as lost until the thread
 * is seen again.
 */
static int gap(struct replay_pt *p, struct pt_thread *t, uint64_t ns, const char *what)
{
	pt_stacks_end(t); /* who is around what comes after the gap it cannot tell */
	callstack_gap(t->calls, ns);
	pt_event_forget_kernel(t);
	t->untraced = false;
	if (t->dump)
		return dump_remark(t->dump, replay_pt_time(p, ns), what);
	if (t->missing)
		return 0;
	t->missing = what;
	t->missing_ns = ns;
	return 0;
}

int replay_pt_end_gap(struct replay_pt *p, struct pt_thread *t, uint64_t ns)
{
	const char *what = t->missing;

	t->missing = NULL;
	return what ? timeline_loss(p->s->o.tl, t->tid, t->missing_ns, ns, what, 1) : 0;
}

/* Seen again somewhere; nothing has said that it was lost where bytes of the trace are missing. */
static int found(struct replay_pt *p, struct pt_thread *t, uint64_t ip)
{
	int r = 0;

	if (callstack_n_open(t->calls))
		r = gap(p, t, t->last_ns, "PT missing");
	if (r == 0)
		r = replay_pt_end_gap(p, t, p->ns);
	pt_stacks_end(t);
	if (t->is_new)
		waiting_miss(t->program->waiting);
	t->is_new = false;
	callstack_resync(t->calls, p->ns, ip);
	return r;
}

static const char *blind_words(const struct pt_blind *b)
{
	if (b->late)
		return "not traced: its CPU came online later";
	return b->tid || b->unknown ? "not traced: paused by a trigger"
				    : "not traced: a snapshot was copied";
}

int replay_pt_end_blind(struct replay_pt *p, struct pt_thread *t)
{
	const struct pt_blind *b = NULL;
	uint64_t from;
	int r = 0;

	if (p->n_blinds && (t->untraced || t->is_new))
		b = pt_blind_find(p->blinds, p->n_blinds, p->who_ran, t->tid, t->stopped_ns, p->ns);
	if (!b)
		return 0;
	from = b->from > t->stopped_ns ? b->from : t->stopped_ns;
	p->blind_resumes++;
	if (t->untraced && !t->dump)
		r = timeline_traced(p->s->o.tl, t->tid, p->ns, from);
	if (t->is_new)
		waiting_miss(t->program->waiting);
	t->is_new = false;
	return r < 0 ? r : gap(p, t, from, blind_words(b));
}

static int resume(struct replay_pt *p, struct pt_thread *t, const struct ptflow_event *e)
{
	const bool entry = callstack_depth(t->calls) == 0 && ptcode_is_entry(t->space, e->to),
		   in_kernel = t->untraced && t->in_kernel;
	int r = replay_pt_end_blind(p, t);

	if (r == 0 && t->untraced && !t->dump)
		r = timeline_traced(p->s->o.tl, t->tid, p->ns, p->ns);
	if (r == 0)
		r = replay_pt_end_gap(p, t, p->ns);
	t->untraced = false;
	if (e->to >= KERNEL_HALF && in_kernel && callstack_n_open(t->calls)) {
		callstack_resume_within(t->calls);
		t->comes = true;
		t->depth = 0;
		return r;
	}
	if (e->to >= KERNEL_HALF && t->is_new && !e->at_psb) {
		/* it begins where it comes out of the kernel */
		callstack_resume(t->calls, p->ns, e->to);
		return r;
	}
	if (entry || (t->is_new && !e->at_psb))
		callstack_begin(t->calls);
	else if (t->is_new)
		/*
		 * the begin of the trace is not there: stacks that it has left then are not known
		 */
		waiting_miss(t->program->waiting);
	t->is_new = false;
	callstack_resume(t->calls, p->ns, e->to);
	return r;
}

bool pt_event_leaves_kernel(const struct ptflow_event *e)
{
	return e->kind == PTFLOW_FAR && e->from >= KERNEL_HALF && e->to < KERNEL_HALF;
}

/* The kernel is called, as by user code so by itself where it is interrupted. */
static void enter_kernel(struct replay_pt *p, struct pt_thread *t, const struct ptflow_event *e)
{
	const uint64_t back = e->kind == PTFLOW_ASYNC ? e->from : e->from + e->length;

	if (e->from < KERNEL_HALF) {
		t->entered_ip = e->from;
		t->entered_back = back;
	}
	callstack_call(t->calls, p->ns, e->from, back, e->to);
}

/*
 * Where it does not go on as it was entered: in a signal's handler, or a new program. Then it is as
 * if the kernel had not been traced.
 */
static void leave_kernel(struct replay_pt *p, struct pt_thread *t, const struct ptflow_event *e)
{
	const uint64_t ip = t->entered_ip, back = t->entered_back;

	t->entered_ip = t->entered_back = 0;
	if (t->is_new) {
		callstack_finish(t->calls, p->ns);
		callstack_begin(t->calls);
		t->is_new = false;
		callstack_resume(t->calls, p->ns, e->to);
		return;
	}
	callstack_return(t->calls, p->ns, e->from, back ? back : e->to);
	if (!back || e->to == back)
		return;
	callstack_stop(t->calls, p->ns, ip, back == ip ? 0 : back);
	callstack_resume(t->calls, p->ns, e->to);
}

/* Where user code and the kernel are traced: from one to the other, or within the kernel. */
static void far(struct replay_pt *p, struct pt_thread *t, const struct ptflow_event *e)
{
	struct insn insn;

	if (pt_event_leaves_kernel(e))
		leave_kernel(p, t, e);
	else if (e->to >= KERNEL_HALF && (e->from < KERNEL_HALF || e->kind == PTFLOW_ASYNC))
		enter_kernel(p, t, e);
	else if (e->from >= KERNEL_HALF &&
		 ptcode_insn(p->code, t->space, e->from, !e->is32, &insn) &&
		 insn.kind == INSN_FAR_RET)
		callstack_return(t->calls, p->ns, e->from, e->to);
	else
		callstack_jump(t->calls, p->ns, e->from, e->to, true);
}

/*
 * The scheduler disables the thread's trace in one function, and enables it in another one. False:
 * the event is of the way from there to the call in which it had left.
 */
static bool has_come(struct replay_pt *p, struct pt_thread *t, const struct ptflow_event *e)
{
	struct insn insn;

	switch (e->kind) {
	case PTFLOW_COND:
	case PTFLOW_JUMP:
	case PTFLOW_JUMP_INDIRECT:
	case PTFLOW_RUN:
		return false;
	case PTFLOW_CALL:
	case PTFLOW_CALL_INDIRECT:
	case PTFLOW_ASYNC:
		t->depth++;
		return false;
	case PTFLOW_FAR:
		if (pt_event_leaves_kernel(e))
			break;
		if (!ptcode_insn(p->code, t->space, e->from, !e->is32, &insn) ||
		    insn.kind != INSN_FAR_RET) {
			t->depth++;
			return false;
		}
		/* fall through */
	case PTFLOW_RET:
		if (t->depth)
			t->depth--;
		else
			t->comes = !callstack_back_in(t->calls, p->ns, e->to);
		return false;
	default:
		break;
	}
	t->comes = false;
	return true;
}

int replay_pt_event(struct replay_pt *p, struct pt_thread *t, const struct pipeline_event *ev)
{
	const struct ptflow_event *e = ev->flow;

	if (t->comes && !has_come(p, t, e))
		return 0;
	switch (e->kind) {
	case PTFLOW_CALL:
	case PTFLOW_CALL_INDIRECT:
		callstack_call(t->calls, p->ns, e->from, e->from + e->length, e->to);
		return 0;
	case PTFLOW_RET:
		callstack_return(t->calls, p->ns, e->from, e->to);
		return 0;
	case PTFLOW_COND:
	case PTFLOW_JUMP:
	case PTFLOW_JUMP_INDIRECT:
		callstack_jump(t->calls, p->ns, e->from, e->to, e->kind == PTFLOW_JUMP_INDIRECT);
		return 0;
	case PTFLOW_FAR:
	case PTFLOW_ASYNC:
		far(p, t, e);
		return 0;
	case PTFLOW_ENABLE:
		return resume(p, t, e);
	case PTFLOW_DISABLE:
		return stop(p, t, ev, false);
	case PTFLOW_DISABLE_ASYNC:
		return stop(p, t, ev, true);
	case PTFLOW_OVERFLOW:
		return gap(p, t, p->ns, "PT overflow");
	case PTFLOW_DESYNC:
		return gap(p, t, p->ns,
			   e->error == PTFLOW_E_NO_CODE ? "code not known" : "PT not understood");
	case PTFLOW_RESYNC:
		return found(p, t, e->to);
	default:
		return 0;
	}
}

/* ---- the views of branches and instructions */

static void place(struct replay_pt *p, const struct pt_thread *t, uint64_t ip,
		  struct dump_place *ret)
{
	struct code *code = replay_pt_code(t);
	const struct callfunc *f;
	uint64_t vaddr;
	bool first;

	*ret = (struct dump_place){.ip = ip};
	if (!ip || !t->space || !code)
		return;
	f = ptcode_function(p->code, t->space, ip, &first);
	ret->frame = resolver_frame(p->s->resolver, code, ip, RESOLVE_EXACT);
	if (resolver_image(p->s->resolver, code, ip, &vaddr))
		ret->into = f->known ? vaddr - f->start : vaddr;
	ret->line = replay_pt_line(p, t, ip);
}

int replay_pt_view_branch(struct replay_pt *p, const struct pt_thread *t,
			  const struct ptflow_event *e)
{
	struct dump_place from, to;

	/* what is no branch, and one that was not taken */
	if (e->kind == PTFLOW_RUN || e->kind == PTFLOW_NOTE ||
	    (e->kind == PTFLOW_COND && e->to == e->from + e->length))
		return 0;
	place(p, t, e->from, &from);
	place(p, t, e->to, &to);
	return dump_branch(p->dump, replay_pt_time(p, p->ns), t->tid, e, &from, &to);
}

/* The instructions up to the branch, with it; a run ends before where it goes on. */
int replay_pt_view_line(struct replay_pt *p, const struct pt_thread *t,
			const struct ptflow_event *e)
{
	const uint64_t end = e->kind == PTFLOW_RUN ? e->to : e->from + 1;
	struct dump_place where;
	struct insn insn;
	int r = 0;

	if (!e->start || !t->space)
		return 0;
	for (uint64_t ip = e->start;
	     ip < end && r == 0 && ptcode_insn(p->code, t->space, ip, !e->is32, &insn);
	     ip += insn.length) {
		place(p, t, ip, &where);
		r = dump_insn(p->dump, replay_pt_time(p, p->ns), t->tid, &where);
	}
	return r;
}
