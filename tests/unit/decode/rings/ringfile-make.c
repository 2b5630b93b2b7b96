// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/decode/rings/ringfile-make.h"

#include <string.h>

#include "common/base/io.h"

struct ringmake {
	struct ring_geometry geometry;
	struct ringfile_header header;
	struct ringfile_ring *rings;
	uint64_t *heads;
	uint8_t *memory; /* the memfd */
};

struct ringmake *ringmake_free(struct ringmake *m)
{
	if (!m)
		return NULL;
	free(m->rings);
	free(m->heads);
	free(m->memory);
	free(m);
	return NULL;
}

struct ringmake *ringmake_new(const struct ringmake_options *options)
{
	_cleanup_(ringmake_freep) struct ringmake *m = calloc(1, sizeof(*m));
	struct ringmake_options o = *options;
	uint64_t rate = o.clock == RING_CLOCK_TSC ? 3 : 1;
	struct ring_geometry *g;
	struct ring_header *h;

	if (!m)
		return NULL;
	o.clock = o.clock ? o.clock : RING_CLOCK_MONOTONIC_RAW;
	o.pid = o.pid ? o.pid : 1000;
	o.nspid = o.nspid ? o.nspid : o.pid;
	o.begin_raw_ns = o.begin_raw_ns ? o.begin_raw_ns : 9000000000;
	o.end_raw_ns = o.end_raw_ns ? o.end_raw_ns : 10000000000;
	o.begin_tsc = o.begin_tsc ? o.begin_tsc : o.begin_raw_ns * rate;
	o.end_tsc = o.end_tsc ? o.end_tsc : o.end_raw_ns * rate;
	g = &m->geometry;
	g->rings = o.rings ? o.rings : 2;
	g->slots = o.slots ? o.slots : RING_MIN_SLOTS;
	g->names_max = o.names_max ? o.names_max : 256;
	g->text_bytes = o.text_bytes ? o.text_bytes : RING_PAGE;
	if (!ring_layout(g))
		return NULL;
	m->rings = calloc(g->rings, sizeof(*m->rings));
	m->heads = calloc(g->rings, sizeof(*m->heads));
	m->memory = calloc(1, g->total_bytes);
	if (!m->rings || !m->heads || !m->memory)
		return NULL;
	h = ringmake_program(m);
	memcpy(h->magic, RING_MAGIC, sizeof(h->magic));
	h->version = RING_VERSION;
	h->clock = o.clock;
	h->total_bytes = g->total_bytes;
	h->pid = o.nspid;
	h->rings = g->rings;
	h->slots = g->slots;
	h->names_max = g->names_max;
	h->text_bytes = g->text_bytes;
	h->text_offset = g->text_offset;
	h->dir_offset = g->dir_offset;
	h->data_offset = g->data_offset;
	m->header = (struct ringfile_header){.version = RINGFILE_VERSION,
		.pid = o.pid,
		.nspid = o.nspid,
		.start_time = o.start_time,
		.clock = o.clock,
		.rings = g->rings,
		.slots = g->slots,
		.names_max = g->names_max,
		.text_bytes = g->text_bytes,
		.begin_tsc = o.begin_tsc,
		.begin_raw_ns = o.begin_raw_ns,
		.end_tsc = o.end_tsc,
		.end_raw_ns = o.end_raw_ns,
		.shared_bytes = g->data_offset};
	memcpy(m->header.magic, RINGFILE_MAGIC, sizeof(m->header.magic));
	return take_ptr(m);
}

struct ring_header *ringmake_program(struct ringmake *m)
{
	return (void *)m->memory;
}

struct ring_entry *ringmake_entry(struct ringmake *m, uint32_t ring)
{
	return (struct ring_entry *)(void *)(m->memory + m->geometry.dir_offset) + ring;
}

struct ringfile_header *ringmake_header(struct ringmake *m)
{
	return &m->header;
}

struct ringfile_ring *ringmake_ring(struct ringmake *m, uint32_t ring)
{
	return &m->rings[ring];
}

struct ring_slot *ringmake_slot(struct ringmake *m, uint32_t ring, uint64_t index)
{
	struct ring_slot *slots = (void *)(m->memory + m->geometry.data_offset);

	return slots + (size_t)ring * m->geometry.slots + index % m->geometry.slots;
}

void ringmake_tear(struct ringmake *m, uint32_t ring, uint64_t index)
{
	ringmake_slot(m, ring, index)->sequence--;
}

uint32_t ringmake_name(struct ringmake *m, const char *text)
{
	return ringmake_name_bytes(m, text, strlen(text));
}

uint32_t ringmake_name_bytes(struct ringmake *m, const void *bytes, size_t len)
{
	struct ring_header *h = ringmake_program(m);
	struct ring_name *names = (void *)(m->memory + RING_NAMES_OFFSET);
	uint8_t *text = m->memory + m->geometry.text_offset;

	if (len == 0)
		return 0;
	for (uint32_t i = 0; i < h->n_names && i < m->geometry.names_max; i++)
		if (names[i].length == len && memcmp(text + names[i].offset, bytes, len) == 0)
			return i + 1;
	if (h->n_names >= m->geometry.names_max || len > m->geometry.text_bytes - h->text_used) {
		h->lost_names++;
		return 0;
	}
	memcpy(text + h->text_used, bytes, len);
	names[h->n_names] = (struct ring_name){
		.offset = h->text_used, .length = (uint32_t)len, .hash = ring_hash(bytes, len)};
	h->text_used += (uint32_t)len;
	return ++h->n_names;
}

void ringmake_field(struct ringmake_payload *p, uint32_t name, uint16_t type, const void *value,
		    size_t bytes)
{
	struct ring_field f = {.name = name, .type = type, .bytes = (uint16_t)bytes};
	size_t padded = (bytes + 3) / 4 * 4;

	if (sizeof(f) + padded > sizeof(p->bytes) - p->n)
		return;
	memcpy(p->bytes + p->n, &f, sizeof(f));
	memset(p->bytes + p->n + sizeof(f), 0, padded);
	if (bytes)
		memcpy(p->bytes + p->n + sizeof(f), value, bytes);
	p->n += sizeof(f) + padded;
}

void ringmake_u64(struct ringmake_payload *p, uint32_t name, uint64_t value)
{
	ringmake_field(p, name, RING_FIELD_U64, &value, sizeof(value));
}

void ringmake_i64(struct ringmake_payload *p, uint32_t name, int64_t value)
{
	ringmake_field(p, name, RING_FIELD_I64, &value, sizeof(value));
}

void ringmake_f64(struct ringmake_payload *p, uint32_t name, double value)
{
	ringmake_field(p, name, RING_FIELD_F64, &value, sizeof(value));
}

void ringmake_text(struct ringmake_payload *p, uint32_t name, const char *text)
{
	ringmake_field(p, name, RING_FIELD_TEXT, text, strlen(text));
}

uint64_t ringmake_record(struct ringmake *m, uint32_t ring, uint16_t kind, uint64_t stamp,
			 uint32_t name, uint64_t a, uint64_t b, const struct ringmake_payload *p)
{
	const uint32_t slots = m->geometry.slots;
	const uint64_t first = m->heads[ring];
	const size_t span = p ? (p->n + RING_CONT_BYTES - 1) / RING_CONT_BYTES : 0;
	uint8_t rest[RING_PAYLOAD_MAX] = {0};

	m->heads[ring] += 1 + span;
	*ringmake_slot(m, ring, first) = (struct ring_slot){.stamp = stamp,
		.name = name,
		.kind = (uint16_t)(kind | span << RING_SPAN_SHIFT),
		.sequence = ring_sequence(first, slots),
		.a = a,
		.b = b};
	if (p)
		memcpy(rest, p->bytes, p->n);
	for (size_t i = 0; i < span; i++) {
		uint8_t *slot = (uint8_t *)ringmake_slot(m, ring, first + 1 + i);
		uint16_t word[2] = {RING_CONT, ring_sequence(first + 1 + i, slots)};

		memcpy(slot, rest + i * RING_CONT_BYTES, 12);
		memcpy(slot + 12, word, sizeof(word));
		memcpy(slot + 16, rest + i * RING_CONT_BYTES + 12, 16);
	}
	ringmake_entry(m, ring)->head = m->heads[ring];
	m->rings[ring].ring = ring;
	m->rings[ring].head_before = m->rings[ring].head_after = m->heads[ring];
	return first;
}

uint64_t ringmake_thread(struct ringmake *m, uint32_t ring, uint64_t stamp, uint32_t tid,
			 const char *name)
{
	struct ring_entry *e = ringmake_entry(m, ring);
	const uint32_t before = e->tid, number = name ? ringmake_name(m, name) : 0;

	e->tid = tid;
	e->claims++;
	e->name = number;
	e->fiber = 0;
	e->claimed = stamp;
	m->rings[ring].host_tid = m->header.pid == m->header.nspid ? tid : 0;
	return ringmake_record(m, ring, RING_THREAD, stamp, number, tid, before, NULL);
}

uint64_t ringmake_fiber(struct ringmake *m, uint32_t ring, uint64_t stamp, uint64_t id,
			const char *name)
{
	struct ring_entry *e = ringmake_entry(m, ring);
	const uint64_t before = e->fiber;

	e->fiber = id;
	return ringmake_record(m, ring, RING_FIBER, stamp, name ? ringmake_name(m, name) : 0, id,
			       before, NULL);
}

uint64_t ringmake_begin(struct ringmake *m, uint32_t ring, uint64_t stamp, const char *name)
{
	return ringmake_record(m, ring, RING_REGION_BEGIN, stamp, ringmake_name(m, name), 0, 0,
			       NULL);
}

uint64_t ringmake_end(struct ringmake *m, uint32_t ring, uint64_t stamp, const char *name,
		      uint64_t begun)
{
	return ringmake_record(m, ring, RING_REGION_END, stamp, ringmake_name(m, name), begun, 0,
			       NULL);
}

uint8_t *ringmake_bytes(struct ringmake *m, size_t *ret_len)
{
	const struct ring_geometry *g = &m->geometry;
	const uint64_t bytes = (uint64_t)g->slots * RING_SLOT_BYTES;
	uint32_t n = 0, k = 0;
	uint8_t *out;
	uint64_t at;

	for (uint32_t i = 0; i < g->rings; i++)
		n += m->heads[i] > 0;
	m->header.n_rings = n;
	m->header.shared_offset = sizeof(m->header) + n * sizeof(*m->rings);
	at = m->header.shared_offset + g->data_offset;
	*ret_len = at + n * bytes;
	out = calloc(1, *ret_len);
	if (!out)
		return NULL;
	memcpy(out + m->header.shared_offset, m->memory, g->data_offset);
	for (uint32_t i = 0; i < g->rings; i++) {
		struct ringfile_ring e = m->rings[i];

		if (m->heads[i] == 0)
			continue;
		e.offset = at;
		e.bytes = bytes;
		memcpy(out + sizeof(m->header) + k++ * sizeof(e), &e, sizeof(e));
		memcpy(out + at, m->memory + g->data_offset + i * bytes, bytes);
		at += bytes;
	}
	memcpy(out, &m->header, sizeof(m->header));
	return out;
}

int ringmake_file(struct ringmake *m)
{
	_cleanup_close_ int fd = io_memfd("rings");
	_cleanup_free_ uint8_t *data = NULL;
	size_t len;

	data = ringmake_bytes(m, &len);
	if (!data || fd < 0 || io_pwrite_all(fd, data, len, 0) < 0)
		return -1;
	return take_fd(&fd);
}
