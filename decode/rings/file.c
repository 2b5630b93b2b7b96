// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/rings/file.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/io.h"

#define MAX_PID 4194304u

struct ringfile {
	uint8_t *data;
	size_t size, charged;
	struct budget *budget; /* borrowed */
	struct ringfile_header header;
	struct ring_geometry geometry;
	struct ringfile_ring *rings; /* the usable ones */
	uint32_t n_rings, invalid;
};

struct ringfile *ringfile_free(struct ringfile *f)
{
	if (!f)
		return NULL;
	budget_give(f->budget, f->charged);
	free(f->rings);
	free(f->data);
	free(f);
	return NULL;
}

static bool inside(const struct ringfile *f, uint64_t offset, uint64_t bytes)
{
	return offset <= f->size && bytes <= f->size - offset;
}

static bool check_header(struct ringfile *f)
{
	struct ringfile_header *h = &f->header;
	struct ring_geometry *g = &f->geometry;

	if (f->size < sizeof(*h))
		return false;
	memcpy(h, f->data, sizeof(*h));
	*g = (struct ring_geometry){.rings = h->rings,
		.slots = h->slots,
		.names_max = h->names_max,
		.text_bytes = h->text_bytes};
	if (memcmp(h->magic, RINGFILE_MAGIC, sizeof(h->magic)) != 0 ||
	    h->version != RINGFILE_VERSION)
		return false;
	if (h->clock != RING_CLOCK_TSC && h->clock != RING_CLOCK_MONOTONIC_RAW)
		return false;
	if (!ring_layout(g) || h->n_rings > g->rings || h->shared_bytes != g->data_offset ||
		!inside(f, h->shared_offset, h->shared_bytes))
		return false;
	if (h->pid == 0 || h->pid > MAX_PID)
		return false;
	if (h->begin_tsc > h->end_tsc || h->begin_raw_ns > h->end_raw_ns || h->end_raw_ns == 0)
		return false;
	return inside(f, sizeof(*h), (uint64_t)h->n_rings * sizeof(struct ringfile_ring));
}

/*
 * Keeps the rings that are there. They follow one another: if they could share bytes, a small
 * file could name the same ones a thousand times.
 */
static int read_table(struct ringfile *f)
{
	const uint64_t bytes = (uint64_t)f->geometry.slots * RING_SLOT_BYTES;
	uint64_t seen[(RING_MAX_RINGS + 63) / 64] = {0}, end = 0;

	f->rings = calloc(f->header.n_rings + 1, sizeof(*f->rings));
	if (!f->rings)
		return -ENOMEM;
	for (uint32_t i = 0; i < f->header.n_rings; i++) {
		struct ringfile_ring e;

		memcpy(&e, f->data + sizeof(f->header) + i * sizeof(e), sizeof(e));
		if (e.ring >= f->geometry.rings ||
		    (seen[e.ring / 64] & UINT64_C(1) << e.ring % 64) || e.bytes != bytes ||
		    e.offset < end || !inside(f, e.offset, bytes) || e.head_before > e.head_after) {
			f->invalid++;
			continue;
		}
		seen[e.ring / 64] |= UINT64_C(1) << e.ring % 64;
		end = e.offset + bytes;
		f->rings[f->n_rings++] = e;
	}
	return 0;
}

int ringfile_read(int fd, struct budget *budget, struct ringfile **ret)
{
	_cleanup_(ringfile_freep) struct ringfile *f = calloc(1, sizeof(*f));
	struct stat st;
	ssize_t n;
	int r;

	if (!f)
		return -ENOMEM;
	f->budget = budget;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size < (off_t)sizeof(f->header))
		return RINGFILE_E_INVALID;
	if (!budget_take(budget, (uint64_t)st.st_size))
		return RINGFILE_E_MEMORY;
	f->charged = (size_t)st.st_size;
	f->data = malloc(f->charged);
	if (!f->data)
		return -ENOMEM;
	n = io_pread_full(fd, f->data, f->charged, 0);
	if (n < 0)
		return (int)n;
	f->size = (size_t)n;
	if (!check_header(f))
		return RINGFILE_E_INVALID;
	r = read_table(f);
	if (r < 0)
		return r;
	*ret = take_ptr(f);
	return 0;
}

const struct ringfile_header *ringfile_header(const struct ringfile *f)
{
	return &f->header;
}

static const uint8_t *shared(const struct ringfile *f)
{
	return f->data + f->header.shared_offset;
}

void ringfile_program(const struct ringfile *f, struct ring_header *ret_u)
{
	memcpy(ret_u, shared(f), sizeof(*ret_u));
}

uint32_t ringfile_n_rings(const struct ringfile *f)
{
	return f->n_rings;
}

uint32_t ringfile_rings_invalid(const struct ringfile *f)
{
	return f->invalid;
}

const struct ringfile_ring *ringfile_ring(const struct ringfile *f, uint32_t i)
{
	return &f->rings[i];
}

void ringfile_entry(const struct ringfile *f, uint32_t i, struct ring_entry *ret_u)
{
	memcpy(ret_u, shared(f) + f->geometry.dir_offset + f->rings[i].ring * sizeof(*ret_u),
	       sizeof(*ret_u));
}

static const uint8_t *slot_at(const struct ringfile *f, uint32_t i, uint64_t position)
{
	return f->data + f->rings[i].offset +
	       (position & (f->geometry.slots - 1)) * RING_SLOT_BYTES;
}

void ringfile_slot(const struct ringfile *f, uint32_t i, uint64_t position, struct ring_slot *ret_u)
{
	memcpy(ret_u, slot_at(f, i, position), sizeof(*ret_u));
}

size_t ringfile_payload(const struct ringfile *f, uint32_t i, uint64_t position, uint32_t span,
	uint8_t ret[RING_PAYLOAD_MAX])
{
	size_t n = 0;

	for (uint32_t k = 0; k < span && k < RING_SPAN_MAX; k++) {
		const uint8_t *slot = slot_at(f, i, position + k);

		memcpy(ret + n, slot, 12);
		memcpy(ret + n + 12, slot + 16, 16);
		n += RING_CONT_BYTES;
	}
	return n;
}

const char *ringfile_name(const struct ringfile *f, uint32_t number, size_t *ret_len)
{
	const struct ring_geometry *g = &f->geometry;
	struct ring_name name;

	if (number == 0 || number > g->names_max)
		return NULL;
	memcpy(&name, shared(f) + RING_NAMES_OFFSET + (number - 1) * sizeof(name), sizeof(name));
	if (name.length == 0 || name.length > RING_MAX_NAME || name.offset > g->text_bytes ||
		name.length > g->text_bytes - name.offset)
		return NULL;
	*ret_len = name.length;
	return (const char *)shared(f) + g->text_offset + name.offset;
}
