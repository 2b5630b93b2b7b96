/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "decode/base/stacktab.h"

#include <errno.h>
#include <string.h>

#include "common/base/hashmap.h"
#include "decode/base/strtab.h"

#define DEFAULT_MAX_BYTES ((size_t)512 << 20)

struct frame {
	uint32_t name, object, file; /* in the string table */
	uint32_t line;
	uint64_t offset;
	uint32_t hash;
	uint8_t kind;
};

struct node {
	uint32_t parent, frame;
	uint32_t depth;
};

/*
 * An open-addressing set of numbers; its user compares what they stand for. Not
 * common/base/hashmap.h: a frame has six keys, and with millions of stacks four bytes a slot
 * instead of 24 are what the memory limit is spent on.
 */
struct set {
	uint32_t *slots;
	uint32_t n_slots;
};

struct stacktab {
	struct strtab *strings;
	struct frame *frames;
	uint32_t n_frames, max_frames;
	struct set frame_set;
	struct node *nodes;
	uint32_t n_nodes, max_nodes;
	struct set node_set;
	size_t bytes, max_bytes;
	uint64_t seed;
	uint64_t dropped;
};

static uint32_t hash_frame(const struct stacktab *st, const struct frame *f)
{
	uint64_t h = hash_mix(st->seed ^ f->name, ((uint64_t)f->object << 32) | f->file);

	h = hash_mix(h ^ f->offset, ((uint64_t)f->line << 8) | f->kind);
	return (uint32_t)(h >> 32);
}

static uint32_t hash_node(const struct stacktab *st, uint32_t parent, uint32_t frame)
{
	return (uint32_t)(hash_mix(st->seed, ((uint64_t)parent << 32) | frame) >> 32);
}

static bool frame_equal(const struct frame *a, const struct frame *b)
{
	return a->name == b->name && a->object == b->object && a->file == b->file &&
	       a->line == b->line && a->offset == b->offset && a->kind == b->kind;
}

/* Is there memory for `more` bytes? The string table counts its own. */
static bool has_room(const struct stacktab *st, size_t more)
{
	return st->bytes + strtab_bytes(st->strings) + more <= st->max_bytes;
}

/* Makes room for one more element; false at the limit. */
static bool array_grow(struct stacktab *st, void **array, uint32_t n, uint32_t *max, size_t size)
{
	size_t more = (size_t)*max * size;
	void *p;

	if (n < *max)
		return true;
	if (*max > UINT32_MAX / 2 || !has_room(st, more))
		return false;
	p = reallocarray(*array, (size_t)*max * 2, size);
	if (!p)
		return false;
	*array = p;
	*max *= 2;
	st->bytes += more;
	return true;
}

/* Doubles a set when half full. It may stay fuller at the limit, but never full. */
static bool set_grow(struct stacktab *st, struct set *set, uint32_t used,
		     uint32_t (*hash_of)(const struct stacktab *, uint32_t))
{
	uint32_t n = set->n_slots * 2;
	size_t more = (size_t)set->n_slots * sizeof(*set->slots);
	uint32_t *slots;

	if (used < set->n_slots / 2)
		return true;
	if (n < set->n_slots || !has_room(st, more) || !(slots = calloc(n, sizeof(*slots))))
		return used < set->n_slots / 8 * 7;
	for (uint32_t i = 1; i < used; i++) {
		uint32_t at = hash_of(st, i) & (n - 1);

		while (slots[at])
			at = (at + 1) & (n - 1);
		slots[at] = i;
	}
	free(set->slots);
	set->slots = slots;
	set->n_slots = n;
	st->bytes += more;
	return true;
}

static void set_insert(struct set *set, uint32_t hash, uint32_t id)
{
	uint32_t at = hash & (set->n_slots - 1);

	while (set->slots[at])
		at = (at + 1) & (set->n_slots - 1);
	set->slots[at] = id;
}

static uint32_t hash_of_frame(const struct stacktab *st, uint32_t id)
{
	return st->frames[id].hash;
}

static uint32_t hash_of_node(const struct stacktab *st, uint32_t id)
{
	return hash_node(st, st->nodes[id].parent, st->nodes[id].frame);
}

static uint32_t intern(struct stacktab *st, const char *s)
{
	return s ? strtab_add(st->strings, s, strlen(s), NULL) : STRTAB_EMPTY;
}

uint32_t stacktab_frame(struct stacktab *st, const struct frame_info *info)
{
	struct frame f = {
		.name = intern(st, info->name),
		.object = intern(st, info->object),
		.file = intern(st, info->file),
		.line = info->line,
		.offset = info->offset,
		.kind = info->kind,
	};
	const struct set *set = &st->frame_set;
	uint32_t at, id;

	f.hash = hash_frame(st, &f);
	for (at = f.hash & (set->n_slots - 1); (id = set->slots[at]) != 0;
	     at = (at + 1) & (set->n_slots - 1))
		if (frame_equal(&st->frames[id], &f))
			return id;
	if (!set_grow(st, &st->frame_set, st->n_frames, hash_of_frame) ||
	    !array_grow(st, (void **)&st->frames, st->n_frames, &st->max_frames, sizeof(f))) {
		st->dropped++;
		return STACKTAB_FRAME_FULL;
	}
	id = st->n_frames++;
	st->frames[id] = f;
	set_insert(&st->frame_set, f.hash, id);
	return id;
}

uint32_t stacktab_push(struct stacktab *st, uint32_t parent, uint32_t frame)
{
	uint32_t hash = hash_node(st, parent, frame), depth, at, id;
	const struct set *set = &st->node_set;

	for (at = hash & (set->n_slots - 1); (id = set->slots[at]) != 0;
	     at = (at + 1) & (set->n_slots - 1))
		if (st->nodes[id].parent == parent && st->nodes[id].frame == frame)
			return id;
	depth = stacktab_depth(st, parent);
	if (parent >= st->n_nodes || frame == 0 || frame >= st->n_frames ||
	    depth >= STACKTAB_MAX_DEPTH ||
	    !set_grow(st, &st->node_set, st->n_nodes, hash_of_node) ||
	    !array_grow(st, (void **)&st->nodes, st->n_nodes, &st->max_nodes, sizeof(*st->nodes))) {
		st->dropped++;
		return parent;
	}
	id = st->n_nodes++;
	st->nodes[id] = (struct node){.parent = parent, .frame = frame, .depth = depth + 1};
	set_insert(&st->node_set, hash, id);
	return id;
}

int stacktab_new(size_t max_bytes, struct stacktab **ret)
{
	static const struct frame_info full = {
		.name = "[frames beyond the memory limit]", .kind = FRAME_KIND_MISSING};
	_cleanup_(stacktab_freep) struct stacktab *st = calloc(1, sizeof(*st));
	int r;

	if (!st)
		return -ENOMEM;
	if (max_bytes == 0)
		max_bytes = DEFAULT_MAX_BYTES;
	r = strtab_new(max_bytes / 2, "[names beyond the memory limit]", &st->strings);
	if (r < 0)
		return r;
	st->seed = hash_seed();
	st->max_bytes = SIZE_MAX; /* the first steps are not refused */
	st->max_frames = 256;
	st->max_nodes = 1024;
	st->frame_set.n_slots = 512;
	st->node_set.n_slots = 2048;
	st->frames = calloc(st->max_frames, sizeof(*st->frames));
	st->nodes = calloc(st->max_nodes, sizeof(*st->nodes));
	st->frame_set.slots = calloc(st->frame_set.n_slots, sizeof(uint32_t));
	st->node_set.slots = calloc(st->node_set.n_slots, sizeof(uint32_t));
	if (!st->frames || !st->nodes || !st->frame_set.slots || !st->node_set.slots)
		return -ENOMEM;
	st->bytes = st->max_frames * sizeof(*st->frames) + st->max_nodes * sizeof(*st->nodes) +
		    (st->frame_set.n_slots + st->node_set.n_slots) * sizeof(uint32_t);
	st->n_frames = st->n_nodes = 1; /* number 0: no frame, the empty stack */
	if (stacktab_frame(st, &full) != STACKTAB_FRAME_FULL || st->dropped)
		return -ENOMEM;
	st->max_bytes = max_bytes;
	*ret = take_ptr(st);
	return 0;
}

struct stacktab *stacktab_free(struct stacktab *st)
{
	if (!st)
		return NULL;
	strtab_free(st->strings);
	free(st->frames);
	free(st->nodes);
	free(st->frame_set.slots);
	free(st->node_set.slots);
	free(st);
	return NULL;
}

uint32_t stacktab_parent(const struct stacktab *st, uint32_t stack)
{
	return stack < st->n_nodes ? st->nodes[stack].parent : 0;
}

uint32_t stacktab_leaf(const struct stacktab *st, uint32_t stack)
{
	return stack < st->n_nodes ? st->nodes[stack].frame : 0;
}

uint32_t stacktab_depth(const struct stacktab *st, uint32_t stack)
{
	return stack < st->n_nodes ? st->nodes[stack].depth : 0;
}

uint32_t stacktab_frames(const struct stacktab *st, uint32_t stack, uint32_t *frames, uint32_t max)
{
	uint32_t depth = stacktab_depth(st, stack);

	for (uint32_t i = depth; i > 0; i--) {
		if (i <= max)
			frames[i - 1] = st->nodes[stack].frame;
		stack = st->nodes[stack].parent;
	}
	return depth < max ? depth : max;
}

void stacktab_info(const struct stacktab *st, uint32_t frame, struct frame_info *ret_info)
{
	const struct frame *f = &st->frames[frame < st->n_frames ? frame : 0];

	*ret_info = (struct frame_info){
		.name = strtab_text(st->strings, f->name),
		.object = strtab_text(st->strings, f->object),
		.file = strtab_text(st->strings, f->file),
		.line = f->line,
		.offset = f->offset,
		.kind = f->kind,
	};
}

uint32_t stacktab_n_frames(const struct stacktab *st)
{
	return st->n_frames;
}

uint32_t stacktab_n_stacks(const struct stacktab *st)
{
	return st->n_nodes;
}

size_t stacktab_bytes(const struct stacktab *st)
{
	return st->bytes + strtab_bytes(st->strings);
}

uint64_t stacktab_dropped(const struct stacktab *st)
{
	return st->dropped + strtab_dropped(st->strings);
}
