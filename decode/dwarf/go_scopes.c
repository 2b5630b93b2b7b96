// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/dwarf/go_scopes.h"

#include <errno.h>
#include <stdlib.h>

struct part {
	uint32_t start; /* from the function's begin */
	uint32_t call;	/* the index of its scope; 0: the function itself */
};

struct go_scopes {
	struct budget *budget; /* borrowed */
	uint64_t start, end;
	struct part *parts; /* owned, by their begins */
	uint32_t n_parts, n_scopes, broken;
	struct go_scope *scopes; /* owned: the function, and the calls in it */
};

static size_t bytes_taken(const struct go_scopes *s)
{
	return sizeof(*s) + s->n_parts * sizeof(*s->parts) + s->n_scopes * sizeof(*s->scopes);
}

/* How many parts and calls the table tells of, and one part behind its end. */
static void count(const struct gopclntab_inlines *in, struct go_scopes *s)
{
	struct gopclntab_steps steps;

	s->n_scopes = 1;
	if (!gopclntab_inlines_begin(in, &steps))
		return;
	while (gopclntab_inlines_next(&steps)) {
		const uint32_t call = steps.value < 0 ? 0 : (uint32_t)steps.value + 1;

		s->n_parts++;
		if (call <= GO_SCOPES_MAX_CALLS && call >= s->n_scopes)
			s->n_scopes = call + 1;
	}
	s->n_parts++;
}

static void read_parts(const struct gopclntab_inlines *in, struct go_scopes *s)
{
	struct gopclntab_steps steps;
	uint32_t n = 0;

	if (!s->n_parts || !gopclntab_inlines_begin(in, &steps))
		return;
	while (n < s->n_parts - 1 && gopclntab_inlines_next(&steps)) {
		const uint32_t call = steps.value < 0 ? 0 : (uint32_t)steps.value + 1;

		s->parts[n++] = (struct part){.start = (uint32_t)steps.start,
					      .call = call < s->n_scopes ? call : 0};
		if (call >= s->n_scopes)
			s->broken++;
	}
	s->parts[n] = (struct part){.start = (uint32_t)steps.end};
}

static const struct part *part_at(const struct go_scopes *s, uint64_t offset)
{
	uint32_t low = 0, high = s->n_parts;

	while (low < high) {
		const uint32_t mid = low + (high - low) / 2;

		if (s->parts[mid].start <= offset)
			low = mid + 1;
		else
			high = mid;
	}
	return low ? &s->parts[low - 1] : NULL;
}

/*
 * The compiler numbers a call after that which it is in. Whatever is in itself otherwise is broken.
 */
static void read_calls(const struct gopclntab_inlines *in, struct go_scopes *s)
{
	s->scopes[0].scope = (struct dwarf_scope){.entry = s->start};
	for (uint32_t i = 1; i < s->n_scopes; i++) {
		struct go_scope *g = &s->scopes[i];
		struct gopclntab_call call;
		const struct part *p;
		struct go_scope *outer;

		p = gopclntab_inlined_call(in, i - 1, &call) ? part_at(s, call.called_at) : NULL;
		outer = p && p->call < i ? &s->scopes[p->call] : NULL;
		if (!outer || (p->call && !outer->name) ||
		    outer->scope.depth == DWARF_MAX_INLINED) {
			s->broken++;
			continue;
		}
		g->name = call.name;
		g->line = call.line <= INT32_MAX ? call.line : 0;
		g->called_at = s->start + call.called_at;
		g->scope = (struct dwarf_scope){.outer = &outer->scope,
						.depth = outer->scope.depth + 1};
		if (!outer->at)
			outer->at = g->called_at;
	}
}

/* A call begins with the first instruction of its own or of what is in it. */
static void find_entries(struct go_scopes *s)
{
	for (uint32_t i = 0; i < s->n_parts; i++) {
		const uint64_t vaddr = s->start + s->parts[i].start;
		struct go_scope *g = &s->scopes[s->parts[i].call];

		if (!s->parts[i].call || !g->name)
			continue;
		g->at = vaddr;
		while (g->name && !g->scope.entry) {
			g->scope.entry = vaddr;
			g = (struct go_scope *)(void *)(uintptr_t)g->scope.outer;
		}
	}
}

int go_scopes_new(const struct gopclntab_inlines *in, struct budget *budget, struct go_scopes **ret)
{
	_cleanup_(go_scopes_freep) struct go_scopes *s = calloc(1, sizeof(*s));
	size_t more;

	if (!s)
		return -ENOMEM;
	s->start = in->start;
	s->end = in->end;
	count(in, s);
	more = bytes_taken(s);
	if (!budget_take(budget, more))
		return -ENOMEM;
	s->budget = budget;
	s->parts = calloc(s->n_parts ? s->n_parts : 1, sizeof(*s->parts));
	s->scopes = calloc(s->n_scopes, sizeof(*s->scopes));
	if (!s->parts || !s->scopes)
		return -ENOMEM;
	read_parts(in, s);
	read_calls(in, s);
	find_entries(s);
	*ret = take_ptr(s);
	return 0;
}

struct go_scopes *go_scopes_free(struct go_scopes *s)
{
	if (!s)
		return NULL;
	if (s->budget)
		budget_give(s->budget, bytes_taken(s));
	free(s->parts);
	free(s->scopes);
	free(s);
	return NULL;
}

uint32_t go_scopes_broken(const struct go_scopes *s)
{
	return s->broken;
}

const struct dwarf_scope *go_scopes_at(const struct go_scopes *s, uint64_t vaddr, uint64_t *ret_end)
{
	const struct part *p = part_at(s, vaddr - s->start), *next = p ? p + 1 : s->parts;
	const struct go_scope *g = p ? &s->scopes[p->call] : NULL;

	/* The parts of a broken table may go on beyond the function. */
	*ret_end = s->end;
	if (next < s->parts + s->n_parts && s->start + next->start < s->end)
		*ret_end = s->start + next->start;
	return g && g->name ? &g->scope : NULL;
}
