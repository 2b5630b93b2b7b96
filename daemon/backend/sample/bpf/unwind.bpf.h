/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Unwinds the user stack of a thread by the tables that the daemon has loaded. Included by
 * sched.bpf.c, whose declarations of the kernel's types it uses.
 *
 * Each frame is a call of a global function, which the verifier checks once, whatever the number of
 * frames: no bpf_loop() (5.17), no tail calls. The frames of all functions that call each other
 * must fit into 512 bytes, so what is large lies in a map. All that call it have interrupts off.
 */
#pragma once

#include "daemon/backend/sample/bpf/unwind.h"


#define CODE_64_CS 0x33
#define USER_HALF (1ULL << 47)
#define NOWHERE (~0ULL - UNWIND_WINDOW)
/*
 * Stack words come from a copy of this much: one read of many costs hardly more than one of a word.
 */
#define UNWIND_WINDOW 1024
#define FP_REACH (1u << 20)
#define FRAME_WORDS 512		 /* more of a function without a table are not looked through */
/* Kinds of rules that no file has: of code that was made at run time. */
#define KIND_MADE UNWIND_KINDS
#define KIND_MADE_HOTSPOT (UNWIND_KINDS + 1)
#define SIGNAL_REGS 40 /* from a signal's frame to the registers: rt_sigframe's uc, uc_mcontext */
#define CACHED 1024

/* A bound that clang can neither move nor drop: the verifier wants to see it. */
#define MASK(v, m) asm volatile("%0 &= %1" : "+r"(v) : "i"(m))

struct unwind_slab {
	__u32 row[UNWIND_SLAB_ROWS];
};
struct unwind_slab_map {
	__uint(type, MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, UNWIND_SLAB_ROWS * 4);
};
struct {
	__uint(type, MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, UNWIND_SLABS);
	__type(key, __u32);
	__array(values, struct unwind_slab_map);
} uw_slabs SEC(".maps");

struct {
	__uint(type, MAP_TYPE_ARRAY);
	__uint(max_entries, UNWIND_MAP_PAGES);
	__type(key, __u32);
	__type(value, struct unwind_page);
} uw_pages SEC(".maps");

struct {
	__uint(type, MAP_TYPE_ARRAY);
	__uint(max_entries, UNWIND_MAP_RULES);
	__type(key, __u32);
	__type(value, struct unwind_rule);
} uw_rules SEC(".maps");

struct {
	__uint(type, MAP_TYPE_ARRAY);
	__uint(max_entries, UNWIND_MAPPINGS);
	__type(key, __u32);
	__type(value, struct unwind_mapping);
} uw_mappings SEC(".maps");

struct {
	__uint(type, MAP_TYPE_HASH);
	__uint(max_entries, UNWIND_PROCESSES);
	__type(key, __u32);
	__type(value, struct unwind_process);
} uw_processes SEC(".maps");

/*
 * Rules that were found lately, by address: waits come from few places. The generation is of one
 * version of one process's list of mappings, so that nothing must be forgotten when a list changes.
 */
struct unwind_cached {
	__u64 pc;
	__u32 generation;
	__u16 found, called; /* called: the address before which it is looked up is behind a call */
	struct unwind_rule rule;
};
struct unwind_cache {
	struct unwind_cached e[CACHED];
};
struct {
	__uint(type, MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct unwind_cache);
} uw_caches SEC(".maps");

/*
 * The record as it is put out: addresses behind the event, and behind them what python.bpf.h adds.
 */
#define UNWIND_WORDS 512
struct unwind_record {
	struct tracerd_sched_event ev;
	__u64 addrs[UNWIND_WORDS];
};

struct unwind_state {
	__u64 pc, sp;
	__u64 regs[16];	 /* DWARF's order; [6] is followed through all frames */
	__u32 all_known; /* regs are those of this frame */
	__u32 exact;	 /* pc is where it runs, not a return address */
	__u32 n, max, why, n_python;
	__u32 first, n_mappings, generation, frame_pointers;
	/* pc was found by a frame pointer, and has still to be where may be returned to */
	__u32 unproved;
	__u32 hotspot;
	__u64 made_start, made_end;
	__u64 gap_start, gap_end; /* no mapping is in it */
	__u64 code;		  /* bytes of it */
	struct unwind_mapping m;
	__u64 begin_sp;
	/* it is the stack as long as the registers and these words are what they are */
	__u32 proved;
	__u32 n_words, span;
	__u16 word_at[FILTER_KEPT_WORDS];
	__u64 words[FILTER_KEPT_WORDS];
	__u64 saved[21]; /* struct pt_regs, or a signal frame's registers */
	__u64 window_at;
	__u64 window[UNWIND_WINDOW / 8];
	struct unwind_record out;
};
struct {
	__uint(type, MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct unwind_state);
} uw_states SEC(".maps");

#define inline_ static __attribute__((always_inline))

/* A word of the thread's memory: 0 if it was read. */
inline_ int stack_word(struct unwind_state *s, __u64 addr, __u64 *ret)
{
	__u64 off = addr - s->window_at;

	if ((addr & 7) || off > UNWIND_WINDOW - 8) {
		/* Frames lie upwards, and what is saved just below a CFA. */
		const __u64 from = (addr & ~7ULL) - 16;

		if ((addr & 7) || bpf_probe_read_user(s->window, UNWIND_WINDOW, (void *)from)) {
			/* The end of the stack, or a page that is not there: this word may be. */
			s->window_at = NOWHERE;
			return bpf_probe_read_user(ret, 8, (void *)addr) != 0;
		}
		s->window_at = from;
		off = 16;
	}
	off >>= 3;
	MASK(off, UNWIND_WINDOW / 8 - 1);
	*ret = s->window[off];
	return 0;
}

/* The same of one that says where the next frame is. */
inline_ int frame_word(struct unwind_state *s, __u64 addr, __u64 *ret)
{
	const __u64 at = (addr - s->begin_sp) >> 3;
	__u64 n = s->n_words;

	if (stack_word(s, addr, ret))
		return 1;
	if (n >= FILTER_KEPT_WORDS || at > 0xffff) {
		s->proved = 0;
		return 0;
	}
	MASK(n, FILTER_KEPT_WORDS - 1);
	s->word_at[n] = (__u16)at;
	s->words[n] = *ret;
	s->n_words = (__u32)n + 1;
	if (at >= s->span)
		s->span = (__u32)at + 1;
	return 0;
}

inline_ int find_mapping(struct unwind_state *s, __u64 pc)
{
	__u32 lo = s->first, hi = lo + s->n_mappings;
	__u64 gap_start = 0, gap_end = USER_HALF;

	if (pc >= s->m.start && pc < s->m.end)
		return 1;
	if (pc >= s->gap_start && pc < s->gap_end)
		return 0;
	for (int i = 0; i < UNWIND_MAPPINGS_STEPS; i++) {
		__u32 mid = (lo + hi) / 2;
		struct unwind_mapping *m;

		if (lo >= hi)
			break;
		m = bpf_map_lookup_elem(&uw_mappings, &mid);
		if (!m || m->generation != s->generation)
			return 0;
		if (pc < m->start) {
			hi = mid;
			gap_end = m->start;
		} else if (pc >= m->end) {
			lo = mid + 1;
			gap_start = m->end;
		} else {
			s->m = *m;
			return s->m.generation == s->generation;
		}
	}
	s->gap_start = gap_start;
	s->gap_end = gap_end;
	return 0;
}

inline_ struct unwind_rule *find_rule(struct unwind_state *s, __u64 pc)
{
	const __u64 vaddr = pc - s->m.bias, number = vaddr >> UNWIND_PAGE_BITS;
	__u32 key, lo, hi, zero = 0;
	struct unwind_page *page;
	struct unwind_slab *slab;
	void *inner;

	if (number < s->m.lo_page || number - s->m.lo_page >= s->m.n_pages)
		return 0;
	key = s->m.page0 + (__u32)(number - s->m.lo_page);
	page = bpf_map_lookup_elem(&uw_pages, &key);
	if (!page || !page->n)
		return 0;
	key = page->slab;
	inner = bpf_map_lookup_elem(&uw_slabs, &key);
	if (!inner)
		return 0;
	slab = bpf_map_lookup_elem(inner, &zero);
	if (!slab)
		return 0;
	lo = page->first;
	hi = lo + page->n;
	key = UNWIND_ROW(vaddr & ((1u << UNWIND_PAGE_BITS) - 1), (1u << UNWIND_RULE_BITS) - 1);
	/*
	 * The last row that does not begin behind the address: the first one of a page never does.
	 */
	for (int i = 0; i < UNWIND_PAGE_BITS + 1; i++) {
		__u32 mid = (lo + hi) / 2;

		if (lo + 1 >= hi)
			break;
		if (slab->row[mid & (UNWIND_SLAB_ROWS - 1)] <= key)
			lo = mid;
		else
			hi = mid;
	}
	key = UNWIND_ROW_RULE(slab->row[lo & (UNWIND_SLAB_ROWS - 1)]);
	return bpf_map_lookup_elem(&uw_rules, &key);
}

/* What is known of an address; `found` is 0: there is no table for it. */
inline_ struct unwind_cached *known_at(struct unwind_state *s, __u64 pc)
{
	__u32 zero = 0;
	struct unwind_cache *cache = bpf_map_lookup_elem(&uw_caches, &zero);
	__u64 at = (__u32)(pc ^ pc >> 10 ^ pc >> 20 ^ s->generation * 0x9e3779b1u >> 16);
	struct unwind_rule *rule;

	if (!cache)
		return 0;
	MASK(at, CACHED - 1);
	if (cache->e[at].pc == pc && cache->e[at].generation == s->generation)
		return &cache->e[at];
	cache->e[at].pc = pc;
	cache->e[at].generation = s->generation;
	cache->e[at].found = cache->e[at].called = 0;
	if (!find_mapping(s, pc))
		return &cache->e[at];
	if (UNWIND_IS_MADE(&s->m)) {
		cache->e[at].rule.kind_reg = s->m.page0 == UNWIND_MADE ? KIND_MADE
								       : KIND_MADE_HOTSPOT;
		cache->e[at].found = 1;
		return &cache->e[at];
	}
	rule = find_rule(s, pc);
	if (rule) {
		cache->e[at].found = 1;
		cache->e[at].rule = *rule;
	}
	return &cache->e[at];
}

inline_ int ends(struct unwind_state *s, __u32 why)
{
	s->why = why;
	return 1;
}

inline_ int goes_on(struct unwind_state *s, __u64 pc, __u64 sp)
{
	s->pc = pc;
	s->sp = sp;
	s->exact = 0;
	s->all_known = 0;
	if (!pc)
		return ends(s, UNWIND_COMPLETE);
	return pc < USER_HALF ? 0 : ends(s, UNWIND_BAD);
}

inline_ __u32 code_byte(__u64 code, __u32 before)
{
	return (__u32)(code >> (64 - 8 * before)) & 0xff;
}

/*
 * Whether that many bytes before an address are a call of what a register says. `code`: the 8 bytes
 * before it.
 */
inline_ int is_indirect_call(__u64 code, __u32 length)
{
	const __u32 modrm = code_byte(code, length - 1), mod = modrm >> 6, rm = modrm & 7;
	__u32 is = 2;

	if (code_byte(code, length) != 0xff || (modrm >> 3 & 7) != 2)
		return 0;
	if (mod != 3 && rm == 4)
		is++;
	if (mod == 1)
		is++;
	else if (mod == 2 || (mod == 0 && rm == 5) ||
		 (is == 3 && mod == 0 && length == 7 && (code_byte(code, 5) & 7) == 5))
		is += 4;
	return is == length;
}

/*
 * Whether this address may be returned to: code of the thread calls just before it. HotSpot's
 * interpreter calls by a jump, and has functions return to any place that it likes.
 */
__attribute__((noinline)) int unwind_is_return(__u64 pc)
{
	__u32 zero = 0;
	struct unwind_state *s = bpf_map_lookup_elem(&uw_states, &zero);
	__u64 code;

	if (!s || pc < 4096 || pc >= USER_HALF)
		return 0;
	/* Beside code that was made there may be such as the daemon has not heard of yet. */
	if ((pc < s->made_start || pc >= s->made_end) && !find_mapping(s, pc))
		return 0;
	if (bpf_probe_read_user(&s->code, sizeof(s->code), (void *)(pc - 8)))
		return 0;
	if (s->hotspot && pc >= s->made_start && pc < s->made_end)
		return 1;
	code = s->code;
	return code_byte(code, 5) == 0xe8 || is_indirect_call(code, 2) ||
	       is_indirect_call(code, 3) || is_indirect_call(code, 4) ||
	       is_indirect_call(code, 6) || is_indirect_call(code, 7);
}

/*
 * Whether something may be returned to between the stack pointer and the frame pointer. Then the
 * frame pointer may be another frame's: a function that keeps none has left its return address
 * there. What was in the memory before looks like that, too; where functions are known to save the
 * frame pointer below it (`paired`), it is what has that below it. But HotSpot's interpreter aligns
 * the stack and pushes the return address again if what it calls is compiled, and above may be what
 * an interpreted one had saved.
 */
__attribute__((noinline)) int unwind_returns_below(__u32 paired)
{
	__u32 zero = 0;
	struct unwind_state *s = bpf_map_lookup_elem(&uw_states, &zero);
	__u64 at, word, below = 0;

	if (!s)
		return 1;
	at = s->sp;
	for (int i = 0; i < FRAME_WORDS; i++) {
		if (at >= s->regs[6])
			return 0;
		if (stack_word(s, at, &word))
			return 1;
		if ((!paired || (below == s->regs[6] && (word != s->pc || at != s->sp + 8))) &&
		    !(word >= s->gap_start && word < s->gap_end) && unwind_is_return(word))
			return 1;
		below = word;
		at += 8;
	}
	return 1;
}

/* The stack pointer where the return address is on top of it. */
inline_ int step_return(struct unwind_state *s, __u64 sp)
{
	__u64 ra;

	s->proved = 0;
	if ((sp & 7) || stack_word(s, sp, &ra))
		return ends(s, UNWIND_NO_READ);
	if (!unwind_is_return(ra))
		return ends(s, UNWIND_NO_FRAME);
	s->frame_pointers++;
	return goes_on(s, ra, sp + 8);
}

#define BYTES(code, n) ((code) & ((1ULL << (8 * (n))) - 1))
#define PUSH_BP 0x55
#define POP_BP 0x5d
#define LEAVE 0xc9
#define RETURN 0xc3
#define RETURN_N 0xc2

/*
 * Where a function runs it may have no frame yet, or no more: what it does next says so, or what it
 * did. 1: then the state is its caller's, or the walk has ended. It has where nothing says where
 * the return address is.
 */
__attribute__((noinline)) int unwind_without_frame(__u32 zero)
{
	struct unwind_state *s = bpf_map_lookup_elem(&uw_states, &zero);
	__u64 code, before, top;

	if (!s)
		return 1;
	if (bpf_probe_read_user(&s->code, sizeof(s->code), (void *)(s->pc - 8)))
		return ends(s, UNWIND_NO_FRAME);
	before = s->code;
	if (bpf_probe_read_user(&s->code, sizeof(s->code), (void *)s->pc))
		return ends(s, UNWIND_NO_FRAME);
	code = s->code;
	if (BYTES(code, 1) == PUSH_BP || BYTES(code, 1) == RETURN || BYTES(code, 1) == RETURN_N) {
		(void)step_return(s, s->sp);
		return 1;
	}
	/* push %rbp; mov %rsp, %rbp, in either encoding */
	if (code_byte(before, 1) == PUSH_BP &&
	    (BYTES(code, 3) == 0xe58948 || BYTES(code, 3) == 0xec8b48)) {
		(void)step_return(s, s->sp + 8);
		return 1;
	}
	/* mov %rbp, N(%rsp): saved now, instead of pushed */
	if (BYTES(code, 4) == 0x246c8948 || BYTES(code, 4) == 0x24ac8948)
		return ends(s, UNWIND_NO_FRAME);
	if ((s->sp & 7) || stack_word(s, s->sp, &top))
		return ends(s, UNWIND_NO_READ);
	if (unwind_is_return(top)) {
		/*
		 * It may be what was there before. But a call of a place just before where it runs
		 * is the call of this.
		 */
		code = s->code;
		if (code_byte(code, 5) != 0xe8 ||
		    s->pc - (top + (__u64)(__s64)(__s32)(code >> 32)) > 4096)
			return ends(s, UNWIND_NO_FRAME);
		s->frame_pointers++;
		(void)goes_on(s, top, s->sp + 8);
		return 1;
	}
	/* The frame has just been dropped, and with it the return address taken from the stack. */
	for (__u32 i = 1; i <= 8; i++)
		if (code_byte(before, i) == POP_BP || code_byte(before, i) == LEAVE)
			return ends(s, UNWIND_NO_FRAME);
	return 0;
}

/*
 * By the frame pointer, if it is this function's, and if it leads behind a call, which the next
 * step sees.
 */
inline_ int step_frame_pointer(struct unwind_state *s, __u32 paired)
{
	const __u64 bp = s->regs[6];
	__u64 caller_bp, ra;

	/* what is code, and what lies between, is looked at, too */
	s->proved = 0;
	if (s->exact && unwind_without_frame(0))
		return s->why != UNWIND_DEEP;
	if ((bp & 7) || bp < s->sp || bp - s->sp > FP_REACH || unwind_returns_below(paired))
		return ends(s, UNWIND_NO_FRAME);
	if (stack_word(s, bp, &caller_bp) || stack_word(s, bp + 8, &ra))
		return ends(s, UNWIND_NO_READ);
	s->frame_pointers++;
	s->regs[6] = caller_bp;
	s->unproved = 1;
	return goes_on(s, ra, bp + 16);
}

/* The kernel has saved all registers of what the signal interrupted. */
inline_ int step_signal(struct unwind_state *s)
{
	s->proved = 0;
	if (bpf_probe_read_user(s->saved, 17 * 8, (void *)(s->sp + SIGNAL_REGS)))
		return ends(s, UNWIND_NO_READ);
	/* r8..r15 rdi rsi rbp rbx rdx rax rcx rsp rip */
	s->regs[0] = s->saved[13];
	s->regs[1] = s->saved[12];
	s->regs[2] = s->saved[14];
	s->regs[3] = s->saved[11];
	s->regs[4] = s->saved[9];
	s->regs[5] = s->saved[8];
	s->regs[6] = s->saved[10];
	s->regs[7] = s->saved[15];
	for (int i = 0; i < 8; i++)
		s->regs[8 + i] = s->saved[i];
	if (goes_on(s, s->saved[16], s->saved[15]))
		return 1;
	s->exact = 1;
	s->all_known = 1;
	return 0;
}

/* *ret: the register's value, if it is known in this frame. */
inline_ int reg_value(struct unwind_state *s, __u32 reg, __u64 *ret)
{
	if (reg == 7) {
		*ret = s->sp;
		return 0;
	}
	if (reg != 6) {
		if (!s->all_known)
			return -1;
		s->proved = 0;
	}
	*ret = s->regs[reg & 15];
	return 0;
}

inline_ int caller_bp(struct unwind_state *s, const struct unwind_rule *rule, __u64 cfa)
{
	const int from_bp = UNWIND_KIND(rule) != UNWIND_RA_REGISTER &&
			    (rule->extra & UNWIND_BP_FROM_BP);
	const int other_stack = UNWIND_KIND(rule) == UNWIND_CFA &&
				(rule->extra & UNWIND_OTHER_STACK);
	__u64 where = from_bp ? s->regs[6] : cfa;

	if (!from_bp && rule->bp_off == UNWIND_BP_SAME)
		return 0;
	if (rule->bp_off == UNWIND_BP_UNKNOWN) {
		s->regs[6] = 0;
		return 0;
	}
	where += (__u64)(__s64)rule->bp_off;
	/*
	 * An epilogue has popped it already, which compilers do not say: the register has it back.
	 */
	if (s->exact && where < s->sp && !other_stack)
		return 0;
	return frame_word(s, where, &s->regs[6]);
}

/* Goes from the frame in the state to its caller. 0: go on. */
__attribute__((noinline)) int unwind_step(__u32 zero)
{
	struct unwind_state *s = bpf_map_lookup_elem(&uw_states, &zero);
	struct unwind_cached *known;
	struct unwind_rule *rule;
	__u64 cfa, ra;
	__u32 n, kind, flags;

	if (!constants.unwind || !s)
		return 1;
	n = s->n;
	if (n >= s->max || n >= 127)
		return ends(s, UNWIND_DEEP);
	/* A return address belongs to the call before it. */
	known = known_at(s, s->exact ? s->pc : s->pc - 1);
	if (!known)
		return ends(s, UNWIND_NO_TABLE);
	if (s->unproved) {
		if (!known->called) {
			if (!unwind_is_return(s->pc))
				return ends(s, UNWIND_NO_FRAME);
			known->called = 1;
		}
		s->unproved = 0;
	}
	s->out.addrs[n & 127] = s->pc;
	s->n = n + 1;
	if (!known->found)
		return ends(s, UNWIND_NO_TABLE);
	rule = &known->rule;
	kind = UNWIND_KIND(rule);
	if (kind == UNWIND_END)
		return ends(s, UNWIND_COMPLETE);
	if (kind == UNWIND_ELSEWHERE)
		return ends(s, UNWIND_STACK_LEFT);
	if (kind == UNWIND_FRAME_POINTER || kind == KIND_MADE || kind == KIND_MADE_HOTSPOT)
		return step_frame_pointer(s, kind == KIND_MADE_HOTSPOT);
	if (kind == UNWIND_SIGNAL)
		return step_signal(s);
	if (kind == UNWIND_PLT) {
		cfa = s->sp + 8 + ((s->pc & 15) >= (__u32)rule->cfa_off ? 8 : 0);
	} else if (kind == UNWIND_CFA || kind == UNWIND_CFA_DEREF || kind == UNWIND_RA_REGISTER) {
		if (reg_value(s, UNWIND_REG(rule), &cfa))
			return ends(s, UNWIND_NO_RULE);
		cfa += (__u64)(__s64)rule->cfa_off;
	} else {
		return ends(s, UNWIND_NO_RULE);
	}
	if (kind == UNWIND_CFA_DEREF) {
		if (frame_word(s, cfa, &cfa))
			return ends(s, UNWIND_NO_READ);
		cfa += (rule->extra & 15) * 8;
	}
	flags = kind == UNWIND_CFA ? rule->extra : 0;
	/* Only where it runs may a function have no stack at all. */
	if (!(flags & UNWIND_OTHER_STACK) && (cfa < s->sp || (cfa == s->sp && !s->exact)))
		return ends(s, UNWIND_BAD);
	if (kind == UNWIND_RA_REGISTER) {
		if (!s->all_known)
			return ends(s, UNWIND_NO_RULE);
		s->proved = 0;
		ra = s->regs[rule->extra & 15];
	} else if (frame_word(s, cfa - 8, &ra)) {
		return ends(s, UNWIND_NO_READ);
	}
	if (caller_bp(s, rule, cfa))
		return ends(s, UNWIND_NO_READ);
	if (goes_on(s, ra, cfa))
		return 1;
	s->exact = (flags & UNWIND_WAS_INTERRUPTED) != 0;
	return 0;
}

/* Whether the stack, as far as it came, is what the thread's stack is. */
inline_ int is_whole(__u32 why)
{
	return why == UNWIND_COMPLETE || why == UNWIND_DEEP || why == UNWIND_STACK_LEFT;
}

inline_ void unwind_begin(struct unwind_state *s, const struct unwind_process *process, __u32 max)
{
	/* r15 r14 r13 r12 bp bx r11 r10 r9 r8 ax cx dx si di orig_ax ip cs flags sp ss */
	s->pc = s->saved[16];
	s->sp = s->saved[19];
	s->regs[0] = s->saved[10];
	s->regs[1] = s->saved[12];
	s->regs[2] = s->saved[11];
	s->regs[3] = s->saved[5];
	s->regs[4] = s->saved[13];
	s->regs[5] = s->saved[14];
	s->regs[6] = s->saved[4];
	s->regs[7] = s->saved[19];
	s->regs[8] = s->saved[9];
	s->regs[9] = s->saved[8];
	s->regs[10] = s->saved[7];
	s->regs[11] = s->saved[6];
	s->regs[12] = s->saved[3];
	s->regs[13] = s->saved[2];
	s->regs[14] = s->saved[1];
	s->regs[15] = s->saved[0];
	s->begin_sp = s->sp;
	s->all_known = s->exact = 1;
	s->proved = !(s->sp & 7);
	s->n_words = s->span = 0;
	s->n = s->frame_pointers = s->unproved = 0;
	s->max = max;
	s->why = UNWIND_DEEP;
	s->first = process->first;
	s->n_mappings = process->n;
	s->generation = process->generation;
	s->hotspot = process->hotspot;
	s->made_start = process->made_start;
	s->made_end = process->made_end;
	s->m.start = s->m.end = 0;
	s->gap_start = s->gap_end = 0;
	s->window_at = NOWHERE;
}

/*
 * The user stack of `task`, which is the current one or the one that has just been switched away
 * from: its memory is there. NULL: it is to be copied instead, as there is no table or what there
 * is does not do.
 */
inline_ struct unwind_state *unwind(struct task_struct *task, __u32 tgid, __u32 max)
{
	__u32 zero = 0, why;
	struct unwind_process *process;
	struct unwind_state *s;

	if (!constants.unwind || (task->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER)))
		return 0;
	process = bpf_map_lookup_elem(&uw_processes, &tgid);
	if (!process || !process->n)
		return 0;
	s = bpf_map_lookup_elem(&uw_states, &zero);
	if (!s)
		return 0;
	if (bpf_probe_read_kernel(s->saved, sizeof(s->saved),
				  (void *)bpf_task_pt_regs((void *)task)) < 0)
		return 0;
	if (s->saved[17] != CODE_64_CS)
		return 0;
	unwind_begin(s, process, max);
	for (int i = 0; i < 128; i++)
		if (unwind_step(0))
			break;
	why = s->why;
	if (why >= UNWIND_WHYS)
		return 0;
	__sync_fetch_and_add(&process->whys[why], 1);
	if (s->frame_pointers)
		__sync_fetch_and_add(&process->frame_pointers, s->frame_pointers);
	return is_whole(why) ? s : 0;
}
