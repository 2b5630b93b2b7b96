// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/object/go_frames.h"

#include <errno.h>
#include <string.h>

#include "decode/base/bytes.h"

#define SP 7u
#define BP 6u
#define R12 12u
#define WORD 8
/* From where the stack is in use on, the frame pointer is saved within so many bytes. */
#define SAVED_WITHIN 64u
#define DEEPEST (1 << 30)
#define NEVER UINT64_MAX

/* What a function does beyond taking and giving back some of its stack. */
enum manner {
	ORDINARY,
	OUTERMOST,	/* nobody has called it */
	SIGNAL,		/* the way back from a handler */
	INJECTED,	/* the runtime has it called where a signal came, by nobody */
	CALLS_AWAY,	/* it calls on another stack, and comes back */
	LEAVES,		/* nobody comes back to who has called it by this stack */
	LEAVES_FOR_GOOD, /* to the scheduler, which is nobody's */
	WRITES_SP,	/* whatever it is for */
};

struct frame {
	const struct gopclntab *t;
	const struct gopclntab_function *f;
	const uint8_t *code;
	size_t size;
	enum manner manner;
	/* From the function's begin; NEVER: there is none. */
	uint64_t saved; /* the caller's frame pointer is at CFA + saved_off */
	uint64_t points; /* the frame pointer points to that */
	uint64_t away, back; /* on another stack, and on the first again */
	int64_t saved_off;
	cfa_row_fn fn;
	void *arg;
};

static const struct special {
	const char *name;
	enum manner manner;
} specials[] = {
	{"gogo", LEAVES},
	{"runtime.asmcgocall", CALLS_AWAY},
	{"runtime.asyncPreempt", INJECTED},
	{"runtime.cgocallback", LEAVES},
	{"runtime.clone", LEAVES_FOR_GOOD},
	{"runtime.debugCallV2", INJECTED},
	{"runtime.gogo", LEAVES},
	{"runtime.mcall", LEAVES_FOR_GOOD},
	{"runtime.morestack", LEAVES},
	{"runtime.sigpanic", INJECTED},
	{"runtime.sigpanic0", INJECTED},
	{"runtime.sigreturn", SIGNAL},
	{"runtime.sigreturn__sigaction", SIGNAL},
	{"runtime.sigtramp", ORDINARY}, /* the runtime looks no further */
	{"runtime.systemstack", CALLS_AWAY},
	{"time.now", CALLS_AWAY},
};

static enum manner manner_of(const struct gopclntab_function *f)
{
	for (size_t i = 0; i < ARRAY_SIZE(specials); i++)
		if (strcmp(f->name, specials[i].name) == 0 &&
		    (specials[i].manner < CALLS_AWAY || (f->flags & GOPCLNTAB_WRITES_SP)))
			return specials[i].manner;
	if (f->flags & GOPCLNTAB_IS_OUTERMOST)
		return OUTERMOST;
	if (f->flags & GOPCLNTAB_WRITES_SP)
		return strncmp(f->name, "runtime.", 8) == 0 ? CALLS_AWAY : WRITES_SP;
	return ORDINARY;
}

/* ---- instructions */

static bool is(const struct frame *fr, uint64_t at, const char *bytes, size_t n)
{
	return at <= fr->size && n <= fr->size - at && memcmp(fr->code + at, bytes, n) == 0;
}
#define IS(fr, at, bytes) is(fr, at, bytes, sizeof(bytes) - 1)

/*
 * The length of an instruction with an offset from rsp, `opcode` and the register in its ModRM; 0:
 * it is another one.
 */
static size_t at_sp(const struct frame *fr, uint64_t at, uint8_t opcode, int64_t *ret_off)
{
	const uint8_t *p = fr->code + at;

	if (at > fr->size || fr->size - at < 8 || p[0] != 0x48 || p[1] != opcode || p[3] != 0x24)
		return 0;
	if (p[2] == 0x6c) {
		*ret_off = (int8_t)p[4];
		return 5;
	}
	if (p[2] == 0xac) {
		*ret_off = (int32_t)load_u32(p + 4);
		return 8;
	}
	return 0;
}

/* mov reg,%rsp; mov off(reg),%rsp; and $imm,%rsp: what is behind it; 0: it is none. */
static uint64_t writes_sp(const struct frame *fr, uint64_t at)
{
	const uint8_t *p = fr->code + at;

	if (fr->size - at < 4 || (p[0] != 0x48 && p[0] != 0x49 && p[0] != 0x4c))
		return 0;
	if (p[1] == 0x89 && (p[2] & 0xc7) == 0xc4 && p[0] != 0x49) /* 4c: of r8..r15 */
		return at + 3;
	if (p[1] == 0x8b && (p[2] & 0x38) == 0x20 && p[0] != 0x4c && (p[2] & 7) != 4 &&
	    p[2] >> 6 < 2 && (p[2] & 0xc7) != 5)
		return at + (p[2] >> 6 ? 4 : 3);
	if (p[0] == 0x48 && p[1] == 0x83 && p[2] == 0xe4)
		return at + 4;
	return 0;
}

/*
 * Where the caller's frame pointer is saved from on, in a step of the table at whose begin more of
 * the stack is in use than before.
 */
static void find_saved(struct frame *fr, const struct gopclntab_steps *s)
{
	const uint64_t at = s->start,
		       until = s->end < at + SAVED_WITHIN ? s->end : at + SAVED_WITHIN;
	const int64_t in_use = s->value;
	int64_t off;
	size_t n;

	if (at == 0)
		return;
	/* push %rbp, not push %r13, which ends so, too */
	if (IS(fr, at - 1, "\x55") &&
	    (IS(fr, at, "\x48\x89\xe5") || at < 2 || fr->code[at - 2] != 0x41)) {
		fr->saved = at;
		fr->saved_off = -in_use - WORD;
		if (IS(fr, at, "\x48\x89\xe5"))
			fr->points = at + 3;
		return;
	}
	for (uint64_t i = at; i < until; i++) {
		n = at_sp(fr, i, 0x89, &off);
		if (!n)
			continue;
		fr->saved = i + n;
		fr->saved_off = off - in_use - WORD;
		n = at_sp(fr, i + n, 0x8d, &off);
		if (n && off - in_use - WORD == fr->saved_off)
			fr->points = fr->saved + n;
		return;
	}
}

static void look_at_code(struct frame *fr)
{
	struct gopclntab_steps s;
	int32_t last = 0;

	fr->saved = fr->points = fr->away = fr->back = NEVER;
	if (!fr->code)
		return;
	if (gopclntab_stack_begin(fr->t, fr->f, &s)) {
		while (gopclntab_stack_next(&s)) {
			if (s.value > last && fr->saved == NEVER)
				find_saved(fr, &s);
			last = s.value;
		}
	}
	if (fr->manner < CALLS_AWAY)
		return;
	for (uint64_t i = 0; i < fr->size; i++) {
		const uint64_t behind = writes_sp(fr, i);

		if (!behind)
			continue;
		if (fr->away == NEVER) {
			fr->away = behind;
		} else if (fr->back == NEVER && fr->code[i + 1] != 0x83) {
			fr->back = behind;
			return;
		}
	}
}

/* ---- rules */

static struct unwind_rule by(unsigned reg, int64_t off, int64_t bp_off, unsigned flags)
{
	const bool told = bp_off > INT16_MIN && bp_off < UNWIND_BP_UNKNOWN;

	return (struct unwind_rule){.kind_reg = (uint8_t)(UNWIND_CFA | reg << 4),
				    .extra = (uint8_t)flags,
				    .cfa_off = (int32_t)off,
				    .bp_off = (int16_t)(told ? bp_off : UNWIND_BP_UNKNOWN)};
}

static struct unwind_rule rule_at(const struct frame *fr, uint64_t at,
				  const struct gopclntab_steps *s)
{
	static const struct unwind_rule unknown = {.kind_reg = UNWIND_UNKNOWN},
					end = {.kind_reg = UNWIND_END},
					elsewhere = {.kind_reg = UNWIND_ELSEWHERE},
					in_r12 = {.kind_reg = UNWIND_RA_REGISTER | SP << 4,
						  .extra = R12,
						  .bp_off = UNWIND_BP_SAME};
	const int32_t in_use = s->value;
	const bool saved = at >= fr->saved && in_use > 0;
	const struct unwind_rule ordinary = by(SP, (int64_t)in_use + WORD,
					       saved ? fr->saved_off : UNWIND_BP_SAME,
					       fr->manner == INJECTED ? UNWIND_WAS_INTERRUPTED : 0);

	if (fr->manner == OUTERMOST)
		return end;
	/* pop %r12: the child of a vfork uses the stack as well, and would return there first. */
	if (fr->manner == ORDINARY && in_use == -WORD && s->start >= 2 && fr->code &&
	    IS(fr, s->start - 2, "\x41\x5c"))
		return in_r12;
	if (in_use < 0 || in_use > DEEPEST || in_use % WORD ||
	    (!fr->code && fr->manner >= CALLS_AWAY))
		return unknown;
	if (fr->manner < CALLS_AWAY)
		return ordinary;
	/* The frame pointer leads to the right stack wherever it runs. */
	if (fr->manner == CALLS_AWAY && fr->points != NEVER)
		return at >= fr->points && in_use > 0
			       ? by(BP, 2 * WORD, -2 * WORD, UNWIND_OTHER_STACK)
			       : ordinary;
	if (fr->away == NEVER)
		return unknown;
	if (at < fr->away)
		return ordinary;
	switch (fr->manner) {
	case LEAVES_FOR_GOOD:
		return end;
	case LEAVES:
		return at < fr->back ? elsewhere : ordinary;
	case CALLS_AWAY:
		return elsewhere;
	default:
		return unknown;
	}
}

/* A step of the table, in which what is known of the frame may change. */
static bool put_step(const struct frame *fr, const struct gopclntab_steps *s)
{
	const uint64_t changes[] = {fr->saved, fr->points, fr->away, fr->back},
		       size = fr->f->end - fr->f->start;
	uint64_t at = s->start;

	while (at < s->end && at < size) {
		const struct unwind_rule rule = rule_at(fr, at, s);
		uint64_t next = s->end;

		if (!fr->fn(fr->arg, fr->f->start + at, &rule))
			return false;
		for (size_t i = 0; i < ARRAY_SIZE(changes); i++)
			if (changes[i] > at && changes[i] < next)
				next = changes[i];
		at = next;
	}
	return true;
}

int go_frames_run(const struct go_frames *g, const struct gopclntab_function *f, cfa_row_fn fn,
		  void *arg)
{
	static const struct unwind_rule signal = {.kind_reg = UNWIND_SIGNAL},
					unknown = {.kind_reg = UNWIND_UNKNOWN};
	const bool has = g->code && f->start >= g->code_at && f->end - g->code_at <= g->code_size;
	struct frame fr = {.t = &g->table, .f = f, .manner = manner_of(f), .fn = fn, .arg = arg};
	struct gopclntab_steps s;
	bool any = false;

	/*
	 * It is returned to at its begin, and what is returned to is looked for in front of that.
	 */
	if (fr.manner == SIGNAL)
		return fn(arg, f->start - 1, &signal) ? 0 : -ENOMEM;
	if (has) {
		fr.code = g->code + (f->start - g->code_at);
		fr.size = (size_t)(f->end - f->start);
	}
	look_at_code(&fr);
	if (gopclntab_stack_begin(&g->table, f, &s)) {
		while (gopclntab_stack_next(&s)) {
			if (!put_step(&fr, &s))
				return -ENOMEM;
			any |= s.end > 0;
		}
	}
	return any || fn(arg, f->start, &unknown) ? 0 : -ENOMEM;
}

struct wanted {
	uint64_t pc;
	struct unwind_rule rule;
	bool found;
};

static bool take_row(void *arg, uint64_t pc, const struct unwind_rule *rule)
{
	struct wanted *w = arg;

	if (pc > w->pc)
		return false;
	w->rule = *rule;
	w->found = true;
	return true;
}

bool go_frames_rule(const struct go_frames *g, uint64_t vaddr, struct unwind_rule *ret)
{
	struct wanted w = {.pc = vaddr};
	struct gopclntab_function f;

	/* In front of the way back from a handler, see above. */
	if (!gopclntab_find(&g->table, vaddr + 1, &f) || f.start != vaddr + 1 ||
	    manner_of(&f) != SIGNAL)
		if (!gopclntab_find(&g->table, vaddr, &f))
			return false;
	if (go_frames_run(g, &f, take_row, &w) < 0 && !w.found)
		return false;
	*ret = w.rule;
	return w.found;
}

/* ---- the file */

/* What functions do with the frame pointer is in their code. */
static void find_code(struct go_frames *g, Elf *elf, struct budget *budget)
{
	Elf_Scn *scn = NULL;

	for (unsigned i = 0; i < SYMBOLS_MAX_SECTIONS && (scn = elf_nextscn(elf, scn)); i++) {
		const Elf_Data *data;
		GElf_Shdr sh;

		if (!gelf_getshdr(scn, &sh) || sh.sh_type != SHT_PROGBITS ||
		    !(sh.sh_flags & SHF_EXECINSTR) || g->table.text < sh.sh_addr ||
		    g->table.text - sh.sh_addr >= sh.sh_size || !budget_take(budget, sh.sh_size))
			continue;
		g->charged += sh.sh_size;
		data = elf_rawdata(scn, NULL);
		if (!data || !data->d_buf)
			continue;
		g->code = data->d_buf;
		g->code_at = sh.sh_addr;
		g->code_size = data->d_size;
		return;
	}
}

int go_frames_open(Elf *elf, struct budget *budget, struct go_frames *ret)
{
	struct go_frames g = {.code = NULL};

	if (!gopclntab_open(elf, &g.table))
		return -ENODATA;
	if (!budget_take(budget, g.table.size))
		return -ENOMEM;
	g.charged = g.table.size;
	find_code(&g, elf, budget);
	*ret = g;
	return 0;
}

void go_frames_close(struct go_frames *g, struct budget *budget)
{
	budget_give(budget, g->charged);
	*g = (struct go_frames){.code = NULL};
}
