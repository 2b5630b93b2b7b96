// SPDX-License-Identifier: Apache-2.0
/*
 * A target's history: its limit, what compaction forgets and what not, frozen views, made-up
 * records.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/procfs.h"
#include "common/bundle/perfabi.h"
#include "daemon/target/proc_records.h"
#include "daemon/target/sideband_events.h"
#include "daemon/target/sideband_log.h"

union any {
	struct perf_event_header header;
	struct perfabi_task task;
	struct perfabi_comm comm;
	struct perfabi_mmap2 mmap2;
	uint8_t bytes[512];
};

static const struct perf_event_header *finish(union any *r, uint32_t type, size_t len,
					      uint64_t time)
{
	struct perfabi_sample_id id = {.time = time, .id = 5};

	memcpy(r->bytes + len, &id, sizeof(id));
	r->header = (struct perf_event_header){.type = type, .size = (uint16_t)(len + sizeof(id))};
	return &r->header;
}

static const struct perf_event_header *task(union any *r, uint32_t type, uint32_t pid, uint32_t tid,
					    uint64_t time)
{
	*r = (union any){.task = {.pid = pid, .ppid = pid, .tid = tid, .ptid = pid, .time = time}};
	return finish(r, type, sizeof(r->task), time);
}

static const struct perf_event_header *comm(union any *r, uint32_t pid, uint32_t tid, uint64_t time)
{
	*r = (union any){.comm = {.pid = pid, .tid = tid}};
	memcpy(r->bytes + sizeof(r->comm), "name", 5);
	return finish(r, PERF_RECORD_COMM, sizeof(r->comm) + 8, time);
}

static const struct perf_event_header *map(union any *r, uint32_t pid, uint64_t addr, uint64_t len,
					   uint64_t time)
{
	*r = (union any){
		.mmap2 = {.pid = pid, .tid = pid, .addr = addr, .len = len, .prot = PROT_EXEC}};
	memcpy(r->bytes + sizeof(r->mmap2), "//anon", 7);
	return finish(r, PERF_RECORD_MMAP2, sizeof(r->mmap2) + 8, time);
}

/* Both halves at once. */
static int compact(struct sideband_log *log, uint64_t oldest_ns)
{
	struct sideband_log fresh = {0};
	struct sideband_log_view view;
	int r;

	assert_int_equal(sideband_log_freeze(log, &view), 0);
	r = sideband_log_compact(&view, oldest_ns, &fresh);
	if (r == 0)
		r = sideband_log_replace(log, &view, &fresh);
	sideband_log_view_fini(&view);
	sideband_log_fini(&fresh);
	return r;
}

static size_t count(const struct sideband_log *log, uint32_t type, uint32_t pid, uint32_t tid)
{
	struct sideband_log_view view;
	const uint8_t *block;
	size_t len, n = 0;

	assert_int_equal(sideband_log_freeze(log, &view), 0);
	for (size_t i = 0; (block = sideband_log_view_block(&view, i, &len)) != NULL; i++) {
		for (size_t at = 0; at < len;
		     at += ((const struct perf_event_header *)(block + at))->size) {
			const struct perfabi_task *t = (const void *)(block + at);
			uint32_t its = type == PERF_RECORD_FORK || type == PERF_RECORD_EXIT
					       ? t->tid
					       : ((const struct perfabi_comm *)t)->tid;

			n += t->header.type == type && t->pid == pid && (!tid || its == tid);
		}
	}
	sideband_log_view_fini(&view);
	return n;
}

static void test_compact(void **state)
{
	struct sideband_log log;
	union any r;

	sideband_log_init(&log, 1 << 20);
	assert_int_equal(sideband_log_append(&log, comm(&r, 1, 1, 10)), 0);
	assert_int_equal(sideband_log_append(&log, map(&r, 1, 0x1000, 0x2000, 10)), 0);
	/* replaces */
	assert_int_equal(sideband_log_append(&log, map(&r, 1, 0x1000, 0x2000, 20)), 0);
	assert_int_equal(sideband_log_append(&log, map(&r, 1, 0x8000, 0x2000, 20)), 0);
	/* only a part of it */
	assert_int_equal(sideband_log_append(&log, map(&r, 1, 0x8000, 0x1000, 30)), 0);
	/* after the oldest data */
	assert_int_equal(sideband_log_append(&log, map(&r, 1, 0x1000, 0x2000, 600)), 0);
	for (uint32_t tid = 2; tid <= 4; tid++) {
		assert_int_equal(sideband_log_append(&log, task(&r, PERF_RECORD_FORK, 1, tid, 40)),
				 0);
		assert_int_equal(sideband_log_append(&log, comm(&r, 1, tid, 41)), 0);
	}
	assert_int_equal(sideband_log_append(&log, task(&r, PERF_RECORD_EXIT, 1, 2, 100)), 0);
	assert_int_equal(sideband_log_append(&log, task(&r, PERF_RECORD_EXIT, 1, 3, 700)), 0);
	/* The number of the ended thread again. */
	assert_int_equal(sideband_log_append(&log, task(&r, PERF_RECORD_FORK, 1, 2, 200)), 0);
	/* A whole process that has ended, and one that ended later. */
	assert_int_equal(sideband_log_append(&log, map(&r, 50, 0x1000, 0x1000, 50)), 0);
	assert_int_equal(sideband_log_append(&log, task(&r, PERF_RECORD_EXIT, 50, 50, 60)), 0);
	assert_int_equal(sideband_log_append(&log, map(&r, 60, 0x1000, 0x1000, 50)), 0);
	assert_int_equal(sideband_log_append(&log, task(&r, PERF_RECORD_EXIT, 60, 60, 900)), 0);

	assert_int_equal(compact(&log, 500), 0);
	assert_int_equal(count(&log, PERF_RECORD_COMM, 1, 1), 1);
	assert_int_equal(count(&log, PERF_RECORD_MMAP2, 1, 0), 4);
	assert_int_equal(count(&log, PERF_RECORD_COMM, 1, 2), 0);
	assert_int_equal(count(&log, PERF_RECORD_FORK, 1, 2), 1);
	assert_int_equal(count(&log, PERF_RECORD_COMM, 1, 3), 1);
	assert_int_equal(count(&log, PERF_RECORD_EXIT, 1, 3), 1);
	assert_int_equal(count(&log, PERF_RECORD_COMM, 1, 4), 1);
	assert_int_equal(count(&log, PERF_RECORD_MMAP2, 50, 0), 0);
	assert_int_equal(count(&log, PERF_RECORD_MMAP2, 60, 0), 1);
	sideband_log_fini(&log);
}

/* Threads without end: the history stays bounded and keeps those that live. */
static void test_churn(void **state)
{
	struct sideband_log log;
	uint64_t time = 1000;
	union any r;

	sideband_log_init(&log, 256 << 10);
	assert_int_equal(sideband_log_append(&log, comm(&r, 1, 1, time)), 0);
	for (uint32_t i = 0; i < 200000; i++) {
		uint32_t tid = 2 + i % 30000;

		time += 1000;
		if (sideband_log_is_full(&log))
			assert_int_equal(compact(&log, time - 100000), 0);
		assert_int_equal(sideband_log_append(&log,
						     task(&r, PERF_RECORD_FORK, 1, tid, time)),
				 0);
		assert_int_equal(sideband_log_append(&log, comm(&r, 1, tid, time + 1)), 0);
		assert_int_equal(sideband_log_append(&log,
						     task(&r, PERF_RECORD_EXIT, 1, tid, time + 2)),
				 0);
	}
	assert_int_equal(log.dropped, 0);
	assert_true(log.bytes <= 256 << 10);
	assert_int_equal(count(&log, PERF_RECORD_COMM, 1, 1), 1);
	sideband_log_fini(&log);
}

/*
 * What is newer than a round is the next one's: an older record may come to a ring that was read
 * before.
 */
static void test_hold(void **state)
{
	static const uint64_t times[] = {10, 30, 20, 40};
	union any r;
	_Alignas(8) uint8_t buf[sizeof(times) / sizeof(times[0]) * sizeof(union any)];
	size_t used = 0, held, one = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		const struct perf_event_header *h =
			task(&r, PERF_RECORD_FORK, 1, (uint32_t)i, times[i]);

		one = h->size;
		memcpy(buf + used, h, one);
		used += one;
	}
	held = sideband_events_hold(buf, used, 20);
	assert_int_equal(held, 2 * one);
	assert_int_equal(sideband_log_time((const void *)buf), 30);
	assert_int_equal(sideband_log_time((const void *)(buf + one)), 40);
	assert_int_equal(sideband_events_hold(buf, held, UINT64_MAX), 0);
}

static void test_limit(void **state)
{
	struct sideband_log log;
	struct sideband_log_view view;
	union any r;
	size_t len;

	sideband_log_init(&log, 1000);
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(sideband_log_append(&log, comm(&r, 1, i + 1, 5)), 0);
	assert_true(log.bytes <= 1000);
	assert_int_equal(log.dropped + log.records, 100);
	/* A view is of its moment, whatever comes after. */
	assert_int_equal(sideband_log_freeze(&log, &view), 0);
	assert_int_equal(compact(&log, 100), 0);
	sideband_log_fini(&log);
	assert_non_null(sideband_log_view_block(&view, 0, &len));
	assert_int_equal(len % sizeof(uint64_t), 0);
	assert_null(sideband_log_view_block(&view, view.n_blocks, &len));
	sideband_log_view_fini(&view);
}

struct seen {
	size_t comms, forks, maps, namespaces;
	bool own_code, vdso;
};

static int on_proc_record(void *arg, const struct perf_event_header *h)
{
	const struct perfabi_mmap2 *m = (const void *)h;
	struct seen *seen = arg;

	assert_int_equal(h->size % 8, 0);
	assert_int_equal(sideband_log_time(h), 4711);
	switch (h->type) {
	case PERF_RECORD_COMM:
		seen->comms++;
		break;
	case PERF_RECORD_FORK:
		seen->forks++;
		break;
	case PERF_RECORD_NAMESPACES:
		seen->namespaces++;
		break;
	case PERF_RECORD_MMAP2:
		seen->maps++;
		assert_true(m->prot & PROT_EXEC);
		seen->own_code |= (uintptr_t)on_proc_record >= m->addr &&
				  (uintptr_t)on_proc_record < m->addr + m->len;
		seen->vdso |= strcmp(m->filename, "[vdso]") == 0;
		break;
	}
	return 0;
}

/* What is told while a compaction is under way is behind it; what is read from /proc comes late. */
static void test_compact_meanwhile(void **state)
{
	struct sideband_log log, fresh;
	struct sideband_log_view view;
	union any r;

	sideband_log_init(&log, 1u << 20);
	assert_int_equal(sideband_log_append(&log, map(&r, 7, 0x1000, 0x1000, 50)), 0);
	/* older, and read later */
	assert_int_equal(sideband_log_append(&log, map(&r, 7, 0x1000, 0x2000, 20)), 0);
	assert_int_equal(sideband_log_freeze(&log, &view), 0);
	assert_int_equal(sideband_log_append(&log, map(&r, 7, 0x8000, 0x1000, 60)), 0);
	assert_int_equal(sideband_log_compact(&view, 1000, &fresh), 0);
	assert_int_equal(sideband_log_append(&log, map(&r, 7, 0x9000, 0x1000, 70)), 0);
	assert_int_equal(sideband_log_replace(&log, &view, &fresh), 0);
	sideband_log_view_fini(&view);
	/* The newer mapping is shorter than the older one, which is needed for the rest of it. */
	assert_int_equal(count(&log, PERF_RECORD_MMAP2, 7, 7), 4);
	assert_int_equal(sideband_log_append(&log, map(&r, 7, 0x1000, 0x2000, 80)), 0);
	assert_int_equal(compact(&log, 1000), 0);
	assert_int_equal(count(&log, PERF_RECORD_MMAP2, 7, 7), 3);
	sideband_log_fini(&log);

	/* One that is read late is no newer than what was told. */
	sideband_log_init(&log, 1u << 20);
	assert_int_equal(sideband_log_append(&log, map(&r, 7, 0x1000, 0x1000, 50)), 0);
	assert_int_equal(sideband_log_append(&log, map(&r, 7, 0x1000, 0x1000, 20)), 0);
	assert_int_equal(compact(&log, 1000), 0);
	assert_int_equal(count(&log, PERF_RECORD_MMAP2, 7, 7), 1);
	assert_int_equal(sideband_log_freeze(&log, &view), 0);
	{
		size_t len;
		const struct perf_event_header *h = sideband_log_view_block(&view, 0, &len);

		assert_int_equal(sideband_log_time(h), 50);
	}
	sideband_log_view_fini(&view);
	sideband_log_fini(&log);
}

static void test_proc_records(void **state)
{
	struct seen seen = {0};
	_cleanup_close_ int fd = open("/proc/self", O_PATH | O_DIRECTORY);

	assert_int_equal(proc_records_read(fd, getpid(), 0, 4711, PROC_RECORDS_ALL, on_proc_record,
					   &seen),
			 0);
	assert_int_equal(seen.comms, seen.forks + 1);
	assert_true(seen.maps >= 2 && seen.own_code && seen.vdso);
	assert_int_equal(seen.namespaces, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_compact),
		cmocka_unit_test(test_churn),
		cmocka_unit_test(test_compact_meanwhile),
		cmocka_unit_test(test_hold),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_proc_records),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
