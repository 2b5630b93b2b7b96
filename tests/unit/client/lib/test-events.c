// SPDX-License-Identifier: Apache-2.0
// Events in the memory, byte by byte as the ABI has them: kinds, sequences, the ring's end,
// payloads, seals.
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/lib/eventlib.h"
#include "tests/unit/client/lib/ring-read.h"

#define SLOTS 64u

static uint64_t memories; /* that were made: each has its number */

/* Each test has memory of its own: no two are the same size. */
static void fresh(void)
{
	static uint32_t rings = 2;

	memories++;
	process_enter();
	events_enable(false);
	assert_int_equal(ringmem_create(rings++, SLOTS, 256, RING_CLOCK_TSC), 0);
	events_enable(true);
}

/* Of the record in that slot of the first ring. */
static uint64_t id_of(uint64_t slot)
{
	return memories << 51 | 1ULL << 40 | slot;
}

static uint32_t own_tid(void)
{
	return (uint32_t)syscall(SYS_gettid);
}

/* The record at *index of this thread's ring, which must be whole. */
static struct ringread_record next(const struct ringread *r, uint64_t *index)
{
	struct ringread_record record;

	assert_true(ringread_record(r, ringread_of_thread(r, own_tid()), *index, &record, index));
	return record;
}

static void expect_field(struct ringread_record *record, uint32_t name, uint16_t type,
			 const void *value, size_t n)
{
	struct ring_field f;
	const uint8_t *at;

	assert_true(ringread_field(record, &f, &at));
	assert_int_equal(f.name, name);
	assert_int_equal(f.type, type);
	assert_int_equal(f.bytes, n);
	assert_memory_equal(at, value, n);
}

static void expect_end(struct ringread_record *record)
{
	struct ring_field f;
	const uint8_t *at;

	assert_false(ringread_field(record, &f, &at));
	/* what is left of the last slot is zero */
	for (size_t i = record->at; i < record->n; i++)
		assert_int_equal(record->payload[i], 0);
	assert_true(record->n - record->at < RING_CONT_BYTES);
}

static void test_memory_is_sealed(void **state)
{
	uint8_t page[RING_PAGE] = {0};
	int fd;

	fresh();
	fd = ringmem_fd();
	assert_true(fd > 2);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(fcntl(fd, F_GET_SEALS) & ~(int)RING_SEALS_MAY, RING_SEALS);
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(pwrite(fd, page, sizeof(page), 0), -1);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, RING_PAGE),
			 -1);
	assert_ptr_equal(mmap(NULL, RING_PAGE, PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	/* what is written through the library's own mapping is there */
	tracerd_instant(tracerd_intern("after the seals"));
	{
		_cleanup_(ringread_freep) struct ringread *r = ringread_new(fd);

		assert_int_equal(r->header.pid, getpid());
		assert_int_equal(r->header.clock, events_clock());
		assert_int_equal(ringread_entry(r, 0)->head, 2);
	}
}

static void test_every_kind(void **state)
{
	_cleanup_(ringread_freep) struct ringread *r = NULL;
	tracerd_name name = tracerd_intern("every kind"), other = tracerd_intern("other name");
	uint64_t before, after, id, last = 0, i = 0;
	double half = 0.5;
	char comm[17] = "";
	struct ringread_record e;
	tracerd_region region;
	tracerd_task task;

	fresh();
	before = events_now();
	region = tracerd_region_begin_with(name, 77, NULL, 0);
	tracerd_instant(name);
	tracerd_counter(name, -3);
	tracerd_counter_f64(other, half);
	task = tracerd_task_begin(name, 5);
	tracerd_task_end(task);
	id = tracerd_flow_begin(name);
	tracerd_flow_step(name, id);
	tracerd_flow_end(name, id);
	tracerd_fiber_switch(9, name);
	tracerd_fiber_switch(10, other);
	tracerd_fiber_switch(0, 0);
	tracerd_thread_name(other);
	tracerd_region_end(region);
	record_trigger(name, region.begin, 4);
	after = events_now();
	r = ringread_new(ringmem_fd());

#define EXPECT(KIND, FLAGS, NAME, A, B)                                                            \
	do {                                                                                       \
		e = next(r, &i);                                                                   \
		assert_int_equal(e.kind, KIND);                                                    \
		assert_int_equal(e.flags, FLAGS);                                                  \
		assert_int_equal(e.span, 0);                                                       \
		assert_int_equal(e.name, NAME);                                                    \
		assert_int_equal(e.a, (uint64_t)(A));                                              \
		assert_int_equal(e.b, (uint64_t)(B));                                              \
		assert_true(e.stamp >= before && e.stamp <= after && e.stamp >= last);             \
		last = e.stamp;                                                                    \
	} while (0)
	EXPECT(RING_THREAD, 0, e.name, own_tid(), 0);
	assert_int_equal(prctl(PR_GET_NAME, comm), 0);
	assert_string_equal(ringread_name(r, e.name), comm);
	EXPECT(RING_REGION_BEGIN, 0, name, 0, 77);
	assert_int_equal(region.begin, e.stamp);
	EXPECT(RING_INSTANT, 0, name, 0, 0);
	EXPECT(RING_COUNTER, 0, name, -3, 0);
	EXPECT(RING_COUNTER, RING_FLAG_F64, other, 0x3fe0000000000000ULL, 0);
	EXPECT(RING_TASK_BEGIN, 0, name, id_of(5), 5);
	assert_int_equal(task.id, e.a);
	assert_int_equal(task.begin, e.stamp);
	EXPECT(RING_TASK_END, 0, name, task.id, task.begin);
	EXPECT(RING_FLOW, 0, name, id_of(7), RING_FLOW_BEGIN);
	assert_int_equal(id, e.a);
	EXPECT(RING_FLOW, 0, name, id, RING_FLOW_STEP);
	EXPECT(RING_FLOW, 0, name, id, RING_FLOW_END);
	EXPECT(RING_FIBER, 0, name, 9, 0);
	EXPECT(RING_FIBER, 0, other, 10, 9);
	EXPECT(RING_FIBER, 0, 0, 0, 10);
	EXPECT(RING_THREAD_NAME, 0, other, 0, 0);
	EXPECT(RING_REGION_END, 0, name, region.begin, 0);
	EXPECT(RING_TRIGGER, 0, name, region.begin, 4);
	assert_int_equal(ringread_entry(r, 0)->head, i);
	assert_int_equal(ringread_entry(r, 0)->name, other);
	assert_int_equal(ringread_entry(r, 0)->fiber, 0);
	assert_int_equal(ringread_entry(r, 0)->claims, 1);
	assert_string_equal(ringread_name(r, name), "every kind");
}

static void test_ring_goes_round(void **state)
{
	_cleanup_(ringread_freep) struct ringread *r = NULL;
	tracerd_name name = tracerd_intern("round");
	uint64_t i;

	fresh();
	for (i = 1; i <= 10 * SLOTS + 7; i++)
		tracerd_counter(name, (int64_t)i);
	r = ringread_new(ringmem_fd());
	assert_int_equal(ringread_entry(r, 0)->head, i);
	/* the counter has its slot's number */
	for (uint64_t k = i - SLOTS; k < i;) {
		uint64_t at = k;

		assert_int_equal(next(r, &k).a, at);
	}
}

static void test_payload_lies_across_the_end(void **state)
{
	tracerd_name name = tracerd_intern("across"), key = tracerd_intern("key");
	char text[100];
	tracerd_arg args[2];

	memset(text, 'x', sizeof(text));
	for (uint32_t offset = 0; offset < 8; offset++) {
		_cleanup_(ringread_freep) struct ringread *r = NULL;
		struct ringread_record e;
		uint64_t i = 1, at, number = 0x1122334455667788ULL;

		fresh();
		for (; i < SLOTS - 1 - offset; i++)
			tracerd_instant(name);
		at = i;
		args[0] = tracerd_u64(key, number);
		args[1] = tracerd_text(name, text, sizeof(text));
		tracerd_instant_with(name, 3, args, 2);
		tracerd_instant(key);
		r = ringread_new(ringmem_fd());
		e = next(r, &i);
		/* 16 + 8 + 100 bytes in 28 each */
		assert_int_equal(e.span, 5);
		assert_int_equal(e.kind, RING_INSTANT);
		assert_int_equal(e.b, 3);
		expect_field(&e, key, RING_FIELD_U64, &number, 8);
		expect_field(&e, name, RING_FIELD_TEXT, text, sizeof(text));
		expect_end(&e);
		assert_int_equal(i, at + 6);
		assert_int_equal(next(r, &i).name, key);
	}
}

static void test_arguments_of_every_type(void **state)
{
	_cleanup_(ringread_freep) struct ringread *r = NULL;
	tracerd_name name = tracerd_intern("typed");
	int64_t minus = -5;
	uint64_t much = UINT64_MAX, address = 0x1000, i = 1;
	double third = 1 / 3.0;
	tracerd_arg args[] = {tracerd_u64(1, much), tracerd_i64(2, minus), tracerd_f64(3, third),
		tracerd_text(4, "abcde", 5), tracerd_text(0, NULL, 0), tracerd_u64(5, address)};
	struct ringread_record e;
	tracerd_region region;
	tracerd_task task;

	args[5].type = TRACERD_POINTER;
	fresh();
	region = tracerd_region_begin_with(name, 0, args, 6);
	tracerd_region_end_with(region, args, 6);
	task = tracerd_task_begin_with(name, 0, args, 6);
	tracerd_task_end_slow(&task, args, 6);
	r = ringread_new(ringmem_fd());
	for (uint32_t kind = 0; kind < 4; kind++) {
		static const uint32_t kinds[] = {
			RING_REGION_BEGIN, RING_REGION_END, RING_TASK_BEGIN, RING_TASK_END};
		uint64_t at = i;

		e = next(r, &i);
		assert_int_equal(e.kind, kinds[kind]);
		expect_field(&e, 1, RING_FIELD_U64, &much, 8);
		expect_field(&e, 2, RING_FIELD_I64, &minus, 8);
		expect_field(&e, 3, RING_FIELD_F64, &third, 8);
		expect_field(&e, 4, RING_FIELD_TEXT, "abcde", 5);
		expect_field(&e, 0, RING_FIELD_TEXT, "", 0);
		expect_field(&e, 5, RING_FIELD_POINTER, &address, 8);
		expect_end(&e);
		if (e.kind == RING_TASK_BEGIN) {
			assert_int_equal(e.a, id_of(at));
			assert_int_equal(task.id, e.a);
		}
	}
	assert_int_equal(r->header.lost_long, 0);
}

/* Short texts are kept whole, long ones share what is left, and a cut is told and counted. */
static void test_long_texts_are_cut(void **state)
{
	_cleanup_(ringread_freep) struct ringread *r = NULL;
	static char text[5000];
	tracerd_name name = tracerd_intern("cut");
	uint64_t i = 1, seven = 7;
	struct ringread_record e;
	struct ring_field f[5];
	const uint8_t *at;
	tracerd_arg args[200];

	memset(text, 'y', sizeof(text));
	fresh();
	args[0] = tracerd_text(name, text, sizeof(text));
	args[1] = tracerd_text(name, "short", 5);
	args[2] = tracerd_text(name, text, sizeof(text));
	args[3] = tracerd_u64(name, 7);
	args[4] = tracerd_text(name, text, 40);
	tracerd_instant_with(name, 0, args, 5);
	r = ringread_new(ringmem_fd());
	e = next(r, &i);
	assert_int_equal(e.span, RING_SPAN_MAX);
	for (int k = 0; k < 5; k++) {
		assert_true(ringread_field(&e, &f[k], &at));
		if (k == 1)
			assert_memory_equal(at, "short", 5);
		else if (k == 3)
			assert_memory_equal(at, &seven, 8);
		else
			assert_memory_equal(at, text, f[k].bytes);
	}
	expect_end(&e);
	assert_int_equal(f[0].type, RING_FIELD_TEXT_CUT);
	assert_int_equal(f[2].type, RING_FIELD_TEXT_CUT);
	assert_int_equal(f[4].type, RING_FIELD_TEXT);
	assert_int_equal(f[4].bytes, 40);
	/* 1120 less 4 heads, a number, 8 and 40 bytes are left for the two */
	assert_int_equal(f[0].bytes, 512);
	assert_int_equal(f[2].bytes, 512);
	assert_int_equal(r->header.lost_long, 1);

	/* more arguments than there is room for: those that fit, in order */
	for (uint64_t k = 0; k < 200; k++)
		args[k] = tracerd_u64(name, k);
	fresh();
	tracerd_instant_with(name, 0, args, 200);
	ringread_freep(&r);
	r = ringread_new(ringmem_fd());
	i = 1;
	e = next(r, &i);
	for (uint64_t k = 0; k < RING_PAYLOAD_MAX / 16; k++)
		expect_field(&e, name, RING_FIELD_U64, &k, 8);
	expect_end(&e);
	assert_int_equal(r->header.lost_long, 1);
}

static void test_nothing_without_a_name_or_while_off(void **state)
{
	_cleanup_(ringread_freep) struct ringread *r = NULL;
	tracerd_name name = tracerd_intern("off");
	static const tracerd_name bad[] = {0, RING_MAX_NAMES + 1, UINT32_MAX};
	tracerd_region region;

	fresh();
	tracerd_instant(name);
	for (size_t i = 0; i < 3; i++) {
		tracerd_region_end(tracerd_region_begin(bad[i]));
		tracerd_region_end_slow((tracerd_region){1, bad[i], 0}, NULL, 0);
		tracerd_instant(bad[i]);
		tracerd_counter(bad[i], 1);
		tracerd_counter_f64(bad[i], 1);
		tracerd_task_end(tracerd_task_begin(bad[i], 0));
		assert_int_equal(tracerd_flow_begin(bad[i]), 0);
		tracerd_flow_step(bad[i], 1);
		tracerd_thread_name(bad[i]);
		tracerd_task_end((tracerd_task){1, 1, bad[i], 0});
		/* one each, but for the ends of what has not begun */
		assert_int_equal(ringmem_header()->lost_events, 10 * (i + 1));
	}
	tracerd_fiber_switch(1, UINT32_MAX);
	assert_int_equal(ringmem_header()->lost_events, 31);
	region = tracerd_region_begin(name);
	events_enable(false);
	assert_int_equal(tracerd_enabled(), 0);
	tracerd_region_end(region);
	tracerd_instant(name);
	tracerd_log(TRACERD_INFO, "while off");
	tracerd_vlog(TRACERD_INFO, "while off", (va_list){0});
	assert_int_equal(tracerd_region_begin(name).begin, 0);
	assert_int_equal(tracerd_task_begin(name, 0).id, 0);
	assert_int_equal(TRACERD_NAME("never made"), 0);
	r = ringread_new(ringmem_fd());
	/* the region's end only */
	assert_int_equal(ringread_entry(r, 0)->head, 4);
	assert_int_equal(r->header.lost_events, 31);
}

/* What is open when events go off has an end when they are on again. */
static void test_ends_while_off(void **state)
{
	_cleanup_(ringread_freep) struct ringread *r = NULL;
	tracerd_name name = tracerd_intern("open");
	struct ringread_record e;
	tracerd_region region, late;
	tracerd_task task;
	uint64_t i = 1;

	fresh();
	region = tracerd_region_begin(name);
	task = tracerd_task_begin(name, 0);
	late = tracerd_region_begin(name);
	events_enable(false);
	tracerd_task_end(task);
	tracerd_region_end(region);
	tracerd_instant(name);
	events_enable(true);
	tracerd_instant(name);
	r = ringread_new(ringmem_fd());
	for (int k = 0; k < 3; k++)
		(void)next(r, &i);
	e = next(r, &i);
	assert_int_equal(e.kind, RING_TASK_END);
	assert_int_equal(e.a, task.id);
	e = next(r, &i);
	assert_int_equal(e.kind, RING_REGION_END);
	assert_int_equal(e.a, region.begin);
	assert_int_equal(next(r, &i).kind, RING_INSTANT);
	assert_int_equal(ringread_entry(r, 0)->head, i);

	/* in other memory it has no begin */
	events_enable(false);
	fresh();
	events_enable(false);
	tracerd_region_end(late);
	ringread_freep(&r);
	r = ringread_new(ringmem_fd());
	assert_int_equal(ringread_entry(r, 0)->head, 0);
}

static void test_memory_is_kept_or_made_anew(void **state)
{
	struct ring_header *header;
	uint64_t task, other;
	int fd, low;

	fresh();
	header = ringmem_header();
	fd = ringmem_fd();
	/* the same size: the same memory, also after another one */
	assert_int_equal(ringmem_create(header->rings, SLOTS, 256, RING_CLOCK_MONOTONIC_RAW), 0);
	assert_ptr_equal(ringmem_header(), header);
	tracerd_instant(tracerd_intern("first"));
	task = tracerd_task_begin(tracerd_intern("task"), 0).id;
	assert_int_equal(ringmem_create(header->rings, 2 * SLOTS, 256, RING_CLOCK_TSC), 0);
	assert_ptr_not_equal(ringmem_header(), header);
	/* the switch follows, and so do threads that had a ring */
	tracerd_instant(tracerd_intern("moved"));
	assert_int_equal(ringmem_header()->rings, header->rings);
	{
		_cleanup_(ringread_freep) struct ringread *r = ringread_new(ringmem_fd());

		assert_int_equal(ringread_entry(r, 0)->head, 2);
		assert_string_equal(ringread_name(r, ringread_slot(r, 0, 1)->name), "moved");
	}
	/* in the same slot of the same ring, and yet another task */
	other = tracerd_task_begin(tracerd_intern("task"), 0).id;
	assert_int_equal(other << 13, task << 13);
	assert_int_not_equal(other, task);
	assert_int_equal(ringmem_create(header->rings, SLOTS, 256, RING_CLOCK_TSC), 0);
	assert_ptr_equal(ringmem_header(), header);
	assert_int_equal(ringmem_fd(), fd);
	/* a program that closes all it does not know, and opens something else */
	low = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(dup2(low, fd), fd);
	assert_int_equal(ringmem_fd(), -EBADF);
	assert_int_equal(ringmem_create(header->rings, SLOTS, 256, RING_CLOCK_TSC), 0);
	assert_ptr_not_equal(ringmem_header(), header);
	assert_true(ringmem_fd() >= 0);
	/* that descriptor is the program's now */
	assert_true(fcntl(fd, F_GETFD) >= 0);
	(void)close(fd);
	(void)close(low);
	assert_int_equal(ringmem_create(0, SLOTS, 256, RING_CLOCK_TSC), -EINVAL);
	assert_int_equal(ringmem_create(1, 100, 256, RING_CLOCK_TSC), -EINVAL);
	assert_int_equal(ringmem_create(1, SLOTS, RING_MAX_NAMES + 1, RING_CLOCK_TSC), -EINVAL);
}

/* The kernel would send SIGXFSZ, which ends the program. */
static void test_limit_of_file_size(void **state)
{
	const struct ring_header *header;
	struct rlimit old, small;

	fresh();
	header = ringmem_header();
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = (struct rlimit){.rlim_cur = RING_PAGE, .rlim_max = old.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(ringmem_create(header->rings, 8 * SLOTS, 256, RING_CLOCK_TSC), -EFBIG);
	assert_ptr_equal(ringmem_header(), header);
	small.rlim_cur = header->total_bytes + 7ULL * SLOTS * header->rings * RING_SLOT_BYTES;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(ringmem_create(header->rings, 8 * SLOTS, 256, RING_CLOCK_TSC), 0);
	assert_int_equal(ringmem_header()->total_bytes, small.rlim_cur);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
}

/*
 * From here on any system call but exit() kills. (Strict seccomp would forbid to read the TSC,
 * too.)
 */
static bool allow_only_exit(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = {.len = ARRAY_SIZE(code), .filter = code};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void test_events_make_no_system_call(void **state)
{
	tracerd_arg arg = tracerd_text(1, "text", 4);
	tracerd_region region;
	tracerd_task task;
	int status;
	pid_t pid;

	fresh();
	pid = fork();
	if (pid == 0) {
		process_enter();
		if (ringmem_create(2, SLOTS, 256, RING_CLOCK_TSC) < 0)
			_exit(1);
		events_enable(true);
		tracerd_instant(tracerd_intern("the first makes some"));
		if (!allow_only_exit())
			_exit(2);
		for (int i = 0; i < 1000; i++) {
			region = tracerd_region_begin_with(TRACERD_NAME("region"), 0, &arg, 1);
			task = tracerd_task_begin(TRACERD_NAME("task"), 0);
			tracerd_flow_end(TRACERD_NAME("flow"),
					 tracerd_flow_begin(TRACERD_NAME("flow")));
			tracerd_counter(tracerd_intern_bytes(&i, 1), i);
			tracerd_fiber_switch((uint64_t)i, TRACERD_NAME("fiber"));
			tracerd_thread_name(TRACERD_NAME("thread"));
			tracerd_log(TRACERD_INFO, "%d %s %f", i, "text", 0.5);
			tracerd_task_end(task);
			tracerd_region_end(region);
		}
		(void)syscall(SYS_exit, tracerd_enabled() ? 0 : 3);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* What a program writes over its own memory leads nowhere. */
static void test_garbage_in_the_memory_is_harmless(void **state)
{
	_cleanup_(ringread_freep) struct ringread *r = NULL;
	struct ring_header *h;
	uint8_t *base;

	fresh();
	h = ringmem_header();
	base = (uint8_t *)h;
	r = ringread_new(ringmem_fd());
	tracerd_instant(tracerd_intern("before"));
	memset(base, 0xff, r->geometry.total_bytes);
	for (int i = 0; i < 1000; i++) {
		tracerd_log(TRACERD_INFO, "%d %s", i, "into garbage");
		(void)tracerd_intern_bytes(&i, sizeof(i));
	}
	events_enable(false);
	assert_int_equal(ringmem_create(r->geometry.rings, 4 * SLOTS, 256, RING_CLOCK_TSC), 0);
	events_enable(true);
	memset(ringmem_header(), 0x7f, r->geometry.data_offset);
	tracerd_instant(tracerd_intern("after"));
	tracerd_instant(tracerd_intern("after"));
	assert_int_equal(tracerd_enabled(), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory_is_sealed),
		cmocka_unit_test(test_every_kind),
		cmocka_unit_test(test_ring_goes_round),
		cmocka_unit_test(test_payload_lies_across_the_end),
		cmocka_unit_test(test_arguments_of_every_type),
		cmocka_unit_test(test_long_texts_are_cut),
		cmocka_unit_test(test_nothing_without_a_name_or_while_off),
		cmocka_unit_test(test_ends_while_off),
		cmocka_unit_test(test_memory_is_kept_or_made_anew),
		cmocka_unit_test(test_limit_of_file_size),
		cmocka_unit_test(test_events_make_no_system_call),
		cmocka_unit_test(test_garbage_in_the_memory_is_harmless),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
