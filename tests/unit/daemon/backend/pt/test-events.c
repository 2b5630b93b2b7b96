// SPDX-License-Identifier: Apache-2.0
/*
 * What the kernel says of a trace beside it: records in a ring that takes the place of a real
 * event's.
 */
#include "daemon/backend/pt/events.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <event2/event.h>

#include "common/bundle/perfabi.h"
#include "daemon/backend/pt/attr.h"
#include "daemon/base/closer.h"

static int list_self(void *arg, pid_t **ret, size_t *ret_n)
{
	*ret = malloc(sizeof(**ret));
	assert_non_null(*ret);
	(*ret)[0] = getpid();
	*ret_n = 1;
	return 0;
}

/* As the kernel does. */
static void write_record(const struct ring *ring, const void *record, size_t size)
{
	struct perf_event_mmap_page *page = ring->base;

	for (size_t i = 0; i < size; i++)
		((uint8_t *)(uintptr_t)ring->data)[(page->data_head + i) % ring->size] =
			((const uint8_t *)record)[i];
	__atomic_store_n(&page->data_head, page->data_head + size, __ATOMIC_RELEASE);
}

static void write_aux(const struct ring *ring, uint64_t flags)
{
	const struct perfabi_aux aux = {.header = {.type = PERF_RECORD_AUX, .size = sizeof(aux)},
					.flags = flags};

	write_record(ring, &aux, sizeof(aux));
}

static void test_gaps(void **state)
{
	static const struct perf_event_header start = {.type = PERF_RECORD_ITRACE_START,
						       .size = sizeof(start)};
	static const struct perfabi_lost lost = {.header = {.type = PERF_RECORD_LOST,
							    .size = sizeof(lost)},
						 .lost = 5};
	const struct pt_attr_spec spec = {0};
	struct perf_event_attr attrs[PT_EVENT_KINDS];
	struct event_base *base = event_base_new();
	struct pt_events *events = NULL;
	struct ring own, *ring;
	struct closer *closer;
	int r;

	(void)state;
	assert_int_equal(closer_new(base, &closer), 0);
	for (int k = 0; k < PT_EVENT_KINDS; k++)
		pt_attr_sideband(&spec, 0, &attrs[k]);
	attrs[PT_EVENT_TRACE] = (struct perf_event_attr){.type = PERF_TYPE_SOFTWARE,
							 .size = sizeof(attrs[0]),
							 .config = PERF_COUNT_SW_DUMMY,
							 .disabled = 1,
							 .exclude_kernel = 1};
	r = pt_events_open(attrs, NULL, true, 0, closer, list_self, NULL, NULL, &events);
	if (r == 0) {
		ring = &events->first->sets[PT_EVENT_TRACE].rings[0];
		own = *ring;
		*ring = (struct ring){.base = calloc(1, sizeof(struct perf_event_mmap_page)),
				      .data = calloc(1, own.size),
				      .size = own.size};
		assert_true(ring->base && ring->data);
		write_record(ring, &start, sizeof(start));
		write_aux(ring, PERF_AUX_FLAG_TRUNCATED);
		write_aux(ring, PERF_AUX_FLAG_PARTIAL);
		write_aux(ring, PERF_AUX_FLAG_TRUNCATED | PERF_AUX_FLAG_PARTIAL);
		write_aux(ring, PERF_AUX_FLAG_OVERWRITE);
		write_record(ring, &lost, sizeof(lost));
		pt_events_drain(events);
		assert_int_equal(events->losses.truncated, 2);
		assert_int_equal(events->losses.partial, 2);
		assert_int_equal(events->losses.records, 5);
		/* for perf.data: who was traced, and the three gaps */
		assert_int_equal(events->n_records, sizeof(start) + 3 * sizeof(struct perfabi_aux));
		/*
		 * more of them than there is room for are counted, and leave the other kind its
		 * room
		 */
		for (unsigned int n = 0; n < 2 * PT_GAP_RECORDS_BYTES / sizeof(struct perfabi_aux);
		     n++) {
			write_aux(ring, PERF_AUX_FLAG_TRUNCATED);
			pt_events_drain(events);
		}
		assert_int_equal(events->losses.truncated,
				 2 + 2 * PT_GAP_RECORDS_BYTES / sizeof(struct perfabi_aux));
		assert_true(events->n_gap_records <= PT_GAP_RECORDS_BYTES);
		write_record(ring, &start, sizeof(start));
		pt_events_drain(events);
		assert_int_equal(events->n_starts, 2 * sizeof(start));
		free(ring->base);
		free((void *)(uintptr_t)ring->data);
		*ring = own;
	}
	(void)pt_events_put(events);
	(void)closer_free(closer);
	event_base_free(base);
	if (r == -EACCES || r == -EPERM || r == -ENOBUFS)
		skip();
	assert_int_equal(r, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_gaps)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
