// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/stack/walk.h"

#include <linux/perf_event.h>
#include <stdio.h>

#include "common/base/address.h"
#include "common/control/json.h"
#include "decode/object/cfi.h"

/* kernel.perf_event_max_stack's default: a chain this long was ended by the kernel, not by the
 * stack. */
#define KERNEL_MAX_STACK 127u
/* Marks in a call chain are the last page of addresses. */
#define IS_MARK(addr) ((addr) >= (uint64_t)-4095)
#define IS_KERNEL(addr) ((addr) >= KERNEL_HALF)

struct chain {
	const uint8_t *p;
	uint64_t n;
	uint64_t first_kernel, n_kernel; /* they are together */
	uint64_t first; /* index of the first user address */
	/* by tables, where the kernel was not to follow frame pointers: no caller is passed over */
	bool unwound;
	uint64_t n_user;
};

/*
 * Parts of a chain follow their marks; old recordings have none, and the address decides. In
 * the user's part an address of the kernel's half is a stack word that is no frame.
 */
static struct chain chain_split(const struct perfevent_sample *s, bool unwound)
{
	struct chain c = {.p = s->chain, .n = s->n_chain, .first = s->n_chain, .unwound = unwound};
	enum { UNTOLD, KERNEL, USER, NEITHER } part = UNTOLD;

	for (uint64_t i = 0; i < s->n_chain; i++) {
		uint64_t addr = load_u64(s->chain + i * 8);

		if (IS_MARK(addr)) {
			part = addr == PERF_CONTEXT_KERNEL || addr == PERF_CONTEXT_GUEST_KERNEL
				       ? KERNEL
			       : addr == PERF_CONTEXT_USER ? USER
							   : NEITHER;
			continue;
		}
		if (part == KERNEL || (part == UNTOLD && IS_KERNEL(addr))) {
			if (c.n_kernel == 0)
				c.first_kernel = i;
			c.n_kernel++;
		} else if (part != NEITHER) {
			if (c.n_user == 0)
				c.first = i;
			c.n_user++;
		}
	}
	return c;
}

/*
 * A chain does not say which of its addresses is the way back from a signal's handler, which nobody
 * calls.
 */
static struct stack_place place_of(struct stackwalk *w, struct code *code, uint64_t addr,
				   bool innermost)
{
	const struct cfi_row *row = innermost ? NULL
					      : unwind_row(w->resolver, code, w->budget, addr - 1);

	return (struct stack_place){.ip = addr,
				    .exact = innermost || (row && row->known && row->signal)};
}

/* Where the chain has passed over somebody the next place is after one that is not known. */
static void add_place(struct stackwalk *w, struct code *code, struct stack_place place,
		      bool unwound)
{
	const struct stack_place *inner = w->n_places > 1 ? &w->places[w->n_places - 1] : NULL;

	if (!w->want_places)
		return;
	if (!unwound && inner && inner->ip && !place.exact && place.ip &&
	    missing_caller_between(w->resolver, code, inner->exact ? inner->ip : inner->ip - 1,
				   place.ip) &&
	    w->n_places < ARRAY_SIZE(w->places))
		w->places[w->n_places++] = (struct stack_place){.ip = 0};
	if (w->n_places < ARRAY_SIZE(w->places))
		w->places[w->n_places++] = place;
	else
		w->places_full = true;
}

/*
 * What a signal interrupted did not call, nor does anybody call the way back from a handler. Chains
 * by frame pointers pass over what was interrupted.
 */
static enum resolve_how how_of(struct stackwalk *w, struct code *code, const struct chain *c,
			       uint64_t addr, uint32_t n)
{
	const bool interrupted = w->after_signal;
	const struct cfi_row *row;

	if (!c->unwound)
		return n == 0 ? RESOLVE_EXACT : RESOLVE_RETURN;
	row = unwind_row(w->resolver, code, w->budget, n == 0 || interrupted ? addr : addr - 1);
	/* In the system call with which the way back ends it is behind that. */
	if (n == 0 && (!row || !row->known))
		row = unwind_row(w->resolver, code, w->budget, addr - 1);
	w->after_signal = row && row->known && (row->signal || row->injected);
	return n == 0 || interrupted || (w->after_signal && row->signal) ? RESOLVE_EXACT
									 : RESOLVE_RETURN;
}

enum beyond { BEYOND_CALLER, BEYOND_INTERRUPTED, BEYOND_NOBODY };

/*
 * What is beyond a caller in a chain by frame pointers. Behind the way back from a handler the
 * chain has the caller of what the signal interrupted. Beyond the first function of a thread or
 * coroutine it may go on by what its creator left in the frame pointer.
 */
static enum beyond beyond(struct stackwalk *w, struct code *code, uint64_t addr, uint32_t frame)
{
	const struct cfi_row *row;

	if (resolver_begins_stack(w->resolver, frame))
		return BEYOND_NOBODY;
	row = unwind_row(w->resolver, code, w->budget, addr - 1);
	if (!row || !row->known || row->elsewhere)
		return BEYOND_CALLER;
	if (row->signal)
		return BEYOND_INTERRUPTED;
	return row->regs[CFI_REG_RA].kind == CFI_UNDEFINED ? BEYOND_NOBODY : BEYOND_CALLER;
}

static uint32_t chain_frames(
	struct stackwalk *w, struct code *code, const struct chain *c, bool *ret_whole)
{
	/* where the frame before is, if somebody may be missing outside of it */
	uint64_t inner = 0;
	uint32_t n = 0;

	*ret_whole = false;
	w->after_signal = false;
	for (uint64_t i = c->first; i < c->n && n < UNWIND_MAX_FRAMES; i++) {
		uint64_t addr = load_u64(c->p + i * 8), rest = 0;
		uint32_t frame = 0, inlined = 0, missing[2], n_missing;
		enum resolve_how how = RESOLVE_EXACT;

		if (IS_MARK(addr))
			break;
		/* The innermost user address is where it runs, or where it entered the kernel. */
		if (!IS_KERNEL(addr) && (addr || n == 0)) {
			how = how_of(w, code, c, addr, n);
			frame = resolver_frame(w->resolver, code, addr, how);
		}
		if (frame) {
			inlined = resolver_inlined(w->resolver);
			n_missing = inner ? missing_caller_frames(w->resolver, code, w->budget,
								  inner, n == 1, w->frames[n - 1],
								  addr, &w->missing_callers,
								  missing)
					  : 0;
			if (n_missing)
				add_place(w, code, (struct stack_place){.ip = 0}, c->unwound);
			for (uint32_t k = 0; k < n_missing; k++) {
				w->inlined[n] = 0;
				w->frames[n++] = missing[k];
			}
			inner = c->unwound ? 0 : how == RESOLVE_EXACT ? addr : addr - 1;
			if (w->want_places)
				add_place(w, code, place_of(w, code, addr, how == RESOLVE_EXACT),
					  c->unwound);
			w->inlined[n] = inlined;
			w->frames[n++] = frame;
			switch (n > 1 && !c->unwound ? beyond(w, code, addr, frame)
						     : BEYOND_CALLER) {
			case BEYOND_CALLER:
				break;
			case BEYOND_INTERRUPTED:
				inner = 0;
				w->missing_callers.gaps++;
				add_place(w, code, (struct stack_place){.ip = 0}, c->unwound);
				w->inlined[n] = 0;
				w->frames[n++] = resolver_gap(w->resolver);
				break;
			case BEYOND_NOBODY:
				*ret_whole = true;
				return n;
			}
			continue;
		}
		for (uint64_t k = i; k < c->n; k++)
			rest |= load_u64(c->p + k * 8);
		if (rest) { /* a chain that ends in zeros ended by itself */
			w->cut++;
			w->frames_cut += c->n - i;
			return n;
		}
		break;
	}
	if (c->n_user >= KERNEL_MAX_STACK)
		w->limited++;
	/* Frame pointers lead past callers that have none, and end at the first word that is no
	 * frame. */
	*ret_whole = n > 0 && resolver_is_entry(w->resolver, w->frames[n - 1]);
	return n;
}

/*
 * On top of the stack of who leaves a CPU, or wakes somebody, are the scheduler and our own program
 * that it calls. Where the thread waits is what has called these, as for wchan of proc(5).
 */
static uint64_t skip_scheduler(const struct stackwalk *w, const uint8_t *addrs, uint64_t n)
{
	uint64_t i = 0;

	while (i < n && !resolver_is_scheduler(w->resolver, load_u64(addrs + i * 8) - 1))
		i++;
	if (i == n)
		return 0;
	while (i < n && resolver_is_scheduler(w->resolver, load_u64(addrs + i * 8) - 1))
		i++;
	return i;
}

/* What the kernel did for it, as far as names are known: what has none is "[kernel]", once. */
static uint32_t push_kernel(struct stackwalk *w, const struct chain *c, bool moment, uint32_t stack)
{
	const uint8_t *addrs = c->p + c->first_kernel * 8;
	const uint64_t first = moment ? 0 : skip_scheduler(w, addrs, c->n_kernel);
	const uint32_t unnamed = resolver_kernel(w->resolver);
	uint32_t last = 0;

	for (uint64_t i = c->n_kernel; i > first; i--) {
		const enum resolve_how how = i == 1 ? RESOLVE_EXACT : RESOLVE_RETURN;
		uint32_t frame =
			resolver_kernel_function(w->resolver, load_u64(addrs + (i - 1) * 8), how);

		if (!frame && last == unnamed)
			continue;
		last = frame ? frame : unnamed;
		stack = stacktab_push(w->st, stack, last);
	}
	return stack;
}

/* A function, and what is inlined in it where it is. */
static uint32_t push_frame(struct stackwalk *w, uint32_t stack, uint32_t i)
{
	uint32_t n;
	const uint32_t *inlines = resolver_inlines(w->resolver, w->inlined[i], &n);

	stack = stacktab_push(w->st, stack, w->frames[i]);
	for (uint32_t k = 0; k < n; k++)
		stack = stacktab_push(w->st, stack, inlines[k]);
	return stack;
}

/* All native frames, with Python's functions among them. */
static uint32_t push_frames(struct stackwalk *w, struct code *code, const struct perfevent *ev,
			    uint32_t n, bool whole, uint32_t stack)
{
	struct python_part part;
	uint32_t calls = 0;

	if (!w->python || !python_part_of(ev, &part)) {
		while (n > 0)
			stack = push_frame(w, stack, --n);
		return stack;
	}
	for (uint32_t i = 0; i < n; i++)
		calls += resolver_is_interpreter(w->resolver, w->frames[i]);
	python_place(w->python, &part, calls,
		     n && resolver_is_interpreter(w->resolver, w->frames[0]), whole);
	code->found += part.n ? calls : 0;
	stack = python_push_outer(w->python, &part, calls, stack);
	while (n > 0) {
		stack = push_frame(w, stack, --n);
		if (resolver_is_interpreter(w->resolver, w->frames[n]))
			stack = python_push_call(w->python, &part, --calls, stack);
	}
	return stack;
}

uint32_t stackwalk_sample(
	struct stackwalk *w, struct code *code, const struct perfevent *ev, bool with_kernel)
{
	const struct perfevent_sample *s = &ev->sample;
	struct chain c = chain_split(s, ev->attr->exclude_callchain_user);
	unsigned mode = ev->misc & PERF_RECORD_MISC_CPUMODE_MASK;
	bool kernel = c.n_kernel || mode == PERF_RECORD_MISC_KERNEL ||
		      mode == PERF_RECORD_MISC_GUEST_KERNEL;
	bool whole = true;
	uint32_t n = 0, stack = STACKTAB_ROOT;
	const uint64_t cut = w->cut;

	w->stacks++;
	w->kernel_unnamed += c.n_kernel && !resolver_has_kallsyms(w->resolver);
	w->n_places = 0;
	w->places_full = false;
	/*
	 * Where the stack's page was not there yet (its first touch), nothing was copied: the
	 * registers still say where.
	 */
	if (s->regs_abi && (s->stack_size || (s->stack && !c.n_user))) {
		enum unwind_end end = unwind_sample(w->resolver, code, s, w->budget, w->frames,
						    w->inlined, w->want_places ? w->places : NULL,
						    &n);

		w->unwound[end]++;
		w->n_places = w->want_places ? n : 0;
		whole = end == UNWIND_DONE;
		if (end == UNWIND_WRONG)
			w->cut++;
	}
	if (n == 0 && c.n_user)
		n = chain_frames(w, code, &c, &whole);
	w->places_cut = !whole || w->places_full;
	if (n == 0 && !kernel && s->ip && !IS_KERNEL(s->ip)) {
		/* where nobody asked for a chain, only where it ran: flat, but all there is */
		w->frames[n] = resolver_frame(w->resolver, code, s->ip, RESOLVE_EXACT);
		w->inlined[n++] = resolver_inlined(w->resolver);
		whole = !s->has_chain && !s->regs_abi;
	}
	if (n == 0 && !kernel) {
		w->without++;
		return STACKTAB_ROOT;
	}
	if (n) {
		code->generated += resolver_is_generated(w->resolver, w->frames[0]);
		code->generated_ends += !whole &&
					resolver_is_generated(w->resolver, w->frames[n - 1]);
	}
	if (!whole)
		stack = stacktab_push(w->st, stack, resolver_cut(w->resolver));
	stack = push_frames(w, code, ev, n, w->cut == cut, stack);
	if (c.n_kernel && resolver_has_kallsyms(w->resolver))
		stack = push_kernel(w, &c, with_kernel, stack);
	else if (kernel && with_kernel)
		stack = stacktab_push(w->st, stack, resolver_kernel(w->resolver));
	return stack;
}

void stackwalk_report(const struct stackwalk *w, struct json_object *losses)
{
	char key[64];

	if (w->without)
		json_add_uint(losses, "samples_without_stack", w->without);
	if (w->cut)
		json_add_uint(losses, "stacks_cut_at_wrong_frame", w->cut);
	if (w->frames_cut)
		json_add_uint(losses, "frames_cut", w->frames_cut);
	if (w->limited)
		json_add_uint(losses, "stacks_at_kernel_limit", w->limited);
	if (w->missing_callers.gaps)
		json_add_uint(losses, "callers_not_recorded", w->missing_callers.gaps);
	for (unsigned i = 0; i < UNWIND_N_ENDS; i++) {
		if (i == UNWIND_DONE || !w->unwound[i])
			continue;
		(void)snprintf(key, sizeof(key), "unwind_%s", unwind_end_to_string(i));
		json_add_uint(losses, key, w->unwound[i]);
	}
}
