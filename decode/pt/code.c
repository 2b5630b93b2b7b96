// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/pt/code.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/hashmap.h"
#include "common/base/insn.h"
#include "common/base/io.h"
#include "common/control/json.h"
#include "decode/calls/functions.h"
#include "decode/object/address_space.h"
#include "decode/object/image.h"
#include "decode/object/mapping.h"
#include "decode/perf/data.h"
#include "decode/perf/event.h"

#define CHUNK_BITS 16u
#define CHUNK_BYTES (1u << CHUNK_BITS)
#define MAX_VERSIONS (1u << 20) /* of all processes */
#define MAX_FILE (1ull << 32)

/* The bytes of one image, read in chunks when they are first asked for. */
struct codefile {
	struct image *image; /* borrowed */
	uint64_t size;
	_Atomic(uint8_t *) *chunks;
	size_t n_chunks;
	atomic_ullong misses; /* reads that found nothing */
	bool pages; /* saved by a stepper, see step/code.h */
};

struct ptcode_version {
	uint64_t from;
	struct address_space *space; /* referenced */
	struct ptcode *code; /* back pointer */
};

struct ptcode_process {
	uint32_t pid;
	struct address_space *space;
	struct ptcode_version *versions; /* in order of time */
	uint32_t n, cap;
	struct ptcode_process *next;
};

struct ptcode {
	struct images *images;
	struct budget *budget;
	struct hashmap processes;
	struct ptcode_process *all;
	uint32_t n_versions;
	struct callfuncs *functions;
	struct codefile *files; /* by image id */
	size_t n_files;
	pthread_mutex_t lock;
	struct budget chunks; /* of the budget, set aside: that is not for several threads */
	atomic_ullong unmapped, unreadable;
	uint64_t charged, no_memory;
	uint64_t enough; /* of the budget: no more versions are begun then, so that code can still be loaded */
};

/* ---- address spaces */

static struct ptcode_process *add_process(struct ptcode *c, uint32_t pid)
{
	struct ptcode_process *p = hashmap_pointer(&c->processes, pid);

	if (p)
		return p;
	if (!budget_take(c->budget, sizeof(*p)))
		return NULL;
	c->charged += sizeof(*p);
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->pid = pid;
	if (address_space_new(c->budget, &p->space) < 0 || hashmap_put_pointer(&c->processes, pid, p) < 0) {
		address_space_unref(p->space);
		free(p);
		return NULL;
	}
	p->next = c->all;
	c->all = p;
	return p;
}

/* What holds from `from` on is what the space is now, and what is added to it. */
static int begin_version(struct ptcode *c, struct ptcode_process *p, uint64_t from)
{
	struct ptcode_version *v;

	if (p->n == p->cap) {
		const uint32_t cap = p->cap ? p->cap * 2 : 4;

		if (c->n_versions >= MAX_VERSIONS || c->budget->used > c->enough ||
			!budget_take(c->budget, (cap - p->cap) * sizeof(*v)))
			return -ENOMEM;
		c->charged += (cap - p->cap) * sizeof(*v);
		v = reallocarray(p->versions, cap, sizeof(*v));
		if (!v)
			return -ENOMEM;
		p->versions = v;
		p->cap = cap;
	}
	c->n_versions++;
	p->versions[p->n++] = (struct ptcode_version){.from = from, .code = c};
	return 0;
}

/* The newest version shares the space until the next one begins. */
static void seal_version(struct ptcode_process *p)
{
	if (p->n && !p->versions[p->n - 1].space)
		p->versions[p->n - 1].space = address_space_ref(p->space);
}

/* Whether the mapping takes the place of code that another one has there. */
static bool replaces(const struct address_space *s, const struct mapping *map)
{
	const struct mapping *m;

	for (uint32_t i = address_space_from(s, map->start); (m = address_space_at(s, i)) && m->start < map->end; i++)
		if (m->image != map->image || m->start - m->pgoff != map->start - map->pgoff)
			return true;
	return false;
}

static int set_map(struct ptcode *c, struct ptcode_process *p, const struct mapping *map, uint64_t time)
{
	int r = 0;

	if (p->n == 0)
		r = begin_version(c, p, 0);
	else if (replaces(p->space, map)) {
		seal_version(p);
		r = begin_version(c, p, time);
	} else if (!map->image) {
		return 0;
	}
	if (r == 0 && address_space_set(&p->space, map) != 0)
		r = -ENOMEM;
	return r;
}

/* Its bytes are looked for when all records were read. */
static int note_file(struct ptcode *c, struct image *image)
{
	if (image->id >= c->n_files) {
		const size_t n = (size_t)image->id + 64;
		struct codefile *v = reallocarray(c->files, n, sizeof(*v));

		if (!v)
			return -ENOMEM;
		memset(v + c->n_files, 0, (n - c->n_files) * sizeof(*v));
		c->files = v;
		c->n_files = n;
	}
	c->files[image->id].image = image;
	return 0;
}

static int on_mmap(struct ptcode *c, const struct perfevent *ev)
{
	struct ptcode_process *p;
	struct mapping map;

	if (!mapping_range(ev, &map))
		return 0;
	p = add_process(c, ev->pid);
	if (!p || mapping_image(ev, c->images, &map) < 0 || (map.image && note_file(c, map.image) < 0))
		return -ENOMEM;
	return set_map(c, p, &map, ev->has_time ? ev->time : 0);
}

static int on_exec(struct ptcode *c, const struct perfevent *ev)
{
	struct ptcode_process *p = add_process(c, ev->pid);
	struct address_space *fresh;

	if (!p || address_space_new(c->budget, &fresh) < 0)
		return -ENOMEM;
	seal_version(p);
	address_space_unref(p->space);
	p->space = fresh;
	return begin_version(c, p, ev->time);
}

static int on_fork(struct ptcode *c, const struct perfevent *ev)
{
	struct ptcode_process *parent, *p;

	if (ev->pid == ev->fork.ppid)
		return 0;
	parent = hashmap_pointer(&c->processes, ev->fork.ppid);
	p = add_process(c, ev->pid);
	if (!p)
		return -ENOMEM;
	if (!parent)
		return 0;
	seal_version(p);
	address_space_unref(p->space);
	p->space = address_space_ref(parent->space);
	return begin_version(c, p, p->n ? ev->time : 0);
}

void ptcode_record(struct ptcode *c, const struct perfevent *ev)
{
	int r = 0;

	if (ev->kind == PERFEVENT_MMAP)
		r = on_mmap(c, ev);
	else if (ev->kind == PERFEVENT_COMM && ev->comm.exec)
		r = on_exec(c, ev);
	else if (ev->kind == PERFEVENT_FORK)
		r = on_fork(c, ev);
	if (r < 0)
		c->no_memory++;
}

/* ---- files: all are opened now, while the parent can be asked */

static int open_file(struct ptcode *c, struct codefile *f)
{
	struct image *image = f->image;
	int r = image_open(c->images, image);

	if (r < 0 || image->state != IMAGE_READY)
		return r;
	r = image_load_symbols(c->images, image);
	if (r >= 0)
		r = callfuncs_add(c->functions, image);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < image->n_loads; i++)
		if (image->loads[i].exec && image->loads[i].off + image->loads[i].size > f->size)
			f->size = image->loads[i].off + image->loads[i].size;
	f->pages = image->ino == 0 && image->n_loads == 1 && image->loads[0].exec && image->loads[0].off == 0 &&
		   image->loads[0].vaddr == 0;
	if (f->size > MAX_FILE)
		f->size = MAX_FILE;
	f->n_chunks = (size_t)((f->size + CHUNK_BYTES - 1) >> CHUNK_BITS);
	if (!budget_take(c->budget, f->n_chunks * sizeof(*f->chunks))) {
		f->n_chunks = 0;
		return 0;
	}
	c->charged += f->n_chunks * sizeof(*f->chunks);
	f->chunks = calloc(f->n_chunks ? f->n_chunks : 1, sizeof(*f->chunks));
	return f->chunks ? 0 : -ENOMEM;
}

int ptcode_open(struct ptcode *c)
{
	uint64_t want = 0, most = (c->budget->max - c->budget->used) / 4;

	for (struct ptcode_process *p = c->all; p; p = p->next)
		seal_version(p);
	for (size_t i = 0; i < c->n_files; i++) {
		int r = c->files[i].image ? open_file(c, &c->files[i]) : 0;

		if (r < 0)
			return r;
		want += (uint64_t)c->files[i].n_chunks << CHUNK_BITS;
	}
	c->chunks.max = want < most ? want : most;
	if (!budget_take(c->budget, c->chunks.max))
		c->chunks.max = 0;
	c->charged += c->chunks.max;
	return 0;
}

int ptcode_new(struct images *images, struct budget *budget, struct ptcode **ret)
{
	_cleanup_(ptcode_freep) struct ptcode *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->images = images;
	c->budget = budget;
	c->enough = budget->used + (budget->max - budget->used) / 2;
	(void)pthread_mutex_init(&c->lock, NULL);
	r = callfuncs_new(budget, &c->functions);
	if (r < 0)
		return r;
	*ret = take_ptr(c);
	return 0;
}

struct ptcode *ptcode_free(struct ptcode *c)
{
	if (!c)
		return NULL;
	while (c->all) {
		struct ptcode_process *p = c->all;

		c->all = p->next;
		for (uint32_t i = 0; i < p->n; i++)
			address_space_unref(p->versions[i].space);
		address_space_unref(p->space);
		free(p->versions);
		free(p);
	}
	hashmap_fini(&c->processes);
	for (size_t i = 0; i < c->n_files; i++) {
		for (size_t k = 0; k < c->files[i].n_chunks; k++)
			free(c->files[i].chunks[k]);
		free(c->files[i].chunks);
	}
	free(c->files);
	callfuncs_free(c->functions);
	budget_give(c->budget, c->charged);
	(void)pthread_mutex_destroy(&c->lock);
	free(c);
	return NULL;
}

/* ---- reading */

const struct ptcode_version *ptcode_at(const struct ptcode *c, uint32_t pid, uint64_t time)
{
	const struct ptcode_process *p = hashmap_pointer(&c->processes, pid);
	uint32_t low = 0, high;

	if (!p || p->n == 0)
		return NULL;
	high = p->n;
	while (low < high) {
		const uint32_t mid = low + (high - low) / 2;

		if (p->versions[mid].from <= time)
			low = mid + 1;
		else
			high = mid;
	}
	return &p->versions[low ? low - 1 : 0];
}

bool ptcode_is_mapped(const struct ptcode_version *v, uint64_t ip)
{
	return address_space_find(v->space, ip) != NULL;
}

const struct image *ptcode_image(const struct ptcode_version *v, uint64_t ip)
{
	const struct mapping *map = v ? address_space_find(v->space, ip) : NULL;

	return map ? map->image : NULL;
}

static const uint8_t *load_chunk(struct ptcode *c, struct codefile *f, size_t i)
{
	uint8_t *bytes;
	ssize_t n;

	(void)pthread_mutex_lock(&c->lock);
	bytes = atomic_load_explicit(&f->chunks[i], memory_order_relaxed);
	if (!bytes && budget_take(&c->chunks, CHUNK_BYTES)) {
		bytes = calloc(1, CHUNK_BYTES);
		if (bytes && f->image->fd >= 0) {
			n = io_pread_full(f->image->fd, bytes, CHUNK_BYTES, (off_t)((uint64_t)i << CHUNK_BITS));
			if (n <= 0) {
				free(bytes);
				bytes = NULL;
				budget_give(&c->chunks, CHUNK_BYTES);
			}
		} else if (bytes && f->image->mem) {
			const uint64_t at = (uint64_t)i << CHUNK_BITS;
			const uint64_t left = at < f->image->mem_size ? f->image->mem_size - at : 0;

			memcpy(bytes, f->image->mem + at, left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES);
		}
		atomic_store_explicit(&f->chunks[i], bytes, memory_order_release);
	}
	(void)pthread_mutex_unlock(&c->lock);
	return bytes;
}

/* What lies together in one chunk, at most `left` bytes of the mapping. */
static size_t read_chunk(struct ptcode *c, struct codefile *f, uint64_t off, uint64_t left, const uint8_t **ret)
{
	const size_t i = (size_t)(off >> CHUNK_BITS);
	const uint64_t in = off & (CHUNK_BYTES - 1);
	uint64_t n = CHUNK_BYTES - in;
	const uint8_t *bytes;

	if (off >= f->size || i >= f->n_chunks)
		return 0;
	bytes = atomic_load_explicit(&f->chunks[i], memory_order_acquire);
	if (!bytes)
		bytes = load_chunk(c, f, i);
	if (!bytes)
		return 0;
	if (n > left)
		n = left;
	if (n > f->size - off)
		n = f->size - off;
	*ret = bytes + in;
	return (size_t)n;
}

/* What lies together at `ip`, all of it in one mapping. */
static size_t read_at(const struct ptcode_version *v, uint64_t ip, const uint8_t **ret)
{
	struct ptcode *c = v->code;
	const struct mapping *m = address_space_find(v->space, ip);

	if (!m || !m->image || m->image->id >= c->n_files || !c->files[m->image->id].image)
		return 0;
	return read_chunk(c, &c->files[m->image->id], m->pgoff + (ip - m->start), m->end - ip, ret);
}

void ptcode_missing(const struct ptcode_version *v, uint64_t ip)
{
	struct ptcode *c = v->code;
	const struct mapping *m = address_space_find(v->space, ip);

	if (m && m->image && m->image->id < c->n_files)
		atomic_fetch_add_explicit(&c->files[m->image->id].misses, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(m ? &c->unreadable : &c->unmapped, 1, memory_order_relaxed);
}

/* A stepper saves a page with the first bytes of the next one, which it may not have saved yet. */
static size_t read_on(const struct ptcode_version *v, uint64_t ip, size_t got, const uint8_t **ret)
{
	struct ptcode *c = v->code;
	const struct mapping *m = address_space_find(v->space, ip);

	if (!m || ip + got < m->end || !c->files[m->image->id].pages)
		return 0;
	return read_chunk(c, &c->files[m->image->id], m->pgoff + (ip - m->start) + got, INSN_MAX, ret);
}

size_t ptcode_read(const struct ptcode_version *v, uint64_t ip, const uint8_t **ret, uint8_t *buffer, size_t n)
{
	const uint8_t *bytes;
	size_t got = read_at(v, ip, &bytes), more;

	if (got == 0)
		return 0;
	if (got >= n) {
		*ret = bytes;
		return got;
	}
	/* An instruction may lie in two chunks, or in two mappings: the second is read only where it is needed. */
	memcpy(buffer, bytes, got);
	*ret = buffer;
	more = read_at(v, ip + got, &bytes);
	if (more == 0)
		more = read_on(v, ip, got, &bytes);
	if (more > n - got)
		more = n - got;
	if (more)
		memcpy(buffer + got, bytes, more);
	return got + more;
}

bool ptcode_insn(const struct ptcode_version *v, uint64_t ip, bool is64, struct insn *ret)
{
	uint8_t buffer[INSN_MAX];
	const uint8_t *code;
	const size_t n = ptcode_read(v, ip, &code, buffer, sizeof(buffer));

	return n > 0 && insn_decode(code, n, is64, ret);
}

const struct callfunc *ptcode_function(const struct ptcode_version *v, uint64_t ip, bool *ret_first)
{
	const struct mapping *m = address_space_find(v->space, ip);
	const struct callfunc *f;
	uint64_t vaddr;

	*ret_first = false;
	if (!m || !m->image || !image_vaddr(m->image, ip - m->start + m->pgoff, &vaddr))
		return callfuncs_unknown(v->code->functions);
	f = callfuncs_find(v->code->functions, m->image, vaddr);
	*ret_first = f->known && f->start == vaddr;
	return f;
}

bool ptcode_lands(const struct ptcode_version *v, uint64_t call, uint64_t pad)
{
	const struct mapping *a = address_space_find(v->space, call), *b = address_space_find(v->space, pad);
	uint64_t from, to;

	return a && b && a->image && a->image == b->image && image_vaddr(a->image, call - a->start + a->pgoff, &from) &&
	       image_vaddr(b->image, pad - b->start + b->pgoff, &to) && callfuncs_lands(v->code->functions, a->image, from, to);
}

void ptcode_report(const struct ptcode *c, struct json_object *losses)
{
	const uint64_t unmapped = atomic_load(&c->unmapped), unreadable = atomic_load(&c->unreadable);

	if (unmapped)
		json_add_uint(losses, "code_unmapped", unmapped);
	if (unreadable)
		json_add_uint(losses, "code_without_image", unreadable);
	if (c->no_memory)
		json_add_uint(losses, "maps_over_memory", c->no_memory);
}
