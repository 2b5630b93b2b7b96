// SPDX-License-Identifier: Apache-2.0
/*
 * The copy of event rings into a file: what was written is there, whatever heads say; a writer that
 * goes on meanwhile tears nothing that a reader may believe; limits and cancel.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>
#include <event2/event.h>

#include "common/base/io.h"
#include "common/bundle/ringfile.h"
#include "daemon/base/clockseries.h"
#include "daemon/config.h"
#include "daemon/control/auth.h"
#include "daemon/control/quota.h"
#include "daemon/producer/producer.h"
#include "ring-make.h"

struct fixture {
	struct event_base *base;
	struct config config;
	struct quota quota;
	struct clockseries *clocks;
	struct producers *ps;
	struct peer peer;
	struct ring_memory m;
	struct producer *producer;
	/* the copy */
	int fd;
	uint8_t *file;
	uint64_t bytes;
	const struct ringfile_header *header;
	const struct ringfile_ring *rings;
	struct producer_copy_stats stats;
};

static bool wanted(void *arg)
{
	return false;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_int_equal(config_init(&f->config), 0);
	f->base = event_base_new();
	quota_init(&f->quota, &f->config);
	assert_int_equal(clockseries_new(f->base, wanted, NULL, &f->clocks), 0);
	assert_int_equal(producers_new(f->base, &f->config, &f->quota, f->clocks, &f->ps), 0);
	f->peer = (struct peer){.uid = 1,
				.pid = getpid(),
				.pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0)};
	f->m.fd = f->m.wake_fd = f->fd = -1;
	*state = f;
	return 0;
}

static void forget_file(struct fixture *f)
{
	free(f->file);
	f->file = NULL;
	f->fd = close_fd(f->fd);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	forget_file(f);
	ring_close(&f->m);
	(void)producers_free(f->ps);
	quota_fini(&f->quota);
	peer_fini(&f->peer);
	clockseries_free(f->clocks);
	event_base_free(f->base);
	config_fini(&f->config);
	free(f);
	return 0;
}

static void have(struct fixture *f, uint32_t rings, uint32_t slots)
{
	int control_fd = -1;
	char why[256];

	ring_make(&f->m, rings, slots);
	assert_int_equal(producers_register(f->ps, &f->peer, f->m.fd, f->m.wake_fd, &f->producer,
					    &control_fd, why, sizeof(why)),
			 0);
	(void)close(control_fd);
}

static int copy(struct fixture *f, uint64_t max, bool cancelled)
{
	atomic_bool cancel = cancelled;
	struct stat st;
	int r;

	forget_file(f);
	f->fd = memfd_create("copy", MFD_CLOEXEC);
	assert_true(f->fd >= 0);
	r = producer_copy(f->producer, f->fd, max, &cancel, &f->stats);
	if (r < 0)
		return r;
	assert_int_equal(fstat(f->fd, &st), 0);
	f->bytes = (uint64_t)st.st_size;
	f->file = malloc(f->bytes);
	assert_int_equal(io_pread_full(f->fd, f->file, f->bytes, 0), f->bytes);
	f->header = (const void *)f->file;
	f->rings = (const void *)(f->file + sizeof(*f->header));
	assert_memory_equal(f->header->magic, RINGFILE_MAGIC, 8);
	assert_int_equal(f->header->version, RINGFILE_VERSION);
	assert_int_equal(f->stats.bytes, f->bytes);
	assert_int_equal(f->stats.rings, f->header->n_rings);
	assert_int_equal(f->header->shared_bytes, f->m.geometry.data_offset);
	assert_true(f->header->shared_offset + f->header->shared_bytes <= f->bytes);
	for (uint32_t i = 0; i < f->header->n_rings; i++) {
		assert_int_equal(f->rings[i].bytes, f->m.geometry.slots * RING_SLOT_BYTES);
		assert_true(f->rings[i].offset + f->rings[i].bytes <= f->bytes);
	}
	assert_true(f->header->begin_raw_ns > 0 &&
		    f->header->begin_raw_ns <= f->header->end_raw_ns);
	return 0;
}

static const struct ring_slot *slots_of(struct fixture *f, uint32_t i)
{
	return (const void *)(f->file + f->rings[i].offset);
}

static void test_empty(void **state)
{
	struct fixture *f = *state;

	have(f, 4, 64);
	assert_int_equal(copy(f, UINT64_MAX, false), 0);
	assert_int_equal(f->header->n_rings, 0);
	assert_int_equal(f->header->flags, 0);
	assert_int_equal(f->header->pid, getpid());
	assert_int_equal(f->header->nspid, getpid());
	assert_int_equal(f->header->start_time, producer_start_time(f->producer));
	assert_int_equal(f->header->clock, RING_CLOCK_MONOTONIC_RAW);
	assert_int_equal(f->header->rings, 4);
	assert_int_equal(f->header->slots, 64);
	assert_memory_equal(f->file + f->header->shared_offset, f->m.map,
			    f->m.geometry.data_offset);
}

static void test_content(void **state)
{
	struct fixture *f = *state;

	have(f, 8, 64);
	memset(f->m.map + RING_NAMES_OFFSET, 0x5a, 4096);
	ring_entry_of(&f->m, 2)->tid = 77;
	for (uint64_t i = 0; i < 10; i++)
		ring_write(&f->m, 2, RING_INSTANT, i);
	ring_entry_of(&f->m, 7)->tid = 78;
	for (uint64_t i = 0; i < 1000; i++)
		ring_write(&f->m, 7, RING_INSTANT, i);
	ring_entry_of(&f->m, 5)->head = 1; /* nobody says who wrote it */
	assert_int_equal(copy(f, UINT64_MAX, false), 0);
	assert_int_equal(f->header->n_rings, 3);
	assert_int_equal(f->rings[0].ring, 2);
	assert_int_equal(f->rings[0].host_tid, 77);
	assert_int_equal(f->rings[0].head_before, 10);
	assert_int_equal(f->rings[0].head_after, 10);
	assert_int_equal(f->rings[1].ring, 5);
	assert_int_equal(f->rings[1].host_tid, 0);
	assert_int_equal(f->rings[2].head_before, 1000);
	assert_memory_equal(slots_of(f, 0), ring_slots_of(&f->m, 2), 64 * RING_SLOT_BYTES);
	assert_memory_equal(slots_of(f, 2), ring_slots_of(&f->m, 7), 64 * RING_SLOT_BYTES);
	assert_memory_equal(f->file + f->header->shared_offset, f->m.map,
			    f->m.geometry.data_offset);

	/* and after the program has gone */
	ring_close(&f->m);
	producer_end(f->producer);
	f->m.geometry = (struct ring_geometry){.rings = 8,
					       .slots = 64,
					       .names_max = 64,
					       .text_bytes = RING_PAGE};
	assert_true(ring_layout(&f->m.geometry));
	assert_int_equal(copy(f, UINT64_MAX, false), 0);
	assert_int_equal(f->header->flags, RINGFILE_ENDED);
	assert_true(f->stats.ended);
	assert_int_equal(slots_of(f, 2)[(1000 - 1) % 64].a, 999);
}

static void test_lies(void **state)
{
	static const uint64_t heads[] = {
		UINT64_MAX, UINT64_MAX - 63, 1ULL << 63, 1ULL << 32, 65, 64, 63, 1, 0};
	struct fixture *f = *state;

	have(f, 2, 64);
	for (uint64_t i = 0; i < 64; i++)
		ring_write(&f->m, 1, RING_INSTANT, i);
	for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
		/* also: each is lower than the one before it */
		ring_entry_of(&f->m, 1)->head = heads[i];
		ring_entry_of(&f->m, 1)->tid = 1u << 22; /* no thread has it */
		assert_int_equal(copy(f, UINT64_MAX, false), 0);
		assert_int_equal(f->header->n_rings, 1);
		assert_int_equal(f->rings[0].host_tid, 0);
		assert_int_equal(f->rings[0].head_before, heads[i]);
		assert_int_equal(f->rings[0].head_after, heads[i]);
		/* what can have been written by that head is there, the rest is a hole */
		for (uint64_t s = 0; s < 64; s++)
			assert_int_equal(slots_of(f, 0)[s].a,
					 s < heads[i] ? ring_slots_of(&f->m, 1)[s].a : 0);
	}
	/* the header that was checked says what is copied, not the one that is there now */
	memset(f->m.map, 0xff, RING_HEADER_BYTES);
	memset(f->m.map + f->m.geometry.dir_offset, 0xff, 2 * sizeof(struct ring_entry));
	assert_int_equal(copy(f, UINT64_MAX, false), 0);
	assert_int_equal(f->header->n_rings, 2);
	assert_int_equal(f->header->slots, 64);
}

static void test_limits(void **state)
{
	struct fixture *f = *state;
	uint64_t all;

	have(f, 4, 64);
	for (uint32_t i = 0; i < 4; i++)
		ring_write(&f->m, i, RING_INSTANT, i + 100);
	assert_int_equal(copy(f, UINT64_MAX, false), 0);
	all = f->bytes;
	assert_int_equal(copy(f, all, false), 0);
	assert_int_equal(f->header->n_rings, 4);
	assert_int_equal(copy(f, all - 1, false), 0);
	assert_int_equal(f->header->n_rings, 3);
	assert_int_equal(f->header->flags, RINGFILE_CUT);
	assert_int_equal(f->stats.rings_left_out, 1);
	assert_true(f->bytes <= all - 1);
	assert_int_equal(slots_of(f, 2)[0].a, 102);
	assert_int_equal(copy(f, all - 4 * 64 * RING_SLOT_BYTES, false), 0);
	assert_int_equal(f->header->n_rings, 0);
	assert_int_equal(f->stats.rings_left_out, 4);
	/* not even the names */
	assert_int_equal(copy(f, all - 4 * 64 * RING_SLOT_BYTES - 1, false), -EFBIG);
	assert_int_equal(copy(f, 0, false), -EFBIG);
}

static void test_cancel(void **state)
{
	struct fixture *f = *state;
	atomic_bool cancel = false;
	int fd;

	have(f, 4, 64);
	ring_write(&f->m, 0, RING_INSTANT, 1);
	assert_int_equal(copy(f, UINT64_MAX, true), -ECANCELED);
	/* a file that takes nothing */
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_true(producer_copy(f->producer, fd, UINT64_MAX, &cancel, &f->stats) < 0);
	(void)close(fd);
}

/* ---- a writer that goes on */

struct writer {
	struct ring_memory *m;
	atomic_bool stop;
};

static void *write_on(void *arg)
{
	struct writer *w = arg;

	for (uint64_t n = 0; !atomic_load_explicit(&w->stop, memory_order_relaxed); n++)
		ring_write(w->m, 0, RING_INSTANT, n);
	return NULL;
}

static void test_writer(void **state)
{
	struct fixture *f = *state;
	struct writer w = {.m = &f->m};
	uint64_t believed = 0;
	pthread_t thread;

	have(f, 1, 4096);
	assert_int_equal(pthread_create(&thread, NULL, write_on, &w), 0);
	for (int turn = 0; turn < 20000 && (turn < 50 || believed < 20000); turn++) {
		const struct ringfile_ring *r;
		uint64_t first, slots = 4096;

		assert_int_equal(copy(f, UINT64_MAX, false), 0);
		if (f->header->n_rings == 0)
			continue;
		r = &f->rings[0];
		assert_true(r->head_before <= r->head_after);
		first = r->head_before > slots ? r->head_before - slots : 0;
		if (r->head_after > slots && r->head_after - slots + RING_SPAN_MAX > first)
			first = r->head_after - slots + RING_SPAN_MAX;
		for (uint64_t i = first; i < r->head_before; i++) {
			const struct ring_slot *s = &slots_of(f, 0)[i % slots];

			/* reserved and not yet written when it was copied */
			if (s->sequence != ring_sequence(i, (uint32_t)slots))
				continue;
			if (s->a != i || s->b != ~i || s->stamp != i)
				print_message("slot %llu: %llu %llu\n", (unsigned long long)i,
					      (unsigned long long)s->stamp,
					      (unsigned long long)s->a);
			assert_true(s->a == i && s->b == ~i && s->stamp == i);
			believed++;
		}
	}
	atomic_store(&w.stop, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(believed > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_empty, setup, teardown),
		cmocka_unit_test_setup_teardown(test_content, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lies, setup, teardown),
		cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cancel, setup, teardown),
		cmocka_unit_test_setup_teardown(test_writer, setup, teardown),
	};

	return cmocka_run_group_tests_name("ringcopy", tests, NULL, NULL);
}
