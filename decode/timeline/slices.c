/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "decode/timeline/slices.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "decode/base/path.h"

#define PLACE_BYTES 512u
#define MAX_ARGS 8u

/* What a frame looks like; made when it is first drawn. */
struct look {
	uint32_t name, category, location;
	uint32_t place; /* in its object, "/lib/libc.so.6+0x29d90"; 0: not known */
	bool is_inlined;
};

struct slices {
	struct stacktab *st;
	struct writer *w;
	uint32_t depth_cap;
	struct look *looks; /* by frame */
	uint32_t max_looks;
	uint32_t folded_category, key_object;
	uint64_t folded;
	uint32_t *wanted; /* depth_cap frames: the stack that is being drawn */
};

int slices_new(struct stacktab *st, struct writer *w, uint32_t depth_cap, struct slices **ret)
{
	_cleanup_(slices_freep) struct slices *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->st = st;
	s->w = w;
	s->depth_cap = depth_cap == 0 || depth_cap > SLICES_MAX_DEPTH ? SLICES_MAX_DEPTH
								      : depth_cap;
	s->wanted = calloc(s->depth_cap, sizeof(*s->wanted));
	if (!s->wanted)
		return -ENOMEM;
	s->folded_category = writer_name(w, "folded");
	s->key_object = writer_name(w, "object");
	*ret = take_ptr(s);
	return 0;
}

struct slices *slices_free(struct slices *s)
{
	if (!s)
		return NULL;
	free(s->looks);
	free(s->wanted);
	free(s);
	return NULL;
}

void lane_fini(struct lane *l)
{
	free(l->open);
	free(l->outside);
	*l = (struct lane){.track = 0};
}

static uint32_t place_of(struct slices *s, const struct frame_info *info)
{
	char text[PLACE_BYTES];

	if (!info->offset || !*info->object || strlen(info->object) > sizeof(text) - 24)
		return 0;
	(void)snprintf(text, sizeof(text), "%s+0x%llx", info->object,
		       (unsigned long long)info->offset);
	return writer_name(s->w, text);
}

/* Of a call in a stack that has no code of its own; what PT has of such calls says more. */
static struct writer_arg inlined_arg(struct slices *s)
{
	return (struct writer_arg){.kind = WRITER_ARG_NAME,
				   .key = writer_name(s->w, "how"),
				   .value.name = writer_name(s->w, "inlined")};
}

static int look_get(struct slices *s, uint32_t frame, const struct look **ret)
{
	struct frame_info info;
	struct look *l;

	if (frame >= s->max_looks) {
		uint32_t n = stacktab_n_frames(s->st), max = n > frame ? n : frame + 1;

		max = max < UINT32_MAX / 2 ? max * 2 : max;
		l = reallocarray(s->looks, max, sizeof(*l));
		if (!l)
			return -ENOMEM;
		memset(l + s->max_looks, 0, (max - s->max_looks) * sizeof(*l));
		s->looks = l;
		s->max_looks = max;
	}
	l = &s->looks[frame];
	if (l->name == 0) {
		stacktab_info(s->st, frame, &info);
		l->name = writer_name(s->w, *info.name ? info.name : "[unknown]");
		/* a path in every event's category helps nobody */
		l->category = writer_name(s->w, base_name(info.object));
		l->place = place_of(s, &info);
		l->is_inlined = info.kind == FRAME_KIND_INLINED;
		if (*info.file)
			l->location = writer_location(s->w, writer_name(s->w, info.file), l->name,
						      info.line);
	}
	*ret = l;
	return 0;
}

/* The time on the lane that is nearest to `ts` and not before what is already there. */
static uint64_t lane_time(struct lane *l, uint64_t ts)
{
	if (ts > l->last_ts)
		l->last_ts = ts;
	return l->last_ts;
}

/* Fills `wanted` with what of the stack is drawn; the rest is folded. */
static uint32_t want(struct slices *s, uint32_t stack, uint32_t *ret_folded)
{
	uint32_t depth = stacktab_depth(s->st, stack);
	uint32_t shown = depth <= s->depth_cap ? depth : s->depth_cap - 1;

	*ret_folded = depth - shown;
	return stacktab_frames(s->st, stack, s->wanted, shown);
}

static uint32_t common_prefix(const struct slices *s, const struct lane *l, uint32_t n)
{
	uint32_t max = n < l->n_open ? n : l->n_open, i = 0;

	while (i < max && l->open[i] == s->wanted[i])
		i++;
	return i;
}

uint32_t slices_common(struct slices *s, const struct lane *l, uint32_t stack)
{
	uint32_t folded;

	return common_prefix(s, l, want(s, stack, &folded));
}

void slices_trim(struct slices *s, struct lane *l, uint32_t depth, uint64_t ts)
{
	if (l->leaf)
		slices_leaf_end(s, l, ts, NULL);
	if (l->folded && depth < l->n_open + 1) {
		l->folded = 0;
		l->stack = STACKTAB_ROOT;
		writer_slice_end(s->w, l->track, lane_time(l, ts), NULL);
	}
	for (; l->n_open > depth; l->n_open--) {
		l->stack = STACKTAB_ROOT; /* only part of it is left */
		writer_slice_end(s->w, l->track, lane_time(l, ts), NULL);
	}
}

static void fold_begin(struct slices *s, struct lane *l, uint32_t folded, uint64_t ts)
{
	struct writer_event ev = {.category = s->folded_category};
	char name[32];

	(void)snprintf(name, sizeof(name), "\xe2\x80\xa6 %u frames", folded);
	ev.name = writer_name(s->w, name);
	writer_slice_begin(s->w, l->track, lane_time(l, ts), &ev);
	l->folded = folded;
	s->folded += folded;
}

static int lane_reserve(struct lane *l, uint32_t n)
{
	uint32_t max = n < 32 ? 32 : n * 2, *open;

	if (n <= l->max_open)
		return 0;
	open = reallocarray(l->open, max, sizeof(*open));
	if (!open)
		return -ENOMEM;
	l->open = open;
	l->max_open = max;
	return 0;
}

/* `ts`: of the lane; it may be before what is there. */
static int begin(struct slices *s, const struct lane *l, uint32_t frame, uint64_t ts,
		 const struct writer_arg *args, uint32_t n_args)
{
	struct writer_arg all[MAX_ARGS];
	const struct look *look;
	int r = look_get(s, frame, &look);

	if (r < 0)
		return r;
	if (look->place && n_args < MAX_ARGS) {
		all[0] = (struct writer_arg){.kind = WRITER_ARG_NAME,
					     .key = s->key_object,
					     .value.name = look->place};
		if (n_args)
			memcpy(all + 1, args, n_args * sizeof(*args));
		args = all;
		n_args++;
	}
	writer_slice_begin(s->w, l->track, ts,
			       &(struct writer_event){.name = look->name,
						      .category = look->category,
						      .location = look->location,
						      .args = args,
						      .n_args = n_args});
	return 0;
}

/* Whether the frame is not drawn: too many are open. */
static bool is_over(struct slices *s, struct lane *l)
{
	if (!l->over && l->n_open != s->depth_cap)
		return false;
	l->over++;
	s->folded++;
	return true;
}

static void opened(struct lane *l, uint32_t frame)
{
	l->open[l->n_open++] = frame;
	l->stack = STACKTAB_ROOT;
	if (l->n_open > l->deepest)
		l->deepest = l->n_open;
}

int slices_outside_end(struct slices *s, struct lane *l)
{
	int r = 0;

	for (; l->n_outside && r == 0; l->n_outside--) {
		const struct lane_outside *o = &l->outside[l->n_outside - 1];

		r = begin(s, l, o->frame, l->outside_ts, &o->arg, o->has_arg);
	}
	return r;
}

int slices_resync(struct slices *s, struct lane *l, uint64_t ts, bool in_call)
{
	const uint64_t before = l->last_ts,
		       at = lane_time(l, in_call && ts <= before ? before + 1 : ts);
	int r = slices_outside_end(s, l);

	l->deepest = 0;
	l->outside_late = l->n_open || at == before;
	l->base_next = in_call && !l->outside_late;
	l->outside_ts = at ? at - 1 : 0;
	return r;
}

/* Makes room for all that come together, of which the last one is the innermost. */
static int outside_reserve(struct lane *l, uint32_t more)
{
	struct lane_outside *v;

	l->outside_from = l->n_outside;
	if (lane_reserve(l, l->n_open + more + 1) < 0)
		return -ENOMEM;
	if (l->n_outside + more + 1 > l->max_outside) {
		const uint32_t max = (l->n_outside + more + 1) * 2;

		v = reallocarray(l->outside, max, sizeof(*v));
		if (!v)
			return -ENOMEM;
		l->outside = v;
		l->max_outside = max;
	}
	l->n_outside += more + 1;
	return 0;
}

static void keep_outside(struct lane *l, uint32_t i, uint32_t frame, const struct writer_arg *arg)
{
	l->outside[i] = (struct lane_outside){.frame = frame, .has_arg = arg != NULL};
	if (arg)
		l->outside[i].arg = *arg;
	opened(l, frame);
}

/* The first that is seen: what is said about it may turn out to be something else. */
static int push_base(struct slices *s, struct lane *l, uint32_t frame, uint64_t ts,
		     const struct writer_arg *args, uint32_t n_args)
{
	int r;

	l->base_next = false;
	if (l->n_open || l->n_outside || n_args > 1)
		return slices_push(s, l, frame, ts, args, n_args);
	r = outside_reserve(l, 0);
	if (r < 0)
		return r;
	(void)lane_time(l, ts);
	keep_outside(l, 0, frame, n_args ? args : NULL);
	return 0;
}

int slices_push(struct slices *s, struct lane *l, uint32_t frame, uint64_t ts,
		const struct writer_arg *args, uint32_t n_args)
{
	int r;

	if (l->base_next)
		return push_base(s, l, frame, ts, args, n_args);
	if (is_over(s, l))
		return 0;
	r = lane_reserve(l, l->n_open + 1);
	if (r == 0)
		r = begin(s, l, frame, lane_time(l, ts), args, n_args);
	if (r == 0)
		opened(l, frame);
	return r;
}

void slices_outside_say(struct lane *l, uint32_t was, uint32_t is)
{
	for (uint32_t i = 0; i < l->n_outside; i++)
		if (l->outside[i].has_arg && l->outside[i].arg.value.name == was)
			l->outside[i].arg.value.name = is;
}

int slices_push_outside(struct slices *s, struct lane *l, uint32_t frame, uint64_t ts,
			uint32_t more, const struct writer_arg *arg, bool *ret_late)
{
	int r = 0;

	*ret_late = false;
	if (l->n_open == 0) {
		l->outside_late = l->outside_late || more >= s->depth_cap ||
				  l->n_outside + l->deepest >= s->depth_cap - more;
		if (!l->outside_late)
			r = outside_reserve(l, more);
	}
	if (l->outside_late) {
		*ret_late = true;
		return slices_push(s, l, frame, ts, arg, arg != NULL);
	}
	if (r < 0)
		return r;
	(void)lane_time(l, ts);
	keep_outside(l, l->outside_from + more, frame, arg);
	return 0;
}

void slices_pop(struct slices *s, struct lane *l, uint64_t ts, const struct writer_arg *args,
		uint32_t n_args)
{
	if (l->over) {
		l->over--;
		return;
	}
	if (l->n_open == 0)
		return;
	/* what is on top of it goes without saying more */
	slices_trim(s, l, l->n_open, ts);
	writer_slice_end(s->w, l->track, lane_time(l, ts),
			 n_args ? &(struct writer_event){.args = args, .n_args = n_args} : NULL);
	l->n_open--;
	l->stack = STACKTAB_ROOT;
}

int slices_draw(struct slices *s, struct lane *l, uint32_t stack, uint64_t close_ts,
		uint64_t open_ts)
{
	uint32_t n, folded, common;

	/* More than is drawn was pushed call by call: it stays as it is. */
	if ((stack == l->stack && stack != STACKTAB_ROOT) || l->over)
		return 0;
	n = want(s, stack, &folded);
	common = common_prefix(s, l, n);
	if (lane_reserve(l, n) < 0)
		return -ENOMEM;
	/* The fold leaf stays if nothing below it changes and it says the same. */
	if (l->folded && (common < l->n_open || n > common || folded != l->folded))
		slices_trim(s, l, l->n_open, close_ts);
	slices_trim(s, l, l->folded ? l->n_open + 1 : common, close_ts);
	for (; l->n_open < n; l->n_open++) {
		struct writer_arg inlined = {.kind = WRITER_ARG_NAME};
		const struct look *look;
		int r = look_get(s, s->wanted[l->n_open], &look);

		if (r < 0)
			return r;
		if (look->is_inlined)
			inlined = inlined_arg(s);
		writer_slice_begin(s->w, l->track, lane_time(l, open_ts),
				       &(struct writer_event){.name = look->name,
							      .category = look->category,
							      .location = look->location,
							      .args = &inlined,
							      .n_args = look->is_inlined});
		l->open[l->n_open] = s->wanted[l->n_open];
	}
	if (folded && !l->folded)
		fold_begin(s, l, folded, open_ts);
	l->stack = stack;
	return 0;
}

void slices_leaf_begin(struct slices *s, struct lane *l, uint64_t ts, const struct writer_event *ev)
{
	writer_slice_begin(s->w, l->track, lane_time(l, ts), ev);
	l->leaf = true;
}

void slices_leaf_end(struct slices *s, struct lane *l, uint64_t ts, const struct writer_event *ev)
{
	if (!l->leaf)
		return;
	writer_slice_end(s->w, l->track, lane_time(l, ts), ev);
	l->leaf = false;
}

void slices_instant(struct slices *s, struct lane *l, uint64_t ts, const struct writer_event *ev)
{
	writer_instant(s->w, l->track, lane_time(l, ts), ev);
}

uint64_t slices_folded(const struct slices *s)
{
	return s->folded;
}
