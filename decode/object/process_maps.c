// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/object/process_maps.h"

#include <errno.h>
#include <stdlib.h>

#include "common/base/hashmap.h"
#include "decode/object/image.h"
#include "decode/perf/event.h"

#define MAX_VERSIONS (1u << 20) /* of all processes */

struct version {
	uint64_t from;
	struct address_space *space; /* referenced */
};

struct history { /* of one process */
	struct version *versions; /* in the order of time */
	uint32_t n, cap;
	struct history *next;
};

struct process_maps {
	struct images *images; /* borrowed, as the budget */
	struct budget *budget;
	const struct address_space *kernel; /* borrowed; NULL: not known */
	bool past;
	struct hashmap processes;
	struct history *all;
	uint32_t n_versions;
	uint64_t charged, records, refused;
	/* of the budget: no more versions are begun then, so that code can still be loaded */
	uint64_t enough;
};

int process_maps_new(struct images *images, struct budget *budget, bool past,
		     struct process_maps **ret)
{
	struct process_maps *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->images = images;
	m->budget = budget;
	m->past = past;
	m->enough = past ? budget->used + (budget->max - budget->used) / 2 : budget->max;
	*ret = m;
	return 0;
}

void process_maps_set_kernel(struct process_maps *m, const struct address_space *kernel)
{
	m->kernel = kernel;
}

struct process_maps *process_maps_free(struct process_maps *m)
{
	if (!m)
		return NULL;
	while (m->all) {
		struct history *h = m->all;

		m->all = h->next;
		for (uint32_t i = 0; i < h->n; i++)
			address_space_unref(h->versions[i].space);
		free(h->versions);
		free(h);
	}
	hashmap_fini(&m->processes);
	budget_give(m->budget, m->charged);
	free(m);
	return NULL;
}

static int charge(struct process_maps *m, size_t bytes)
{
	if (!budget_take(m->budget, bytes))
		return -ENOMEM;
	m->charged += bytes;
	return 0;
}

static struct history *add_process(struct process_maps *m, uint32_t pid)
{
	struct history *h = hashmap_pointer(&m->processes, pid);

	if (h)
		return h;
	if (charge(m, sizeof(*h)) < 0)
		return NULL;
	h = calloc(1, sizeof(*h));
	if (!h || hashmap_put_pointer(&m->processes, pid, h) < 0) {
		free(h);
		return NULL;
	}
	h->next = m->all;
	m->all = h;
	return h;
}

static struct version *newest(const struct history *h)
{
	return h->n ? &h->versions[h->n - 1] : NULL;
}

/*
 * From the record on the process has `space`, whose reference is taken over; NULL: nothing is
 * mapped.
 */
static int begin_version(struct process_maps *m, struct history *h, const struct perfevent *ev,
			 struct address_space *space)
{
	_cleanup_(address_space_unrefp) struct address_space *own = space;
	uint64_t from = ev->has_time ? ev->time : 0;
	struct version *v = newest(h);

	if (!own) {
		if (address_space_new(m->budget, &own) < 0)
			return -ENOMEM;
		address_space_set_kernel(own, m->kernel);
	}
	if (v && !m->past) {
		address_space_unref(v->space);
		v->space = take_ptr(own);
		return 0;
	}
	/* A record without a time comes after the one before it. */
	if (v && from < v->from)
		from = v->from;
	if (h->n == h->cap) {
		const uint32_t cap = h->cap ? h->cap * 2 : 1;

		if (m->n_versions >= MAX_VERSIONS || m->budget->used > m->enough ||
			charge(m, (cap - h->cap) * sizeof(*v)) < 0)
			return -ENOMEM;
		v = reallocarray(h->versions, cap, sizeof(*v));
		if (!v)
			return -ENOMEM;
		h->versions = v;
		h->cap = cap;
	}
	m->n_versions++;
	h->versions[h->n++] = (struct version){.from = from, .space = take_ptr(own)};
	return 0;
}

/* Whether the mapping takes the place of code that another one has there. */
static bool replaces(const struct address_space *s, const struct mapping *map)
{
	const struct mapping *m;

	for (uint32_t i = address_space_from(s, map->start);
	     (m = address_space_at(s, i)) && m->start < map->end; i++)
		if (m->image != map->image || m->start - m->pgoff != map->start - map->pgoff)
			return true;
	return false;
}

/* False: it is the kernel's own, or no piece of an address space. No image is in *ret yet. */
static bool range_of(const struct perfevent *ev, struct mapping *ret)
{
	const struct perfevent_mmap *m = &ev->mmap;
	struct mapping map = {.start = m->addr, .pgoff = m->pgoff};

	if (ev->pid == (uint32_t)-1 || m->len == 0)
		return false;
	/* up to the last address of all: that one is left out */
	if (__builtin_add_overflow(m->addr, m->len, &map.end) && map.end)
		return false;
	map.end -= map.end == 0;
	*ret = map;
	return true;
}

/* If it is executable, its image. */
static int find_image(struct process_maps *m, const struct perfevent *ev, struct mapping *map)
{
	const struct perfevent_mmap *r = &ev->mmap;
	const struct image_key key = {.maj = r->maj,
		.min = r->min,
		.ino = r->ino,
		.build_id = r->build_id,
		.build_id_size = r->build_id_size,
		.path = r->path,
		.path_len = r->path_len,
		.pid = ev->pid,
		.time = ev->has_time ? ev->time : 0};

	if (!r->exec)
		return 0;
	map->image = images_get(m->images, &key);
	return map->image ? 0 : -ENOMEM;
}

static int on_mmap(struct process_maps *m, const struct perfevent *ev)
{
	struct history *h;
	struct mapping map;
	int r = 0;

	if (!range_of(ev, &map))
		return 0;
	m->records++;
	h = add_process(m, ev->pid);
	if (!h || find_image(m, ev, &map) < 0)
		return -ENOMEM;
	if (h->n == 0)
		r = begin_version(m, h, ev, NULL);
	else if (m->past && replaces(newest(h)->space, &map))
		r = begin_version(m, h, ev, address_space_ref(newest(h)->space));
	return r < 0 ? r : address_space_set(&newest(h)->space, &map);
}

static int on_exec(struct process_maps *m, const struct perfevent *ev)
{
	struct history *h = add_process(m, ev->pid);

	return h ? begin_version(m, h, ev, NULL) : -ENOMEM;
}

static int on_fork(struct process_maps *m, const struct perfevent *ev)
{
	const struct history *parent = hashmap_pointer(&m->processes, ev->fork.ppid);
	const struct version *has = parent ? newest(parent) : NULL;
	struct history *h = hashmap_pointer(&m->processes, ev->pid);
	const bool in_use = h && h->n;

	if (ev->pid == ev->fork.ppid || (in_use && ev->pid != ev->tid))
		return 0; /* a thread */
	if (!has && !in_use)
		return 0;
	h = add_process(m, ev->pid);
	return h ? begin_version(m, h, ev, has ? address_space_ref(has->space) : NULL) : -ENOMEM;
}

void process_maps_record(struct process_maps *m, const struct perfevent *ev)
{
	int r = 0;

	if (ev->kind == PERFEVENT_MMAP)
		r = on_mmap(m, ev);
	else if (ev->kind == PERFEVENT_COMM && ev->comm.exec)
		r = on_exec(m, ev);
	else if (ev->kind == PERFEVENT_FORK)
		r = on_fork(m, ev);
	if (r != 0)
		m->refused++;
}

const struct address_space *process_maps_at(const struct process_maps *m, uint32_t pid,
					    uint64_t time)
{
	const struct history *h = hashmap_pointer(&m->processes, pid);
	uint32_t low = 0, high;

	if (!h || h->n == 0)
		return NULL;
	high = h->n;
	while (low < high) { /* the first version that is later */
		const uint32_t mid = low + (high - low) / 2;

		if (h->versions[mid].from <= time)
			low = mid + 1;
		else
			high = mid;
	}
	return h->versions[low ? low - 1 : 0].space;
}

uint64_t process_maps_records(const struct process_maps *m)
{
	return m->records;
}

uint64_t process_maps_refused(const struct process_maps *m)
{
	return m->refused;
}
