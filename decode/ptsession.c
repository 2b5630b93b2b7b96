// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/ptsession_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/insn.h"
#include "common/io.h"
#include "common/json.h"
#include "decode/callstack.h"
#include "decode/idmap.h"
#include "decode/perfevent.h"
#include "decode/ptaux.h"
#include "decode/ptcode.h"
#include "decode/ptmissing.h"
#include "decode/ptnotes.h"
#include "decode/ptowner.h"
#include "decode/ptview.h"
#include "decode/ptwork.h"
#include "decode/session_impl.h"
#include "decode/source.h"

#define KERNEL_HALF 0x8000000000000000ull

int ptsession_new(struct perfdata *pd, struct images *images, struct workers *workers, struct budget *budget,
		  struct ptview *view, bool inlined, struct ptsession **ret)
{
	_cleanup_(ptsession_freep) struct ptsession *p = calloc(1, sizeof(*p));
	struct ptwork_options wo = {.workers = workers, .budget = budget};
	uint64_t found;
	int r;

	if (!p)
		return -ENOMEM;
	p->budget = budget;
	p->view = view;
	r = ptaux_new(pd, budget, &p->aux);
	if (r > 0)
		return PTSESSION_E_NONE;
	if (r == 0)
		r = ptaux_scan(p->aux);
	found = io_now_ns();
	if (r == 0)
		r = ptcode_new(pd, images, budget, &p->code);
	if (r == 0)
		r = ptowner_new(pd, &p->owner);
	p->code_ns = io_now_ns() - found;
	if (r == 0 && inlined)
		r = ptinline_new(&p->inlined);
	wo.all = ptview_kind(view) == PTVIEW_BRANCHES || ptview_kind(view) == PTVIEW_INSNS || inlined;
	wo.aux = p->aux;
	wo.code = p->code;
	wo.owner = p->owner;
	if (r == 0)
		r = ptwork_new(&wo, &p->work);
	if (r == 0)
		r = ptnotes_new(p->aux, &p->notes);
	if (r < 0)
		return r;
	pd->losses.aux_bytes = 0; /* somebody decodes them */
	*ret = take_ptr(p);
	return 0;
}

struct ptsession *ptsession_free(struct ptsession *p)
{
	if (!p)
		return NULL;
	while (p->all) {
		struct ptthread *t = p->all;

		p->all = t->next;
		callstack_free(t->calls);
		free(t->drawn);
		free(t);
		budget_give(p->budget, THREAD_BYTES);
	}
	idmap_fini(&p->threads);
	idmap_fini(&p->processes);
	ptnotes_free(p->notes);
	ptwork_free(p->work);
	ptmissing_free(p->missing);
	ptowner_free(p->owner);
	ptcode_free(p->code);
	ptaux_free(p->aux);
	ptinline_free(p->inlined);
	free(p->frames);
	free(p);
	return NULL;
}

/* ---- drawing */

/* The frame of a function: by its number once it was seen, since calls are many and functions few. */
static uint32_t frame_of(struct ptsession *p, struct ptthread *t, const struct callfunc *f, uint64_t ip)
{
	struct process *process;
	uint32_t frame;

	if (f->id < p->n_frames && p->frames[f->id] && f->known)
		return p->frames[f->id];
	process = session_process(p->s, t->pid);
	if (!process)
		return STACKTAB_FRAME_FULL;
	frame = resolver_frame(p->s->resolver, &process->code, ip, RESOLVE_EXACT);
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

const struct callfunc *ptsession_function(struct ptthread *t, uint64_t ip, bool *ret_first)
{
	struct known *k = &t->p->known[(ip ^ ip >> 10) % KNOWN];

	if (!k->f || k->ip != ip || k->version != t->version) {
		k->f = ptcode_function(t->version, ip, &k->first);
		k->ip = ip;
		k->version = t->version;
	}
	*ret_first = k->first;
	return k->f;
}

static const struct callfunc *on_function(void *arg, uint64_t ip, bool *ret_first)
{
	return ptsession_function(arg, ip, ret_first);
}

static bool on_lands(void *arg, uint64_t call, uint64_t pad)
{
	const struct ptthread *t = arg;

	return ptcode_lands(t->version, call, pad);
}

/* Of what happens at the event, or (what was there before) earlier. */
static struct ptview_time at(const struct ptsession *p, uint64_t ns)
{
	return (struct ptview_time){.ns = ns, .interpolated = p->interpolated && ns == p->ns};
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
		[CALLSTACK_FORKED] = "forked within it",
	};

	return how[why];
}

static bool add_drawn(struct ptthread *t, const struct drawn *d)
{
	if (t->n == t->room) {
		const uint32_t room = t->room ? t->room * 2 : 64;
		struct drawn *v = reallocarray(t->drawn, room, sizeof(*v));

		if (!v) {
			t->p->error = -ENOMEM;
			return false;
		}
		t->drawn = v;
		t->room = room;
	}
	t->drawn[t->n++] = *d;
	return true;
}

/* Whether a first frame that begins so is seen in the middle, or begins: else it takes the place of another one. */
static bool is_found(enum callstack_why why)
{
	return why != CALLSTACK_TAIL && why != CALLSTACK_UNWOUND && why != CALLSTACK_RESUMED;
}

/* The line of an instruction; NULL: nobody wants to know, or nobody knows. */
static const char *line_of(struct ptsession *p, const struct ptthread *t, uint64_t ip)
{
	struct source *source = p->s->o.source;
	struct process *process = source && ip ? session_process(p->s, t->pid) : NULL;
	const char *line;
	struct image *img;
	uint64_t vaddr;

	img = process ? resolver_image(p->s->resolver, &process->code, ip, &vaddr) : NULL;
	if (!img)
		return NULL;
	line = source_place(source, img, vaddr);
	if (source_error(source) < 0)
		p->error = source_error(source);
	return line;
}

void ptsession_push(struct ptthread *t, uint64_t time, const struct drawn *d, const char *how, const char *site)
{
	struct ptsession *p = t->p;
	int r;

	if (!add_drawn(t, d))
		return;
	if (t->view)
		r = ptview_call(t->view, at(p, time), d->frame, how, site);
	else
		r = timeline_call(p->s->o.tl, t->tid, time, d->frame, how, site, p->interpolated && time == p->ns);
	if (r < 0)
		p->error = r;
}

void ptsession_pop(struct ptthread *t, uint64_t time)
{
	const struct drawn *d = &t->drawn[--t->n];
	const uint64_t insns = t->insns - d->insns;
	struct ptsession *p = t->p;
	int r;

	if (t->view)
		r = ptview_return(t->view, at(p, time), insns);
	else if (time < p->ns)
		r = timeline_return_before(p->s->o.tl, t->tid, p->ns, time, insns);
	else
		r = timeline_return(p->s->o.tl, t->tid, time, insns, p->interpolated && time == p->ns);
	if (r < 0)
		p->error = r;
}

static void on_begin(void *arg, uint64_t time, const struct callstack_frame *fr, enum callstack_why why)
{
	struct ptthread *t = arg;
	struct ptsession *p = t->p;
	const uint32_t frame = frame_of(p, t, fr->f, fr->ip);
	const char *site = line_of(p, t, fr->site);
	int r = 0;

	if (t->n == 0 && is_found(why)) {
		t->found_ns = time;
		t->found_insns = t->insns;
		r = t->view ? 0 : timeline_found(p->s->o.tl, t->tid, time);
	}
	if (r < 0)
		p->error = r;
	else
		ptsession_push(t, time, &(struct drawn){.frame = frame, .insns = t->insns, .f = fr->f}, how_of(why), site);
}

static void on_outside(void *arg, uint64_t time, const struct callstack_frame *fr, uint32_t more, enum callstack_why why)
{
	struct ptthread *t = arg;
	struct ptsession *p = t->p;
	const uint32_t frame = frame_of(p, t, fr->f, fr->ip);
	int r;

	if (!add_drawn(t, &(struct drawn){.frame = frame, .insns = t->found_insns, .f = fr->f}))
		return;
	if (t->view)
		r = ptview_call(t->view, at(p, t->found_ns), frame, how_of(why), NULL);
	else
		r = timeline_call_outside(p->s->o.tl, t->tid, time, frame, more, how_of(why));
	if (r < 0)
		p->error = r;
}

static void on_end(void *arg, uint64_t time, uint32_t n, enum callstack_why why)
{
	struct ptthread *t = arg;

	(void)why;
	while (n && t->n) {
		/* what was inlined in a call ends with it */
		n -= !t->drawn[t->n - 1].scope;
		ptsession_pop(t, time);
	}
}

/* ---- branches */

static int leave_process(struct ptsession *p, struct ptthread *t)
{
	int r = 0;

	if (t->elder)
		t->elder->sibling = t->sibling;
	else if (t->sibling)
		r = idmap_put(&p->processes, t->pid, t->sibling);
	if (t->sibling)
		t->sibling->elder = t->elder;
	t->sibling = t->elder = NULL;
	t->pid = 0;
	return r;
}

static int enter_process(struct ptsession *p, struct ptthread *t, uint32_t pid)
{
	struct ptthread *first;
	int r;

	if (t->pid == pid)
		return 0;
	r = leave_process(p, t);
	if (r < 0)
		return r;
	first = idmap_get(&p->processes, pid);
	r = idmap_put(&p->processes, pid, t);
	if (r < 0)
		return r;
	/* one that has left alone is named there still */
	if (first && first != t && first->pid == pid) {
		t->sibling = first;
		first->elder = t;
	}
	t->pid = pid;
	return 0;
}

static struct ptthread *thread_of(struct ptsession *p, uint32_t pid, uint32_t tid)
{
	static const struct callstack_ops ops = {
		.function = on_function, .lands = on_lands, .begin = on_begin, .outside = on_outside, .end = on_end};
	struct ptthread *t = idmap_get(&p->threads, tid);

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
	if (callstack_new(&ops, t, &t->calls) < 0 || idmap_put(&p->threads, tid, t) < 0) {
		callstack_free(t->calls);
		free(t);
		budget_give(p->budget, THREAD_BYTES);
		return NULL;
	}
	t->next = p->all;
	p->all = t;
	return enter_process(p, t, pid) < 0 ? NULL : t;
}

static int stop(struct ptsession *p, struct ptthread *t, const struct ptwork_event *ev, bool async)
{
	const struct ptflow_event *e = &ev->flow;
	const char *why = async ? ptnotes_why(p->notes, ev) : e->is_syscall ? "system call" : "outside of the trace";

	if (!why)
		why = "interrupted";

	callstack_stop(t->calls, p->ns, e->from, async ? 0 : e->from + e->length);
	t->untraced = true;
	if (t->view)
		return ptview_remark(t->view, at(p, p->ns), why);
	return timeline_untraced(p->s->o.tl, t->tid, p->ns, why);
}

/* Something is missing from `ns` on: what is open ends there, and is drawn as lost until the thread is seen again. */
static int gap(struct ptsession *p, struct ptthread *t, uint64_t ns, const char *what)
{
	callstack_gap(t->calls, ns);
	t->untraced = false;
	if (t->view)
		return ptview_remark(t->view, at(p, ns), what);
	if (t->missing)
		return 0;
	t->missing = what;
	t->missing_ns = ns;
	return 0;
}

static int end_gap(struct ptsession *p, struct ptthread *t, uint64_t ns)
{
	const char *what = t->missing;

	t->missing = NULL;
	return what ? timeline_loss(p->s->o.tl, t->tid, t->missing_ns, ns, what, 1) : 0;
}

/* Seen again somewhere; nothing has said that it was lost where bytes of the trace are missing. */
static int found(struct ptsession *p, struct ptthread *t, uint64_t ip)
{
	int r = 0;

	if (callstack_depth(t->calls) && t->n)
		r = gap(p, t, t->last_ns, "PT missing");
	if (r == 0)
		r = end_gap(p, t, p->ns);
	callstack_found(t->calls, p->ns, ip);
	return r;
}

static int resume(struct ptsession *p, struct ptthread *t, const struct ptflow_event *e)
{
	int r = t->untraced && !t->view ? timeline_traced(p->s->o.tl, t->tid, p->ns) : 0;

	if (r == 0)
		r = end_gap(p, t, p->ns);
	t->untraced = false;
	if (t->is_new && !e->at_psb)
		callstack_begin(t->calls);
	t->is_new = false;
	callstack_resume(t->calls, p->ns, e->to);
	return r;
}

/* From user code into the kernel and back, where both are traced: the kernel is called. */
static void far(struct ptsession *p, struct ptthread *t, const struct ptflow_event *e)
{
	if (e->to >= KERNEL_HALF && e->from < KERNEL_HALF)
		callstack_call(t->calls, p->ns, e->from, e->kind == PTFLOW_ASYNC ? e->from : e->from + e->length, e->to);
	else if (e->to < KERNEL_HALF && e->from >= KERNEL_HALF)
		callstack_return(t->calls, p->ns, e->from, e->to);
	else
		callstack_jump(t->calls, p->ns, e->from, e->to, true);
}

static int draw(struct ptsession *p, struct ptthread *t, const struct ptwork_event *ev)
{
	const struct ptflow_event *e = &ev->flow;

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
	case PTFLOW_LOST:
		return gap(p, t, p->ns, e->error == PTFLOW_E_NO_CODE ? "code not known" : "PT not understood");
	case PTFLOW_FOUND:
		return found(p, t, e->to);
	default:
		return 0;
	}
}

int ptsession_peek(struct ptsession *p, uint64_t *ret_ns)
{
	int r = ptwork_peek(p->work, ret_ns);

	if (r == 0)
		*ret_ns = UINT64_MAX;
	return r < 0 ? r : 0;
}

/* ---- the views of branches and instructions */

static void place(struct ptsession *p, const struct ptthread *t, uint64_t ip, struct ptview_place *ret)
{
	struct process *process = session_process(p->s, t->pid);
	const struct callfunc *f;
	uint64_t vaddr;
	bool first;

	*ret = (struct ptview_place){.ip = ip};
	if (!ip || !t->version || !process)
		return;
	f = ptcode_function(t->version, ip, &first);
	ret->frame = resolver_frame(p->s->resolver, &process->code, ip, RESOLVE_EXACT);
	if (resolver_image(p->s->resolver, &process->code, ip, &vaddr))
		ret->into = f->known ? vaddr - f->start : vaddr;
	ret->line = line_of(p, t, ip);
}

static int view_branch(struct ptsession *p, const struct ptthread *t, const struct ptflow_event *e)
{
	struct ptview_place from, to;

	/* what is no branch, and one that was not taken */
	if (e->kind == PTFLOW_RUN || e->kind == PTFLOW_NOTE || (e->kind == PTFLOW_COND && e->to == e->from + e->length))
		return 0;
	place(p, t, e->from, &from);
	place(p, t, e->to, &to);
	return ptview_branch(p->view, at(p, p->ns), t->tid, e, &from, &to);
}

/* The instructions up to the branch, with it; a run ends in front of where it goes on. */
static int view_line(struct ptsession *p, const struct ptthread *t, const struct ptflow_event *e)
{
	const uint64_t end = e->kind == PTFLOW_RUN ? e->to : e->from + 1;
	uint8_t buffer[INSN_MAX];
	struct ptview_place where;
	struct insn insn;
	int r = 0;

	if (!e->start || !t->version)
		return 0;
	for (uint64_t ip = e->start; ip < end && r == 0; ip += insn.length) {
		const uint8_t *code;
		const size_t n = ptcode_read(t->version, ip, &code, buffer, sizeof(buffer));

		if (n == 0 || !insn_decode(code, n, !e->is32, &insn))
			break;
		place(p, t, ip, &where);
		r = ptview_insn(p->view, at(p, p->ns), t->tid, &where);
	}
	return r;
}

/* Who and what code it is may be another one only where tracing begins, and once its calls were ended. */
static int begin_event(struct ptsession *p, struct ptthread *t, const struct ptwork_event *ev)
{
	const bool begins = ev->flow.kind == PTFLOW_ENABLE || ev->flow.kind == PTFLOW_FOUND;
	const struct ptcode_version *v;

	if (!t->version || begins) {
		v = ptcode_at(p->code, ev->pid, ev->ns);
		t->version = v;
	}
	if (t->told && !begins)
		return 0;
	t->told = session_thread(p->s, ev->pid, ev->tid);
	return t->told ? session_tell_thread(p->s, t->told, ev->ns) : -ENOMEM;
}

/* Where code is missing the way is lost, until the next event of the trace. */
static int account_missing(struct ptsession *p, const struct ptthread *t, const struct ptwork_event *ev)
{
	int r = 0;

	if (ev->flow.kind != PTFLOW_LOST || ev->flow.error != PTFLOW_E_NO_CODE) {
		if (p->missing)
			ptmissing_event(p->missing, ev);
		return 0;
	}
	if (!p->missing)
		r = ptmissing_new(ptaux_n_buffers(p->aux), &p->missing);
	return r < 0 ? r : ptmissing_lost(p->missing, ev, ptcode_image(t->version, ev->flow.from));
}

static int step(struct ptsession *p, const struct ptwork_event *ev)
{
	struct ptthread *t;
	int r;

	p->ns = ev->ns;
	p->interpolated = ev->flow.interpolated;
	t = p->last && p->last->tid == ev->tid && p->last->pid == ev->pid ? p->last : thread_of(p, ev->pid, ev->tid);
	if (!t)
		return -ENOMEM;
	p->last = t;
	t->insns += ev->insns;
	r = begin_event(p, t, ev);
	if (r == 0 && ev->flow.kind != PTFLOW_NOTE && (p->missing || ev->flow.kind == PTFLOW_LOST))
		r = account_missing(p, t, ev);
	if (r < 0)
		return r;
	if (ptview_kind(p->view) == PTVIEW_BRANCHES)
		return view_branch(p, t, &ev->flow);
	if (ptview_kind(p->view) == PTVIEW_INSNS)
		return view_line(p, t, &ev->flow);
	if (!t->version)
		return 0;
	if (p->view && !t->view)
		r = ptview_thread(p->view, ev->pid, ev->tid, t->told->name[0] ? t->told->name : t->told->process->name, &t->view);
	if (r < 0)
		return r;
	if (ev->flow.kind == PTFLOW_NOTE) {
		r = ptnotes_event(p->notes, p->s, t->view, ev);
	} else {
		if (p->inlined)
			ptinline_line(t, &ev->flow, t->insns - ev->insns);
		if (!ev->flow.minor)
			r = draw(p, t, ev);
		if (p->inlined)
			ptinline_go_on(t, &ev->flow);
	}
	t->last_ns = ev->ns;
	if (p->error < 0)
		return p->error;
	return timeline_answer(r);
}

int ptsession_run(struct ptsession *p, struct session *s, uint64_t before, size_t *ret_n)
{
	struct ptwork_event ev;
	struct ptwork_run run;
	int r = ptwork_run(p->work, before, &run);

	if (r <= 0)
		return r;
	p->s = s;
	for (size_t i = 0; i < run.n; i++) {
		ptwork_run_event(&run, i, &ev);
		if (ev.tid)
			r = step(p, &ev);
		else
			r = ev.flow.kind == PTFLOW_NOTE && !p->view ? ptnotes_event(p->notes, s, NULL, &ev) : 0;
		if (r < 0)
			return r;
	}
	*ret_n = run.n;
	return 0;
}

uint32_t ptsession_stack(struct ptsession *p, uint32_t tid)
{
	struct ptthread *t = p->s ? idmap_get(&p->threads, tid) : NULL;
	uint32_t i;

	if (!t || t->n == 0)
		return STACKTAB_ROOT;
	/* calls are many and waits few: a stack is looked for when somebody asks for it */
	for (i = t->n; i > 0 && t->drawn[i - 1].stack == STACKTAB_ROOT; i--)
		;
	for (; i < t->n; i++)
		t->drawn[i].stack = stacktab_push(p->s->o.st, i ? t->drawn[i - 1].stack : STACKTAB_ROOT, t->drawn[i].frame);
	return t->drawn[t->n - 1].stack;
}

int ptsession_fork(struct ptsession *p, struct session *s, const struct perfevent *ev)
{
	const struct ptthread *parent = idmap_get(&p->threads, ev->fork.ptid);
	struct ptthread *t;
	int r;

	/* Those of what was there before have no time: they say nothing of a begin. */
	if (!ev->has_time || ev->time == 0 || ptview_kind(p->view) == PTVIEW_BRANCHES || ptview_kind(p->view) == PTVIEW_INSNS)
		return 0;
	r = ptsession_end_thread(p, s, ev->tid, ev->time);
	if (r < 0)
		return r;
	t = thread_of(p, ev->pid, ev->tid);
	if (!t)
		return -ENOMEM;
	t->is_new = ev->pid == ev->fork.ppid;
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

int ptsession_exec(struct ptsession *p, struct session *s, uint32_t pid, uint32_t tid, uint64_t ns)
{
	struct ptthread *t = idmap_get(&p->processes, pid), *next;
	int r = ptsession_end_thread(p, s, tid, ns);

	if (ns == 0)
		return r;
	for (; t && t->pid == pid && r >= 0; t = next) {
		r = ptsession_end_thread(p, s, t->tid, ns);
		next = t->sibling;
		t->sibling = t->elder = NULL;
		t->pid = 0;
	}
	if (r < 0)
		return r;
	t = thread_of(p, pid, tid);
	if (!t)
		return -ENOMEM;
	t->is_new = true;
	return 0;
}

int ptsession_off_cpu(struct ptsession *p, uint32_t tid, uint64_t ns, const char *why)
{
	const struct ptthread *t = idmap_get(&p->threads, tid);

	return t && t->view && t->n ? ptview_remark(t->view, (struct ptview_time){.ns = ns}, why) : 0;
}

int ptsession_end_thread(struct ptsession *p, struct session *s, uint32_t tid, uint64_t ns)
{
	struct ptthread *t = idmap_get(&p->threads, tid);
	int r;

	if (!t)
		return 0;
	p->s = s;
	p->ns = ns;
	p->interpolated = false;
	callstack_finish(t->calls, ns);
	p->forked_bytes -= t->forked_bytes;
	t->forked_bytes = 0;
	r = end_gap(p, t, ns);
	if (r < 0)
		return r;
	t->version = NULL;
	t->told = NULL;
	t->is_new = false;
	t->view = NULL; /* it may have another name from now on */
	t->untraced = false;
	return p->error;
}

int ptsession_finish(struct ptsession *p, struct session *s, uint64_t ns)
{
	int r = 0;

	for (struct ptthread *t = p->all; t && r >= 0; t = t->next)
		r = ptsession_end_thread(p, s, t->tid, p->ns > ns ? p->ns : ns);
	return r;
}

void ptsession_report_times(const struct ptsession *p, uint64_t *setup_ns, uint64_t *run_ns, struct json_object *stages)
{
	const uint64_t wait = ptwork_wait_ns(p->work);

	json_add_uint(stages, "code_ns", p->code_ns);
	ptwork_report_times(p->work, stages);
	json_add_uint(stages, "waiting_ns", wait);
	*setup_ns -= *setup_ns > p->code_ns ? p->code_ns : *setup_ns;
	*run_ns -= *run_ns > wait ? wait : *run_ns;
}

void ptsession_report(const struct ptsession *p, struct json_object *stats, struct json_object *losses)
{
	struct callstack_stats sum = {0};

	ptaux_report(p->aux, stats, losses);
	ptwork_report(p->work, stats, losses);
	ptcode_report(p->code, losses);
	ptnotes_report(p->notes, stats);
	if (p->missing)
		ptmissing_report(p->missing, losses);
	for (const struct ptthread *t = p->all; t; t = t->next) {
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
		sum.too_deep += c->too_deep;
	}
	json_add_uint(stats, "calls", sum.calls);
	if (p->inlined)
		json_add_uint(stats, "inlined_calls", ptinline_calls(p->inlined));
	json_add_uint(stats, "returns", sum.returns);
	json_add_uint(stats, "tail_calls", sum.tails);
	json_add_uint(stats, "unwindings", sum.unwound);
	json_add_uint(stats, "stack_switches", sum.switches);
	json_add_uint(stats, "signals", sum.signals);
	json_add_uint(stats, "callers_inferred", sum.inferred);
	if (sum.adopted)
		json_add_uint(stats, "frames_kept_over_gaps", sum.adopted);
	if (sum.unexplained)
		json_add_uint(losses, "branches_unexplained", sum.unexplained);
	if (sum.too_deep)
		json_add_uint(losses, "calls_too_deep", sum.too_deep);
	if (p->forks_without)
		json_add_uint(losses, "forked_stacks_unknown", p->forks_without);
}
