// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/dwarf/inlines.h"

/* A function is none. */
static const struct dwarf_scope *outer_of(const struct dwarf_scope *s)
{
	return s->outer && s->outer->outer ? s->outer : NULL;
}

static uint32_t depth_of(const struct dwarf_scope *s)
{
	return s ? s->depth : 0;
}

/* The innermost that both are in. */
static const struct dwarf_scope *common(const struct dwarf_scope *a, const struct dwarf_scope *b)
{
	while (a != b && (a || b)) {
		if (depth_of(a) >= depth_of(b))
			a = outer_of(a);
		else
			b = outer_of(b);
	}
	return a;
}

/* The call in `of` that `s` is, or is in. */
static const struct dwarf_scope *next_inside(const struct dwarf_scope *s,
					     const struct dwarf_scope *of)
{
	while (depth_of(s) > depth_of(of) + 1)
		s = outer_of(s);
	return s;
}

static const struct dwarf_scope *change(const struct inlines_ops *ops, void *arg,
					const struct dwarf_scope *now, const struct dwarf_scope *to,
					uint64_t ip)
{
	const struct dwarf_scope *both = common(now, to);
	const struct dwarf_scope *path[DWARF_MAX_INLINED];
	uint32_t n = 0;

	if (depth_of(now) > depth_of(both))
		ops->end(arg, depth_of(now) - depth_of(both), ip);
	for (const struct dwarf_scope *s = to; s != both && n < DWARF_MAX_INLINED; s = outer_of(s))
		path[n++] = s;
	while (n)
		ops->begin(arg, path[--n], ip);
	return to;
}

/*
 * Where the line leaves what `s` is around, which it is in at `ip`; after `last` where it does not.
 */
static uint64_t leaves(const struct inlines_ops *ops, void *arg, const struct dwarf_scope *s,
		       uint64_t ip, uint64_t last)
{
	for (unsigned int i = 0; i < INLINES_LOOK_AHEAD && ip <= last; i++) {
		uint64_t end;

		if (common(ops->at(arg, ip, &end), s) != s)
			return ip;
		if (end <= ip)
			break;
		ip = end;
	}
	return UINT64_MAX;
}

static bool begins_between(const struct inlines_ops *ops, void *arg, const struct dwarf_scope *s,
			   uint64_t ip, uint64_t end)
{
	const uint64_t entry = ops->entry(arg, s, ip);

	return entry >= ip && entry < end;
}

/*
 * Whether what is at `ip` is but mixed into the call that `now` is in (in `both`, which is around
 * it and around what is there): this goes on further along the line. In between there may be code
 * around it, pieces of calls that have not begun, and one whose begin was moved up, for it goes on
 * after that: *ret_late, which has begun when the line comes to it again.
 */
static bool goes_on(const struct inlines_ops *ops, void *arg, const struct dwarf_scope *now,
		    const struct dwarf_scope *both, uint64_t ip, uint64_t last,
		    const struct dwarf_scope **ret_late)
{
	const struct dwarf_scope *left = next_inside(now, both), *other = NULL;
	bool again = false;

	for (unsigned int i = 0; i < INLINES_LOOK_AHEAD && ip <= last; i++) {
		uint64_t end;
		const struct dwarf_scope *s = ops->at(arg, ip, &end);
		const struct dwarf_scope *around = common(s, both);

		if (common(s, left) == left) {
			if (begins_between(ops, arg, left, ip, leaves(ops, arg, left, ip, last)))
				return false;
			if (!other)
				return true;
			again = true;
		} else if (other && common(s, other) == other) {
			if (again) {
				*ret_late = other;
				return true;
			}
		} else if (around != s) {
			const struct dwarf_scope *call = next_inside(s, around);

			end = leaves(ops, arg, call, ip, last);
			if (end > last)
				return false;
			if (begins_between(ops, arg, call, ip, end)) {
				if (other)
					return false;
				other = call;
			}
		}
		if (end <= ip)
			return false;
		ip = end;
	}
	return false;
}

/*
 * What of `to` is really there: a call that is not open (`both` is), of which the line passes but a
 * piece without its first instruction, has not begun. Its code was moved up there.
 */
static const struct dwarf_scope *begun(const struct inlines_ops *ops, void *arg,
				       const struct dwarf_scope *both, const struct dwarf_scope *to,
				       uint64_t ip, uint64_t last, const struct dwarf_scope *late)
{
	while (both != to) {
		const struct dwarf_scope *s = next_inside(to, both);
		const uint64_t end = leaves(ops, arg, s, ip, last);

		if (end <= last && s != late && !begins_between(ops, arg, s, ip, end))
			break;
		both = s;
	}
	return both;
}

static const struct dwarf_scope *go(const struct inlines_ops *ops, void *arg,
				    const struct dwarf_scope *now, uint64_t ip, uint64_t last,
				    bool straight, const struct dwarf_scope **late)
{
	const struct dwarf_scope *to, *both;
	uint64_t end;

	to = ops->at(arg, ip, &end);
	/* From within a call to its own first instruction is a loop of it. */
	if (to == now)
		return now;
	both = common(now, to);
	/* out of a call, perhaps into another one */
	if (straight && both != now && goes_on(ops, arg, now, both, ip, last, late))
		return now;
	to = begun(ops, arg, both, to, ip, last, *late);
	return to == now ? now : change(ops, arg, now, to, ip);
}

const struct dwarf_scope *inlines_go(const struct inlines_ops *ops, void *arg,
				     const struct dwarf_scope *now, uint64_t ip, uint64_t last,
				     bool straight)
{
	const struct dwarf_scope *late = NULL;

	return go(ops, arg, now, ip, last, straight, &late);
}

const struct dwarf_scope *inlines_line(const struct inlines_ops *ops, void *arg,
				       const struct dwarf_scope *now, uint64_t first, uint64_t last,
				       uint64_t line)
{
	const struct dwarf_scope *late = NULL;
	uint64_t ip = first, end;

	for (;;) {
		now = go(ops, arg, now, ip, line, true, &late);
		(void)ops->at(arg, ip, &end);
		if (end <= ip || end > last)
			return now;
		ip = end;
	}
}
