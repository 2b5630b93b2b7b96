// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/dwarf/scope.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "decode/dwarf/dwarf_internal.h"

#define MAX_DEPTH 1024u	 /* of entries in each other */
#define MAX_ORIGINS 8u	 /* from an inlined call to what is known of its function */
#define MAX_OVERLAP 16u	 /* units that claim the same address */

/* ---- which unit */

struct dwarf_place {
	struct dwarf_range at;
	uint32_t unit;
};

static int compare_places(const void *a, const void *b)
{
	const struct dwarf_place *x = a, *y = b;

	if (x->at.start != y->at.start)
		return x->at.start < y->at.start ? -1 : 1;
	return x->unit < y->unit ? -1 : x->unit > y->unit;
}

static void find_places(struct dwarf *d)
{
	size_t room = 0;

	d->places = malloc(sizeof(*d->places));
	for (size_t i = 0; i < d->n_units && d->places; i++) {
		struct dwarf_unit *u = &d->units[i];
		struct dwarf_walk walk = {.begun = false};
		struct dwarf_entry e;
		struct dwarf_range at;
		uint64_t next;

		if (!dwarf_unit_open(u) || !dwarf_entry_read(u, u->die, &e, &next))
			continue;
		while (dwarf_range_next(u, &e, &walk, &at)) {
			if (d->n_places == room) {
				const size_t more = room ? room : 64;
				struct dwarf_place *v;

				if (!dwarf_take(d, more * sizeof(*v)) ||
				    !(v = reallocarray(d->places, room + more, sizeof(*v)))) {
					d->stats.cut++;
					break;
				}
				d->places = v;
				room += more;
			}
			d->places[d->n_places++] =
				(struct dwarf_place){.at = at, .unit = (uint32_t)i};
		}
		dwarf_unit_close(u);
	}
	if (d->n_places)
		qsort(d->places, d->n_places, sizeof(*d->places), compare_places);
}

struct dwarf_unit *dwarf_unit_of(struct dwarf *d, uint64_t addr)
{
	size_t low = 0, high;

	if (!d->places)
		find_places(d);
	high = d->n_places;
	while (low < high) {
		const size_t mid = low + (high - low) / 2;

		if (d->places[mid].at.start <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	for (size_t i = low; i > 0 && low - i < MAX_OVERLAP; i--)
		if (addr < d->places[i - 1].at.end)
			return &d->units[d->places[i - 1].unit];
	return NULL;
}

/* ---- functions and inlined calls of a unit */

#define SCOPES_PIECE 256u
/* Scopes do not move once they are there. */
struct piece {
	struct piece *next;
	uint32_t n;
	struct dwarf_scope v[SCOPES_PIECE];
};

struct cover {
	struct dwarf_range at;
	const struct dwarf_scope *scope;
};

struct part {
	uint64_t start;
	const struct dwarf_scope *scope; /* NULL: none, from here to the next part */
};

struct dwarf_scopes {
	struct piece *pieces;
	struct part *parts; /* in order; the last has no scope */
	size_t n_parts;
};

struct dwarf_scopes *dwarf_scopes_free(struct dwarf_scopes *s)
{
	if (!s)
		return NULL;
	while (s->pieces) {
		struct piece *p = s->pieces;

		s->pieces = p->next;
		free(p);
	}
	free(s->parts);
	free(s);
	return NULL;
}

struct reading {
	struct dwarf_unit *u;
	struct dwarf_scopes *scopes;
	struct cover *covers;
	size_t n, room;
	/* of the entries whose children are being read */
	const struct dwarf_scope *around[MAX_DEPTH];
	uint32_t depth;
};

static struct dwarf_scope *add_scope(struct reading *rd)
{
	struct piece *p = rd->scopes->pieces;

	if (!p || p->n == SCOPES_PIECE) {
		if (!dwarf_take(rd->u->dwarf, sizeof(*p)))
			return NULL;
		p = calloc(1, sizeof(*p));
		if (!p)
			return NULL;
		p->next = rd->scopes->pieces;
		rd->scopes->pieces = p;
	}
	return &p->v[p->n++];
}

static int add_cover(struct reading *rd, const struct dwarf_range *at,
		     const struct dwarf_scope *scope)
{
	if (rd->n == rd->room) {
		const size_t more = rd->room ? rd->room : 256;
		struct cover *v;

		if (!dwarf_take(rd->u->dwarf, more * sizeof(*v)))
			return -EFBIG;
		v = reallocarray(rd->covers, rd->room + more, sizeof(*v));
		if (!v)
			return -ENOMEM;
		rd->covers = v;
		rd->room += more;
	}
	rd->covers[rd->n++] = (struct cover){.at = *at, .scope = scope};
	return 0;
}

static uint64_t entry_of(const struct dwarf_entry *e, const struct dwarf_range *first)
{
	if (e->has_entry)
		return e->entry_is_offset ? (e->has_low ? e->low : first->start) + e->entry_pc
					  : e->entry_pc;
	return first->start;
}

/* A function or an inlined call, if there is code of it; then *scope becomes it. */
static int take_entry(struct reading *rd, uint64_t off, const struct dwarf_entry *e,
		      const struct dwarf_scope **scope)
{
	const bool inlined = e->tag == DW_TAG_inlined_subroutine;
	struct dwarf_walk walk = {.begun = false};
	struct dwarf_scope *s = NULL;
	struct dwarf_range at;
	int r = 0;

	if (!inlined && e->tag != DW_TAG_subprogram)
		return 0;
	/* a function within another's text is none of its calls */
	if (!inlined)
		*scope = NULL;
	if (inlined && (!*scope || (*scope)->depth >= DWARF_MAX_INLINED))
		return 0;
	while (r == 0 && dwarf_range_next(rd->u, e, &walk, &at)) {
		if (!s) {
			s = add_scope(rd);
			if (!s)
				return -EFBIG;
			*s = (struct dwarf_scope){.outer = *scope,
				.unit = rd->u,
				.off = off,
				.entry = entry_of(e, &at),
				.call_file = e->call_file,
				.call_line = e->call_line,
				.depth = *scope ? (*scope)->depth + 1 : 0};
		}
		r = add_cover(rd, &at, s);
	}
	if (s)
		*scope = s;
	return r;
}

static int read_entries(struct reading *rd)
{
	struct dwarf_unit *u = rd->u;
	uint64_t off = u->die;
	int r = 0;

	while (off < u->end && r == 0) {
		const struct dwarf_scope *scope = rd->depth ? rd->around[rd->depth - 1] : NULL;
		struct dwarf_entry e;
		uint64_t next;

		if (!dwarf_entry_read(u, off, &e, &next))
			return -EBADMSG;
		if (e.tag == 0) {
			if (rd->depth == 0)
				break;
			rd->depth--;
		} else {
			r = take_entry(rd, off, &e, &scope);
			if (e.children && rd->depth == MAX_DEPTH)
				return -EBADMSG;
			if (e.children)
				rd->around[rd->depth++] = scope;
			else if (rd->depth == 0)
				break;
		}
		off = next;
	}
	return r;
}

/* Where they begin at the same address, the outermost first. */
static int compare_covers(const void *a, const void *b)
{
	const struct cover *x = a, *y = b;

	if (x->at.start != y->at.start)
		return x->at.start < y->at.start ? -1 : 1;
	if (x->scope->depth != y->scope->depth)
		return x->scope->depth < y->scope->depth ? -1 : 1;
	return x->at.end > y->at.end ? -1 : x->at.end < y->at.end;
}

static void add_part(struct dwarf_scopes *s, uint64_t start, const struct dwarf_scope *scope)
{
	if (s->n_parts && s->parts[s->n_parts - 1].start == start)
		s->n_parts--;
	if (s->n_parts && s->parts[s->n_parts - 1].scope == scope)
		return;
	s->parts[s->n_parts++] = (struct part){.start = start, .scope = scope};
}

/*
 * From what covers what to which is the innermost where: each begins at most one part, and ends at
 * most one. Of what is open (a stack in the array itself, before what is still to come) the last
 * that began counts.
 */
static int make_parts(struct reading *rd)
{
	struct dwarf_scopes *s = rd->scopes;
	struct cover *open = rd->covers;
	size_t n_open = 0;

	if (rd->n == 0)
		return 0;
	if (!dwarf_take(rd->u->dwarf, (2 * rd->n + 1) * sizeof(*s->parts)))
		return -EFBIG;
	s->parts = malloc((2 * rd->n + 1) * sizeof(*s->parts));
	if (!s->parts)
		return -ENOMEM;
	qsort(rd->covers, rd->n, sizeof(*rd->covers), compare_covers);
	for (size_t i = 0; i <= rd->n; i++) {
		const struct cover c = i < rd->n ? rd->covers[i] : (struct cover){.scope = NULL};
		uint64_t end;

		while (n_open && (i == rd->n || open[n_open - 1].at.end <= c.at.start)) {
			end = open[--n_open].at.end;
			/* what is around it may have ended before */
			while (n_open && open[n_open - 1].at.end <= end)
				n_open--;
			add_part(s, end, n_open ? open[n_open - 1].scope : NULL);
		}
		if (i == rd->n)
			break;
		add_part(s, c.at.start, c.scope);
		open[n_open++] = c;
	}
	return 0;
}

static int scopes_new(struct dwarf_unit *u, struct dwarf_scopes **ret)
{
	struct reading *rd = calloc(1, sizeof(*rd));
	int r, parted;

	if (!rd)
		return -ENOMEM;
	rd->u = u;
	rd->scopes = calloc(1, sizeof(*rd->scopes));
	r = rd->scopes ? read_entries(rd) : -ENOMEM;
	/* what was read before something that cannot be is good */
	parted = rd->scopes ? make_parts(rd) : 0;
	*ret = rd->scopes;
	budget_give(u->dwarf->budget, rd->room * sizeof(*rd->covers));
	u->dwarf->taken -= rd->room * sizeof(*rd->covers);
	free(rd->covers);
	free(rd);
	return r ? r : parted;
}

static const struct dwarf_scopes *scopes_of(struct dwarf_unit *u)
{
	int r;

	if (u->scopes_tried || !dwarf_unit_open(u))
		return u->scopes;
	u->scopes_tried = true;
	r = scopes_new(u, &u->scopes);
	if (r == -EBADMSG)
		u->dwarf->stats.broken++;
	else if (r < 0)
		u->dwarf->stats.cut++;
	return u->scopes;
}

const struct dwarf_scope *dwarf_scope_at(struct dwarf *d, uint64_t addr, uint64_t *ret_end)
{
	struct dwarf_unit *u = dwarf_unit_of(d, addr);
	const struct dwarf_scopes *s = u ? scopes_of(u) : NULL;
	size_t low = 0, high = s ? s->n_parts : 0;

	/* a straight line of code does not go on in another unit */
	*ret_end = UINT64_MAX;
	while (low < high) {
		const size_t mid = low + (high - low) / 2;

		if (s->parts[mid].start <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	if (s && low < s->n_parts)
		*ret_end = s->parts[low].start;
	return low ? s->parts[low - 1].scope : NULL;
}

/* ---- names */

void dwarf_scope_name(const struct dwarf_scope *s, struct dwarf_name *ret)
{
	struct dwarf_unit *u = s->unit;
	uint64_t off = s->off;

	*ret = (struct dwarf_name){.name = NULL};
	for (unsigned int i = 0; u && i < MAX_ORIGINS; i++) {
		struct dwarf_entry e;
		uint64_t next;

		if (!dwarf_unit_open(u) || !dwarf_entry_read(u, off, &e, &next))
			return;
		if (!ret->name)
			ret->name = e.name;
		if (!ret->linkage_name)
			ret->linkage_name = e.linkage_name;
		/*
		 * a definition's own place, not that of the declaration in its class; in the same
		 * file it has the line only
		 */
		if (!ret->line)
			ret->line = e.decl_line;
		if (!ret->unit && e.has_decl_file) {
			ret->unit = u;
			ret->file = e.decl_file;
		}
		if (!e.origin.dwarf)
			return;
		off = e.origin.off;
		u = dwarf_unit_at(e.origin.dwarf, off);
	}
}

uint64_t dwarf_inlined_calls(struct dwarf_unit *u,
			     bool (*is)(const void *arg, const struct dwarf_name *name),
			     const void *arg)
{
	uint64_t off = u->die, next, n = 0;
	struct dwarf_entry e;

	for (; off < u->end && dwarf_entry_read(u, off, &e, &next); off = next) {
		const struct dwarf_scope s = {.unit = u, .off = off};
		struct dwarf_name name;

		/* Of one without code nothing was left. */
		if (e.tag != DW_TAG_inlined_subroutine || (!e.has_low && !e.has_ranges))
			continue;
		dwarf_scope_name(&s, &name);
		n += is(arg, &name);
	}
	return n;
}
