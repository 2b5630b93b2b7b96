// SPDX-License-Identifier: Apache-2.0
#include "ring-make.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

bool ring_make_raw(struct ring_memory *m, uint32_t rings, uint32_t slots, uint64_t bytes,
		   unsigned int flags)
{
	struct ring_geometry g = {.rings = rings,
				  .slots = slots,
				  .names_max = 64,
				  .text_bytes = RING_PAGE};
	void *map;

	*m = (struct ring_memory){.fd = -1, .wake_fd = -1};
	assert_true(ring_layout(&g));
	m->geometry = g;
	if (!bytes)
		bytes = g.total_bytes;
	m->fd = memfd_create("rings", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
	if (m->fd < 0 || ftruncate(m->fd, (off_t)bytes) < 0)
		return false;
	m->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	assert_true(m->wake_fd >= 0);
	map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
	if (map == MAP_FAILED)
		return false;
	m->map = map;
	m->geometry.total_bytes = bytes;
	m->header = map;
	if (bytes < sizeof(*m->header))
		return true;
	*m->header = (struct ring_header){
		.version = RING_VERSION,
		.clock = RING_CLOCK_MONOTONIC_RAW,
		.total_bytes = g.total_bytes,
		.pid = (uint32_t)getpid(),
		.rings = rings,
		.slots = slots,
		.names_max = g.names_max,
		.text_bytes = g.text_bytes,
		.text_offset = g.text_offset,
		.dir_offset = g.dir_offset,
		.data_offset = g.data_offset,
	};
	memcpy(m->header->magic, RING_MAGIC, sizeof(m->header->magic));
	return true;
}

void ring_seal(struct ring_memory *m, unsigned int seals)
{
	if (seals & F_SEAL_WRITE) {
		/* there must be no writable mapping then */
		(void)munmap(m->map, m->geometry.total_bytes);
		m->map = NULL;
		m->header = NULL;
	}
	assert_int_equal(fcntl(m->fd, F_ADD_SEALS, seals), 0);
}

void ring_make(struct ring_memory *m, uint32_t rings, uint32_t slots)
{
	assert_true(ring_make_raw(m, rings, slots, 0, 0));
	ring_seal(m, RING_SEALS);
}

void ring_close(struct ring_memory *m)
{
	if (m->map)
		(void)munmap(m->map, m->geometry.total_bytes);
	if (m->fd >= 0)
		(void)close(m->fd);
	if (m->wake_fd >= 0)
		(void)close(m->wake_fd);
	*m = (struct ring_memory){.fd = -1, .wake_fd = -1};
}

struct ring_entry *ring_entry_of(struct ring_memory *m, uint32_t ring)
{
	return (struct ring_entry *)(m->map + m->geometry.dir_offset) + ring;
}

struct ring_slot *ring_slots_of(struct ring_memory *m, uint32_t ring)
{
	return (struct ring_slot *)(m->map + m->geometry.data_offset) +
	       (size_t)ring * m->geometry.slots;
}

void ring_write(struct ring_memory *m, uint32_t ring, uint32_t kind, uint64_t a)
{
	struct ring_entry *entry = ring_entry_of(m, ring);
	uint64_t i = __atomic_fetch_add(&entry->head, 1, __ATOMIC_SEQ_CST);
	struct ring_slot *slot = &ring_slots_of(m, ring)[i % m->geometry.slots];
	struct ring_slot new = {.kind = (uint16_t)kind,
				.sequence = ring_sequence(i, m->geometry.slots)};
	uint64_t word;

	__atomic_store_n(&slot->stamp, i, __ATOMIC_RELAXED);
	__atomic_store_n(&slot->a, a, __ATOMIC_RELAXED);
	__atomic_store_n(&slot->b, ~a, __ATOMIC_RELAXED);
	memcpy(&word, &new.name, sizeof(word));
	__atomic_store_n((uint64_t *)(void *)&slot->name, word, __ATOMIC_RELEASE);
}

void ring_wake(struct ring_memory *m)
{
	const uint64_t one = 1;

	assert_int_equal(write(m->wake_fd, &one, sizeof(one)), sizeof(one));
}

uint64_t ring_cause_write(struct ring_memory *m, const struct ring_cause *cause, const char *text)
{
	struct ring_cause *causes = (struct ring_cause *)(m->map + RING_CAUSES_OFFSET), *c;
	uint64_t i = __atomic_fetch_add(&m->header->cause_head, 1, __ATOMIC_SEQ_CST);

	c = &causes[i % RING_CAUSES];
	__atomic_store_n(&c->sequence, 0, __ATOMIC_SEQ_CST);
	c->kind = cause->kind;
	c->tid = cause->tid;
	c->name = cause->name;
	c->trigger = cause->trigger;
	c->begin = cause->begin;
	c->end = cause->end;
	c->length = cause->length ? cause->length : (uint32_t)strlen(text);
	memcpy(c->text, text, strlen(text));
	__atomic_store_n(&c->sequence, i + 1, __ATOMIC_SEQ_CST);
	ring_wake(m);
	return i;
}
