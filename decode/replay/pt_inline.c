// SPDX-License-Identifier: Apache-2.0
/*
 * Calls that the compiler inlined, drawn within those that are there: by the lines of code that
 * were executed and by what the debug information says of their addresses.
 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/insn.h"
#include "decode/dwarf/inlines.h"
#include "decode/dwarf/source.h"
#include "decode/pt/code.h"
#include "decode/replay/pt_internal.h"
#include "decode/replay/session_internal.h"

/* What is at an address: the same few are asked for again and again. */
#define KNOWN_SCOPES 4096u
struct known_scope {
	const struct address_space *space; /* NULL: nothing is known */
	uint64_t ip;
	uint64_t end;
	uint64_t last; /* of the line that begins there: its branch; 0: not looked for */
	uint64_t base; /* of the image: its own addresses lie so far below */
	struct image *image;
	const struct dwarf_scope *scope;
};

#define MAX_NOPS 4u
#define MAX_LINE 256u /* instructions that are looked at for the branch */

/*
 * Where an inlined call ended last: what is not its begin goes on with it, if its function has made
 * no branch since. Else it is the same of another round of a loop, perhaps a copy.
 */
#define BEFORE 4096u
struct before {
	const struct dwarf_scope *scope;
	uint64_t serial, branches;
};

struct pt_inline {
	struct known_scope known[KNOWN_SCOPES];
	struct before before[BEFORE];
	uint64_t calls, pieces, serial;
	/*
	 * of the line that is being walked: from the last address that was asked for, so many
	 * instructions into the line
	 */
	const struct ptflow_event *e;
	uint64_t counted_ip, counted;
};

int pt_inline_new(struct pt_inline **ret)
{
	struct pt_inline *in = calloc(1, sizeof(*in));

	if (!in)
		return -ENOMEM;
	*ret = in;
	return 0;
}

struct pt_inline *pt_inline_free(struct pt_inline *in)
{
	free(in);
	return NULL;
}

uint64_t pt_inline_calls(const struct pt_inline *in)
{
	return in->calls;
}

/* The thread's code at an address. */
static struct known_scope *look(struct pt_thread *t, uint64_t ip)
{
	struct replay_pt *p = t->p;
	struct known_scope *k = &p->inlined->known[(ip ^ ip >> 12) % KNOWN_SCOPES];
	struct code *code;
	uint64_t vaddr, end = 0;

	if (k->space == t->space && k->ip == ip)
		return k;
	*k = (struct known_scope){.space = t->space, .ip = ip, .end = UINT64_MAX};
	code = replay_pt_code(t);
	k->image = code ? resolver_image(p->s->resolver, code, ip, &vaddr) : NULL;
	if (!k->image)
		return k;
	k->base = ip - vaddr;
	k->scope = source_inlined(p->s->o.source, k->image, vaddr, &end);
	if (end != UINT64_MAX)
		k->end = end + k->base;
	if (source_error(p->s->o.source) < 0)
		p->error = source_error(p->s->o.source);
	return k;
}

/* The instructions of the line before `ip`. */
static uint64_t count_to(struct pt_thread *t, uint64_t ip)
{
	struct pt_inline *in = t->p->inlined;
	struct insn insn;

	while (in->e && in->counted_ip < ip &&
	       ptcode_insn(t->p->code, t->space, in->counted_ip, !in->e->is32, &insn)) {
		in->counted_ip += insn.length;
		in->counted++;
	}
	return in->counted;
}

/* The call of the code that is innermost, in which others may be inlined; or NULL. */
static struct call *call_of(const struct pt_thread *t)
{
	const struct callfunc *f;
	uint32_t i;

	return callstack_innermost(t->calls, &f, &i);
}

/* The inlined call in it that is innermost, or NULL. */
static const struct dwarf_scope *innermost(const struct pt_thread *t)
{
	const struct inlined *in = t->n_inlined ? &t->inlined[t->n_inlined - 1] : NULL;

	return in && replay_pt_innermost(t) == &in->call ? in->scope : NULL;
}

static struct before *before_of(struct pt_inline *in, const struct dwarf_scope *s)
{
	return &in->before[((uintptr_t)s / sizeof(*s)) % BEFORE];
}

static void remember_end(struct pt_thread *t, const struct dwarf_scope *s)
{
	struct call *call = call_of(t);

	if (!call)
		return;
	if (!call->serial)
		call->serial = ++t->p->inlined->serial;
	*before_of(t->p->inlined, s) =
		(struct before){.scope = s, .serial = call->serial, .branches = call->branches};
}

static bool goes_on(const struct pt_thread *t, const struct dwarf_scope *s)
{
	const struct before *b = before_of(t->p->inlined, s);
	const struct call *call = call_of(t);

	return call && b->scope == s && b->serial == call->serial && b->branches == call->branches;
}

/* ---- what the rule asks for and reports */

static const struct dwarf_scope *on_at(void *arg, uint64_t ip, uint64_t *ret_end)
{
	const struct known_scope *k = look(arg, ip);

	*ret_end = k->end;
	return k->scope;
}

/* 90, 0f 1f ..., with any 66 and 2e before. */
static bool is_nop(const uint8_t *code, size_t n)
{
	size_t i = 0;

	while (i < n && (code[i] == 0x66 || code[i] == 0x2e))
		i++;
	return i < n && (code[i] == 0x90 || (code[i] == 0x0f && i + 1 < n && code[i + 1] == 0x1f));
}

/* What aligns a loop lies before its first instruction, and counts as that. */
static uint64_t on_entry(void *arg, const struct dwarf_scope *s, uint64_t ip)
{
	struct pt_thread *t = arg;
	uint64_t entry = s->entry + look(t, ip)->base;
	uint8_t buffer[INSN_MAX];
	struct insn insn;

	for (unsigned int i = 0; i < MAX_NOPS; i++) {
		const uint8_t *code;
		const size_t n =
			ptcode_read(t->p->code, t->space, entry, &code, buffer, sizeof(buffer));

		if (n == 0 || !is_nop(code, n) || !insn_decode(code, n, true, &insn))
			break;
		entry += insn.length;
	}
	return entry;
}

static bool push(struct pt_thread *t, const struct dwarf_scope *s, const struct call *c)
{
	const struct callfunc *f;
	uint32_t within;

	if (!callstack_innermost(t->calls, &f, &within))
		return false;
	if (t->n_inlined == t->room_inlined) {
		const uint32_t room = t->room_inlined ? t->room_inlined * 2 : 16;
		struct inlined *v = reallocarray(t->inlined, room, sizeof(*v));

		if (!v) {
			t->p->error = -ENOMEM;
			return false;
		}
		t->inlined = v;
		t->room_inlined = room;
	}
	t->inlined[t->n_inlined++] = (struct inlined){.call = *c, .scope = s, .within = within};
	return true;
}

static void on_begin(void *arg, const struct dwarf_scope *s, uint64_t ip)
{
	struct pt_thread *t = arg;
	struct replay_pt *p = t->p;
	struct source *source = p->s->o.source;
	struct image *image = look(t, ip)->image;
	const uint64_t insns = t->insns;
	struct call c = {.begin = p->ns, .interpolated = p->interpolated};
	const bool before = goes_on(t, s) && on_entry(t, s, ip) != ip &&
			    s->entry + look(t, ip)->base != ip;

	c.frame = source_inlined_frame(source, p->s->o.st, image, s);
	c.insns = insns + count_to(t, ip);
	if (!push(t, s, &c))
		return;
	replay_pt_begin_call(t, &c, before ? "inlined, goes on" : "inlined",
			     source_inlined_place(source, image, s));
	p->inlined->calls += !before;
	p->inlined->pieces += before;
}

static void on_end(void *arg, uint32_t n, uint64_t ip)
{
	struct pt_thread *t = arg;
	const uint64_t insns = t->insns;

	t->insns = insns + count_to(t, ip);
	while (n-- && innermost(t)) {
		const struct inlined *in = &t->inlined[--t->n_inlined];

		remember_end(t, in->scope);
		replay_pt_end_call(t, t->p->ns, &in->call, replay_pt_innermost(t));
	}
	t->insns = insns;
}

static const struct inlines_ops ops = {.at = on_at,
				       .entry = on_entry,
				       .begin = on_begin,
				       .end = on_end};

/* ---- */

/*
 * Whether what is drawn on top is the function at `ip`. A stub is not drawn, and what is too deep
 * neither.
 */
static bool is_drawn(struct pt_thread *t, uint64_t ip)
{
	const struct callfunc *f;
	bool first;
	uint32_t i;

	return callstack_innermost(t->calls, &f, &i) && t->space &&
	       f == replay_pt_function(t, ip, &first);
}

/* The last instruction of the line that begins at an address, or one on the way there. */
static uint64_t last_of_line(struct pt_thread *t, uint64_t ip, bool is32)
{
	uint64_t last = ip;
	struct insn insn;

	for (unsigned int i = 0;
	     i < MAX_LINE && ptcode_insn(t->p->code, t->space, ip, !is32, &insn); i++) {
		last = ip;
		if (insn.kind != INSN_OTHER)
			break;
		ip += insn.length;
	}
	return last;
}

void pt_inline_line(struct pt_thread *t, const struct ptflow_event *e, uint64_t insns)
{
	struct pt_inline *in = t->p->inlined;
	const uint64_t now = t->insns, last = e->kind == PTFLOW_RUN ? e->to - 1 : e->from;
	uint64_t line = last;

	if (!e->start || last < e->start || !is_drawn(t, e->start))
		return;
	/* A PSB, or an interrupt, comes in the middle of it. */
	if (e->kind == PTFLOW_RUN || e->kind == PTFLOW_ASYNC || e->kind == PTFLOW_DISABLE_ASYNC) {
		line = last_of_line(t, e->start, e->is32);
		line = line > last ? line : last;
	}
	in->e = e;
	in->counted_ip = e->start;
	in->counted = 0;
	t->insns = insns;
	(void)inlines_line(&ops, t, innermost(t), e->start, last, line);
	t->insns = now;
	in->e = NULL;
	in->counted = 0;
}

void pt_inline_go_on(struct pt_thread *t, const struct ptflow_event *e)
{
	/*
	 * after a call, a branch that was not taken, or no branch at all: the compiler's line goes
	 * on
	 */
	const bool straight = e->kind == PTFLOW_RET || e->kind == PTFLOW_ENABLE ||
			      e->kind == PTFLOW_RUN || e->to == e->from + e->length;
	const struct dwarf_scope *now = innermost(t);
	struct known_scope *k;
	struct call *call;

	if (!e->to || e->kind == PTFLOW_DISABLE || e->kind == PTFLOW_DISABLE_ASYNC ||
	    e->kind == PTFLOW_DESYNC || e->kind == PTFLOW_OVERFLOW || !is_drawn(t, e->to))
		return;
	call = call_of(t);
	if (call &&
	    (e->kind == PTFLOW_COND || e->kind == PTFLOW_JUMP || e->kind == PTFLOW_JUMP_INDIRECT))
		call->branches++;
	k = look(t, e->to);
	if (k->scope == now)
		return;
	if (!k->last)
		k->last = last_of_line(t, e->to, e->is32);
	(void)inlines_go(&ops, t, now, e->to, k->last, straight);
}
