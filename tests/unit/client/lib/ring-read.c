// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/client/lib/ring-read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "common/base/io.h"

struct ringread *ringread_new(int fd)
{
	struct ringread *r = calloc(1, sizeof(*r));
	struct stat st;

	assert_non_null(r);
	assert_int_equal(fstat(fd, &st), 0);
	r->bytes = malloc((size_t)st.st_size);
	assert_non_null(r->bytes);
	assert_int_equal(io_pread_full(fd, r->bytes, (size_t)st.st_size, 0), st.st_size);
	memcpy(&r->header, r->bytes, sizeof(r->header));
	assert_true(ring_header_check(&r->header, (uint64_t)st.st_size, &r->geometry));
	return r;
}

struct ringread *ringread_free(struct ringread *r)
{
	if (r)
		free(r->bytes);
	free(r);
	return NULL;
}

const struct ring_entry *ringread_entry(const struct ringread *r, uint32_t ring)
{
	assert_true(ring < r->geometry.rings);
	return (const struct ring_entry *)(const void *)(r->bytes + r->geometry.dir_offset) + ring;
}

const struct ring_slot *ringread_slot(const struct ringread *r, uint32_t ring, uint64_t index)
{
	assert_true(ring < r->geometry.rings);
	return (const struct ring_slot *)(const void *)(r->bytes + r->geometry.data_offset) +
	       (size_t)ring * r->geometry.slots + index % r->geometry.slots;
}

uint32_t ringread_of_thread(const struct ringread *r, uint32_t tid)
{
	for (uint32_t i = 0; i < r->geometry.rings; i++) {
		if (ringread_entry(r, i)->tid == tid)
			return i;
	}
	fail_msg("thread %u has no ring", tid);
	return 0;
}

static bool slot_is_whole(const struct ringread *r, uint32_t ring, uint64_t index)
{
	return ringread_slot(r, ring, index)->sequence == ring_sequence(index, r->geometry.slots);
}

bool ringread_record(const struct ringread *r, uint32_t ring, uint64_t index,
		     struct ringread_record *ret, uint64_t *ret_next)
{
	const struct ring_slot *s = ringread_slot(r, ring, index);
	struct ringread_record record = {.kind = s->kind & RING_KIND_MASK,
		.flags = s->kind & 0x3c0U,
		.span = s->kind >> RING_SPAN_SHIFT,
		.name = s->name,
		.stamp = s->stamp,
		.a = s->a,
		.b = s->b};

	if (!slot_is_whole(r, ring, index) || record.span > RING_SPAN_MAX ||
	    record.kind == RING_CONT || record.kind == 0 || record.kind >= _RING_KIND_MAX)
		return false;
	for (uint32_t i = 1; i <= record.span; i++) {
		const struct ring_slot *c = ringread_slot(r, ring, index + i);

		if (!slot_is_whole(r, ring, index + i) || c->kind != RING_CONT)
			return false;
		memcpy(record.payload + record.n, c, 12);
		memcpy(record.payload + record.n + 12, (const uint8_t *)c + 16, 16);
		record.n += RING_CONT_BYTES;
	}
	*ret = record;
	*ret_next = index + 1 + record.span;
	return true;
}

bool ringread_field(struct ringread_record *record, struct ring_field *ret,
		    const uint8_t **ret_value)
{
	struct ring_field f;

	if (record->n - record->at < sizeof(f))
		return false;
	memcpy(&f, record->payload + record->at, sizeof(f));
	if (f.type == RING_FIELD_END)
		return false;
	record->at += sizeof(f);
	assert_true(f.bytes <= record->n - record->at);
	*ret = f;
	*ret_value = record->payload + record->at;
	record->at += (f.bytes + 3U) & ~3U;
	/* padded with zeroes */
	for (uint32_t i = f.bytes; i % 4; i++)
		assert_int_equal((*ret_value)[i], 0);
	return true;
}

const char *ringread_name(const struct ringread *r, uint32_t name)
{
	static char text[RING_MAX_NAME + 1];
	struct ring_name n;

	if (name == 0 || name > r->geometry.names_max)
		return NULL;
	memcpy(&n, r->bytes + RING_NAMES_OFFSET + (size_t)(name - 1) * sizeof(n), sizeof(n));
	if (n.length == 0)
		return NULL;
	assert_true(n.length <= RING_MAX_NAME && n.offset <= r->geometry.text_bytes - n.length);
	memcpy(text, r->bytes + r->geometry.text_offset + n.offset, n.length);
	text[n.length] = 0;
	assert_int_equal(n.hash, ring_hash(text, n.length));
	return text;
}
