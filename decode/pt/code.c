// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/pt/code.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/insn.h"
#include "common/base/io.h"
#include "common/control/json.h"
#include "decode/calls/functions.h"
#include "decode/object/address_space.h"
#include "decode/object/image.h"

#define CHUNK_BITS 16u
#define CHUNK_BYTES (1u << CHUNK_BITS)
#define TABLE_BITS 12u /* chunks of a table */
#define MAX_FILE (1ull << 47) /* a dump of memory, whose offsets are addresses */

typedef _Atomic(uint8_t *) chunk;

/*
 * The bytes of one image, read in chunks when they are first asked for. Files may be large, and
 * mostly holes: so there are tables.
 */
struct codefile {
	const struct image *image; /* borrowed */
	uint64_t size;
	_Atomic(chunk *) *tables;
	size_t n_tables;
	bool pages; /* saved by a stepper, see step/code.h */
};

struct ptcode {
	struct images *images;
	struct budget *budget;
	struct callfuncs *functions;
	struct codefile *files; /* of each image, by its id less 1 */
	size_t n_files;
	pthread_mutex_t lock;
	struct budget chunks; /* of the budget, set aside: that is not for several threads */
	atomic_ullong unmapped, unreadable;
	uint64_t charged;
};

/* ---- files: all are opened now, while the parent can be asked */

static int open_file(struct ptcode *c, struct image *image, struct codefile *f)
{
	int r = image_open(c->images, image);

	f->image = image;
	if (r < 0 || image->state != IMAGE_READY)
		return r;
	r = image->flat ? 0 : image_load_symbols(c->images, image);
	if (r >= 0 && !image->flat)
		r = callfuncs_add(c->functions, image);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < image->n_loads; i++)
		if (image->loads[i].exec && image->loads[i].off + image->loads[i].size > f->size)
			f->size = image->loads[i].off + image->loads[i].size;
	f->pages = image->ino == 0 && !image->flat && image->n_loads == 1 && image->loads[0].exec &&
		   image->loads[0].off == 0 && image->loads[0].vaddr == 0;
	if (f->size > MAX_FILE)
		f->size = MAX_FILE;
	f->n_tables =
		(size_t)((f->size + (CHUNK_BYTES << TABLE_BITS) - 1) >> (CHUNK_BITS + TABLE_BITS));
	if (!budget_take(c->budget, f->n_tables * sizeof(*f->tables))) {
		f->n_tables = 0;
		return 0;
	}
	c->charged += f->n_tables * sizeof(*f->tables);
	f->tables = calloc(f->n_tables ? f->n_tables : 1, sizeof(*f->tables));
	return f->tables ? 0 : -ENOMEM;
}

static int open_files(struct ptcode *c)
{
	uint64_t want = 0, most = (c->budget->max - c->budget->used) / 4;
	const uint32_t n = images_count(c->images);

	c->files = calloc(n ? n : 1, sizeof(*c->files));
	if (!c->files)
		return -ENOMEM;
	c->n_files = n;
	for (uint32_t i = 0; i < n; i++) {
		const int r = open_file(c, images_at(c->images, i), &c->files[i]);

		if (r < 0)
			return r;
		want += c->files[i].size + CHUNK_BYTES +
			((uint64_t)c->files[i].n_tables << TABLE_BITS) * sizeof(chunk);
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
	(void)pthread_mutex_init(&c->lock, NULL);
	r = callfuncs_new(budget, &c->functions);
	if (r == 0)
		r = open_files(c);
	if (r < 0)
		return r;
	*ret = take_ptr(c);
	return 0;
}

struct ptcode *ptcode_free(struct ptcode *c)
{
	if (!c)
		return NULL;
	for (size_t i = 0; i < c->n_files; i++) {
		for (size_t k = 0; k < c->files[i].n_tables; k++) {
			for (size_t j = 0; c->files[i].tables[k] && j < 1u << TABLE_BITS; j++)
				free(c->files[i].tables[k][j]);
			free(c->files[i].tables[k]);
		}
		free(c->files[i].tables);
	}
	free(c->files);
	callfuncs_free(c->functions);
	budget_give(c->budget, c->charged);
	(void)pthread_mutex_destroy(&c->lock);
	free(c);
	return NULL;
}

/* ---- reading */

static chunk *make_table(struct ptcode *c, struct codefile *f, size_t i)
{
	const size_t bytes = sizeof(chunk) << TABLE_BITS;
	chunk *table = atomic_load_explicit(&f->tables[i], memory_order_relaxed);

	if (table || !budget_take(&c->chunks, bytes))
		return table;
	table = calloc(1, bytes);
	atomic_store_explicit(&f->tables[i], table, memory_order_release);
	return table;
}

static uint8_t *read_file(const struct image *image, uint64_t at)
{
	uint8_t *bytes = calloc(1, CHUNK_BYTES);
	ssize_t n = 0;

	if (bytes && image->fd >= 0) {
		n = io_pread_full(image->fd, bytes, CHUNK_BYTES, (off_t)at);
	} else if (bytes && image->mem && at < image->mem_size) {
		n = image->mem_size - at < CHUNK_BYTES ? (ssize_t)(image->mem_size - at)
						       : (ssize_t)CHUNK_BYTES;
		memcpy(bytes, image->mem + at, (size_t)n);
	}
	if (n > 0)
		return bytes;
	free(bytes);
	return NULL;
}

static const uint8_t *load_chunk(struct ptcode *c, struct codefile *f, size_t i)
{
	uint8_t *bytes = NULL;
	chunk *table, *at;

	(void)pthread_mutex_lock(&c->lock);
	table = make_table(c, f, i >> TABLE_BITS);
	at = table ? &table[i & ((1u << TABLE_BITS) - 1)] : NULL;
	if (at)
		bytes = atomic_load_explicit(at, memory_order_relaxed);
	if (at && !bytes && budget_take(&c->chunks, CHUNK_BYTES)) {
		bytes = read_file(f->image, (uint64_t)i << CHUNK_BITS);
		if (!bytes)
			budget_give(&c->chunks, CHUNK_BYTES);
		atomic_store_explicit(at, bytes, memory_order_release);
	}
	(void)pthread_mutex_unlock(&c->lock);
	return bytes;
}

static const uint8_t *chunk_at(struct ptcode *c, struct codefile *f, size_t i)
{
	chunk *table = atomic_load_explicit(&f->tables[i >> TABLE_BITS], memory_order_acquire);
	const uint8_t *bytes = table ? atomic_load_explicit(&table[i & ((1u << TABLE_BITS) - 1)],
							    memory_order_acquire)
				     : NULL;

	return bytes ? bytes : load_chunk(c, f, i);
}

/* What lies together in one chunk, at most `left` bytes of the mapping. */
static size_t read_chunk(struct ptcode *c, struct codefile *f, uint64_t off, uint64_t left,
			 const uint8_t **ret)
{
	const size_t i = (size_t)(off >> CHUNK_BITS);
	const uint64_t in = off & (CHUNK_BYTES - 1);
	uint64_t n = CHUNK_BYTES - in;
	const uint8_t *bytes;

	if (off >= f->size || i >> TABLE_BITS >= f->n_tables)
		return 0;
	bytes = chunk_at(c, f, i);
	if (!bytes)
		return 0;
	if (n > left)
		n = left;
	if (n > f->size - off)
		n = f->size - off;
	*ret = bytes + in;
	return (size_t)n;
}

static struct codefile *file_of(struct ptcode *c, const struct mapping *m)
{
	return &c->files[m->image->id - 1];
}

/* What lies together at `ip`, all of it in one mapping. */
static size_t read_at(struct ptcode *c, const struct address_space *s, uint64_t ip,
		      const uint8_t **ret)
{
	const struct mapping *m = address_space_find(s, ip);

	return m ? read_chunk(c, file_of(c, m), m->pgoff + (ip - m->start), m->end - ip, ret) : 0;
}

void ptcode_missing(struct ptcode *c, const struct address_space *s, uint64_t ip)
{
	const struct mapping *m = address_space_find(s, ip);

	atomic_fetch_add_explicit(m ? &c->unreadable : &c->unmapped, 1, memory_order_relaxed);
}

/* A stepper saves a page with the first bytes of the next one, which it may not have saved yet. */
static size_t read_on(struct ptcode *c, const struct address_space *s, uint64_t ip, size_t got,
		      const uint8_t **ret)
{
	const struct mapping *m = address_space_find(s, ip);

	if (!m || ip + got < m->end || !file_of(c, m)->pages)
		return 0;
	return read_chunk(c, file_of(c, m), m->pgoff + (ip - m->start) + got, INSN_MAX, ret);
}

size_t ptcode_read(struct ptcode *c, const struct address_space *s, uint64_t ip,
		   const uint8_t **ret, uint8_t *buffer, size_t n)
{
	const uint8_t *bytes;
	size_t got = read_at(c, s, ip, &bytes), more;

	if (got == 0)
		return 0;
	if (got >= n) {
		*ret = bytes;
		return got;
	}
	/*
	 * An instruction may lie in two chunks, or in two mappings: the second is read only where
	 * it is needed.
	 */
	memcpy(buffer, bytes, got);
	*ret = buffer;
	more = read_at(c, s, ip + got, &bytes);
	if (more == 0)
		more = read_on(c, s, ip, got, &bytes);
	if (more > n - got)
		more = n - got;
	if (more)
		memcpy(buffer + got, bytes, more);
	return got + more;
}

bool ptcode_insn(struct ptcode *c, const struct address_space *s, uint64_t ip, bool is64,
		 struct insn *ret)
{
	uint8_t buffer[INSN_MAX];
	const uint8_t *code;
	const size_t n = ptcode_read(c, s, ip, &code, buffer, sizeof(buffer));

	return n > 0 && insn_decode(code, n, is64, ret);
}

const struct callfunc *ptcode_function(const struct ptcode *c, const struct address_space *s,
				       uint64_t ip, bool *ret_first)
{
	const struct mapping *m = address_space_find(s, ip);
	const struct callfunc *f;
	uint64_t vaddr;

	*ret_first = false;
	if (!m || !image_vaddr(m->image, ip - m->start + m->pgoff, &vaddr))
		return callfuncs_unknown(c->functions);
	f = callfuncs_find(c->functions, m->image, vaddr);
	*ret_first = f->known && f->start == vaddr;
	return f;
}

bool ptcode_lands(const struct ptcode *c, const struct address_space *s, uint64_t call,
		  uint64_t pad)
{
	const struct mapping *a = address_space_find(s, call), *b = address_space_find(s, pad);
	uint64_t from, to;

	return a && b && a->image == b->image &&
	       image_vaddr(a->image, call - a->start + a->pgoff, &from) &&
	       image_vaddr(b->image, pad - b->start + b->pgoff, &to) &&
	       callfuncs_lands(c->functions, a->image, from, to);
}

bool ptcode_begin(const struct ptcode *c, const struct address_space *s, uint64_t ip, uint64_t *ret)
{
	const struct mapping *m = address_space_find(s, ip);
	uint64_t vaddr, start;

	if (!m || !image_vaddr(m->image, ip - m->start + m->pgoff, &vaddr) ||
	    !callfuncs_begin(c->functions, m->image, vaddr, &start) || vaddr - start > ip)
		return false;
	*ret = ip - (vaddr - start);
	return true;
}

bool ptcode_is_entry(const struct address_space *s, uint64_t ip)
{
	const struct mapping *m = address_space_find(s, ip);
	uint64_t vaddr;

	return m && m->image->state == IMAGE_READY && m->image->entry &&
	       image_vaddr(m->image, ip - m->start + m->pgoff, &vaddr) && vaddr == m->image->entry;
}

void ptcode_report(const struct ptcode *c, struct json_object *losses)
{
	const uint64_t unmapped = atomic_load(&c->unmapped),
		       unreadable = atomic_load(&c->unreadable);

	if (unmapped)
		json_add_uint(losses, "code_unmapped", unmapped);
	if (unreadable)
		json_add_uint(losses, "code_without_image", unreadable);
}
