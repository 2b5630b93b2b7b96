// SPDX-License-Identifier: Apache-2.0
/*
 * The perf.data writer: what it refuses, what it counts, and that stock perf reads the file without
 * a word on stderr and finds as many samples, comms and maps as were counted.
 */
#include "common/bundle/perfdata_write.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/vdso.h"
#include "common/bundle/perfdata_ids.h"

#define SAMPLE_TYPE                                                                                \
	(PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU)
#define REGS_MASK 0xff0fffULL /* what perf asks for on x86-64 */
#define ID_CLOCK 11
#define ID_DWARF 12
#define ID_SCHED 13
#define ID_SIDE 14

/* A record under construction; 8-byte steps only, as the kernel writes them. */
struct record {
	uint64_t words[2048];
	size_t n;
};

static void begin(struct record *r, uint32_t type, uint16_t misc)
{
	struct perf_event_header h = {.type = type, .misc = misc};

	memset(r, 0, sizeof(*r));
	memcpy(r->words, &h, 8);
	r->n = 1;
}

static void put(struct record *r, uint64_t v)
{
	assert_true(r->n < 2048);
	r->words[r->n++] = v;
}

static uint64_t pair(uint32_t a, uint32_t b)
{
	return (uint64_t)b << 32 | a;
}

static void put_text(struct record *r, const char *s)
{
	size_t n = strlen(s) / 8 + 1;

	memcpy(&r->words[r->n], s, strlen(s) + 1);
	r->n += n;
}

static void put_sample_id(struct record *r, uint32_t pid, uint32_t tid, uint64_t time, uint64_t id)
{
	put(r, pair(pid, tid));
	put(r, time);
	put(r, pair(0, 0));
	put(r, id);
}

static int end(struct record *r, struct perfdata_writer *w)
{
	struct perf_event_header h;

	memcpy(&h, r->words, 8);
	h.size = (uint16_t)(r->n * 8);
	memcpy(r->words, &h, 8);
	return perfdata_write(w, r->words, r->n * 8);
}

static struct perf_event_attr attr_of(uint32_t type, uint64_t config, uint64_t sample_type)
{
	struct perf_event_attr a = {
		.type = type,
		.size = sizeof(a),
		.config = config,
		.sample_type = SAMPLE_TYPE | sample_type,
		.sample_period = 1001001,
		.sample_id_all = 1,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC_RAW,
		.exclude_callchain_kernel = 1,
	};

	return a;
}

static void add_events(struct perfdata_writer *w)
{
	const uint64_t clock = ID_CLOCK, dwarf = ID_DWARF, sched = ID_SCHED,
		       side[2] = {ID_SIDE, ID_SIDE + 1};
	struct perf_event_attr a;

	a = attr_of(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, PERF_SAMPLE_CALLCHAIN);
	assert_int_equal(perfdata_add_event(w, "cpu-clock:u-stacks", &a, &clock, 1), 0);
	a = attr_of(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK,
		    PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER);
	a.sample_regs_user = REGS_MASK;
	a.sample_stack_user = 1024;
	assert_int_equal(perfdata_add_event(w, "cpu-clock:dwarf", &a, &dwarf, 1), 0);
	a = attr_of(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_BPF_OUTPUT,
		    PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_RAW);
	assert_int_equal(perfdata_add_event(w, "sched", &a, &sched, 1), 0);
	a = attr_of(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_DUMMY, 0);
	a.mmap = a.mmap2 = a.comm = a.comm_exec = a.task = a.namespaces = a.context_switch = 1;
	assert_int_equal(perfdata_add_event(w, "history", &a, side, 1), 0);
	assert_int_equal(perfdata_add_event(w, "history", &a, side + 1, 1), 0);
}

static void put_head(struct record *r, uint64_t id, uint64_t ip, uint64_t time)
{
	begin(r, PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER);
	put(r, id);
	put(r, ip);
	put(r, pair(4000, 4001));
	put(r, time);
	put(r, pair(1, 0));
}

static void put_chain(struct record *r)
{
	put(r, 4);
	put(r, (uint64_t)PERF_CONTEXT_USER);
	put(r, 0x401000);
	put(r, 0x401100);
	put(r, 0x401200);
}

static void write_everything(struct perfdata_writer *w)
{
	uint64_t t = 2000000000000ULL;
	struct record r;

	/* of what was there before: time 0 */
	begin(&r, PERF_RECORD_COMM, 0);
	put(&r, pair(4000, 4000));
	put_text(&r, "server");
	put_sample_id(&r, 4000, 4000, 0, ID_SIDE);
	assert_int_equal(end(&r, w), 0);
	begin(&r, PERF_RECORD_MMAP2, PERF_RECORD_MISC_USER);
	put(&r, pair(4000, 4000));
	put(&r, 0x400000);
	put(&r, 0x10000);
	put(&r, 0);
	put(&r, pair(8, 1)); /* maj, min */
	put(&r, 77);	     /* ino */
	put(&r, 0);
	put(&r, pair(5, 2)); /* prot, flags */
	put_text(&r, "//anon");
	put_sample_id(&r, 4000, 4000, 0, ID_SIDE);
	assert_int_equal(end(&r, w), 0);

	begin(&r, PERF_RECORD_FORK, 0);
	put(&r, pair(4000, 4000));
	put(&r, pair(4001, 4000));
	put(&r, t);
	put_sample_id(&r, 4000, 4000, t, ID_SIDE + 1);
	assert_int_equal(end(&r, w), 0);
	begin(&r, PERF_RECORD_COMM, PERF_RECORD_MISC_COMM_EXEC);
	put(&r, pair(4000, 4001));
	put_text(&r, "worker");
	put_sample_id(&r, 4000, 4001, t + 10, ID_SIDE);
	assert_int_equal(end(&r, w), 0);
	begin(&r, PERF_RECORD_NAMESPACES, 0);
	put(&r, pair(4000, 4001));
	put(&r, 7);
	for (int i = 0; i < 7; i++) {
		put(&r, 4);
		put(&r, 0xf0000000U + (unsigned)i);
	}
	put_sample_id(&r, 4000, 4001, t + 20, ID_SIDE);
	assert_int_equal(end(&r, w), 0);
	for (unsigned i = 0; i < 100; i++) {
		/* out of order on purpose: rings of several CPUs follow each other */
		uint64_t now = t + 100000 + (i % 2 ? 1000 * i : 1000 * (200 - i));

		put_head(&r, ID_CLOCK, 0x401000, now);
		put_chain(&r);
		assert_int_equal(end(&r, w), 0);
		put_head(&r, ID_DWARF, 0x401000, now + 100);
		put_chain(&r);
		put(&r, PERF_SAMPLE_REGS_ABI_64);
		for (int k = 0; k < __builtin_popcountll(REGS_MASK); k++)
			put(&r, 0x7ffd0000);
		put(&r, 1024);
		for (int k = 0; k < 128; k++)
			put(&r, 0x401000);
		put(&r, 512);
		assert_int_equal(end(&r, w), 0);
		put_head(&r, ID_SCHED, 0x401000, now + 200);
		put_chain(&r);
		/* u32 size, then the payload; the whole is a multiple of 8 */
		put(&r, pair(4 + 56, 0x01455354));
		for (int k = 0; k < 7; k++)
			put(&r, 0x0102030405060708ULL);
		assert_int_equal(end(&r, w), 0);
	}
	for (unsigned i = 0; i < 10; i++) {
		begin(&r, PERF_RECORD_SWITCH, i % 2 ? PERF_RECORD_MISC_SWITCH_OUT : 0);
		put_sample_id(&r, 4000, 4001, t + 5000 + i, ID_SIDE);
		assert_int_equal(end(&r, w), 0);
	}
	begin(&r, PERF_RECORD_LOST, 0);
	put(&r, ID_CLOCK);
	put(&r, 5);
	put_sample_id(&r, 4000, 4001, t + 7000, ID_CLOCK);
	assert_int_equal(end(&r, w), 0);
	begin(&r, PERF_RECORD_LOST_SAMPLES, 0);
	put(&r, 3);
	put_sample_id(&r, 4000, 4001, t + 8000, ID_SIDE);
	assert_int_equal(end(&r, w), 0);
	begin(&r, PERF_RECORD_EXIT, 0);
	put(&r, pair(4000, 4000));
	put(&r, pair(4001, 4000));
	put(&r, t + 900000);
	put_sample_id(&r, 4000, 4001, t + 900000, ID_SIDE);
	assert_int_equal(end(&r, w), 0);
}

static int file_new(char path[64])
{
	int fd;

	(void)strcpy(path, "/tmp/tracerd-perfdata-XXXXXX");
	fd = mkostemp(path, O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static const struct perfdata_about ABOUT = {
	.command = "tracerd",
	.first_time = 2000000000000ULL,
	.last_time = 2000000900000ULL,
	.clock = CLOCK_MONOTONIC_RAW,
	.clock_ns = 2000000000000ULL,
	.wall_clock_ns = 1700000000000000000ULL,
};

/* Runs a command; returns its exit code and how many lines of `what` hold `word`. */
static int run(const char *command, const char *word, unsigned *ret_lines)
{
	char line[4096];
	FILE *f = popen(command, "r"); /* fixed text of this test */
	unsigned n = 0;
	int r;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (!word || strstr(line, word))
			n++;
	r = pclose(f);
	*ret_lines = n;
	return WIFEXITED(r) ? WEXITSTATUS(r) : -1;
}

static unsigned lines(const char *path, const char *options, const char *word)
{
	char command[512];
	unsigned n;

	(void)snprintf(command, sizeof(command), "perf script -i %s --force %s 2>/dev/null", path,
		       options);
	assert_int_equal(run(command, word, &n), 0);
	return n;
}

static void test_perf_reads_it(void **state)
{
	_cleanup_(perfdata_writer_freep) struct perfdata_writer *w = NULL;
	const struct perfdata_counts *c;
	char path[64], command[512];
	unsigned n;
	int fd;

	if (system("perf --version >/dev/null 2>&1") != 0) {
		print_message("no perf here: its reading of the file is not tested\n");
		skip();
	}
	fd = file_new(path);
	assert_int_equal(perfdata_writer_new(fd, 0, NULL, &w), 0);
	add_events(w);
	write_everything(w);
	assert_int_equal(perfdata_finish(w, &ABOUT), 0);
	c = perfdata_counts(w);

	(void)snprintf(command, sizeof(command), "perf script -i %s --force 2>&1 >/dev/null", path);
	assert_int_equal(run(command, NULL, &n), 0);
	assert_int_equal(n, 0);
	(void)snprintf(command, sizeof(command), "perf report --stdio -i %s --force 2>/dev/null",
		       path);
	assert_int_equal(run(command, NULL, &n), 0);

	assert_int_equal(lines(path, "-F event,tid", NULL), c->samples);
	assert_int_equal(lines(path, "-F event", "cpu-clock:u-stacks"), 100);
	assert_int_equal(lines(path, "-F event", "sched"), 100);
	assert_int_equal(lines(path, "-F comm,tid,time,event --show-mmap-events",
			       "PERF_RECORD_MMAP2"),
			 c->mmaps);
	assert_int_equal(lines(path, "-F comm,tid,time,event --show-task-events",
			       "PERF_RECORD_COMM"),
			 c->comms);
	assert_int_equal(lines(path, "-F comm,tid,time,event --show-task-events",
			       "PERF_RECORD_FORK"),
			 1);
	assert_int_equal(lines(path, "-F comm,tid,time,event --show-task-events",
			       "PERF_RECORD_EXIT"),
			 1);
	assert_int_equal(lines(path, "-F comm,tid,time,event --show-switch-events",
			       "PERF_RECORD_SWITCH"),
			 10);
	assert_int_equal(lines(path, "-F comm,tid,time,event --show-namespace-events",
			       "PERF_RECORD_NAMESPACES"),
			 1);
	/* the thread's name is found for samples, so the order of time was restored */
	assert_int_equal(lines(path, "-F comm,event", "worker"), 300);
	assert_int_equal(lines(path, "--header-only", "monotonic_raw"), 2);
	/* perf 7.0 takes this section of every file for invalid, also of its own. */
	if (system("perf --version | grep -q ' 7\\.0'") != 0)
		assert_int_equal(lines(path, "--header-only", "cpu-clock:u-stacks"), 1);
	(void)close(fd);
	(void)unlink(path);
}

static void test_counts_and_losses(void **state)
{
	_cleanup_(perfdata_writer_freep) struct perfdata_writer *w = NULL;
	const struct perfdata_loss *losses;
	const struct perfdata_counts *c;
	char path[64];
	struct stat st;
	size_t n;
	int fd = file_new(path);

	assert_int_equal(perfdata_writer_new(fd, 0, NULL, &w), 0);
	add_events(w);
	write_everything(w);
	c = perfdata_counts(w);
	assert_int_equal(c->samples, 300);
	assert_int_equal(c->mmaps, 1);
	assert_int_equal(c->comms, 2);
	assert_int_equal(c->execs, 1);
	assert_int_equal(c->forks, 1);
	assert_int_equal(c->exits, 1);
	assert_int_equal(c->namespaces, 1);
	assert_int_equal(c->switches, 10);
	assert_int_equal(c->others, 0);
	assert_int_equal(c->lost_records, 2);
	assert_int_equal(c->lost_events, 8);
	losses = perfdata_losses(w, &n);
	assert_int_equal(n, 2);
	assert_int_equal(losses[0].time, 2000000007000ULL);
	assert_int_equal(losses[0].lost, 5);
	assert_int_equal(losses[0].id, ID_CLOCK);
	assert_int_equal(losses[1].type, PERF_RECORD_LOST_SAMPLES);
	assert_int_equal(losses[1].time, 2000000008000ULL);
	assert_int_equal(perfdata_finish(w, &ABOUT), 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true((uint64_t)st.st_size > c->bytes + 104);
	assert_int_equal(perfdata_finish(w, &ABOUT), -EINVAL);
	(void)close(fd);
	(void)unlink(path);
}

static void test_refuses_broken_records(void **state)
{
	_cleanup_(perfdata_writer_freep) struct perfdata_writer *w = NULL;
	struct perf_event_header two[2] = {
		{.type = PERF_RECORD_SWITCH, .size = 8},
		{.type = PERF_RECORD_SWITCH, .size = 0},
	};
	struct perf_event_attr a = attr_of(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, 0);
	char path[64];
	int fd = file_new(path);

	assert_int_equal(perfdata_writer_new(fd, 0, NULL, &w), 0);
	assert_int_equal(perfdata_write(w, two, sizeof(two)), -EINVAL); /* size 0 would never end */
	/* nor was the good one written */
	assert_int_equal(perfdata_counts(w)->records, 0);
	two[1].size = 12;
	assert_int_equal(perfdata_write(w, two, sizeof(two)), -EINVAL);
	two[1].size = 16;
	assert_int_equal(perfdata_write(w, two, sizeof(two)), -EINVAL);
	assert_int_equal(perfdata_write(w, two, 12), -EINVAL);
	assert_int_equal(perfdata_write(w, two, 4), -EINVAL);
	assert_int_equal(perfdata_write(w, two, 0), 0);
	assert_int_equal(perfdata_finish(w, &ABOUT), -EINVAL); /* no events */
	a.sample_type &= ~(uint64_t)PERF_SAMPLE_IDENTIFIER;
	assert_int_equal(perfdata_add_event(w, "x", &a, NULL, 0), -EINVAL);
	(void)close(fd);
	(void)unlink(path);
}

static void test_limit_and_cancel(void **state)
{
	_cleanup_(perfdata_writer_freep) struct perfdata_writer *w = NULL;
	struct perf_event_header h = {.type = PERF_RECORD_SWITCH, .size = 8};
	atomic_bool cancel = false;
	char path[64];
	int fd = file_new(path);

	assert_int_equal(perfdata_writer_new(fd, 104 + 16, &cancel, &w), 0);
	add_events(w);
	assert_int_equal(perfdata_write(w, &h, 8), 0);
	assert_int_equal(perfdata_write(w, &h, 8), 0);
	assert_int_equal(perfdata_write(w, &h, 8), -EFBIG);
	assert_int_equal(perfdata_counts(w)->switches, 2);
	atomic_store(&cancel, true);
	assert_int_equal(perfdata_write(w, &h, 8), -ECANCELED);
	assert_int_equal(perfdata_finish(w, &ABOUT), 0); /* what fitted is a valid file */
	(void)close(fd);
	(void)unlink(path);
}

/* The bytes of an AUXTRACE record come after it, all of them, and the next record is aligned. */
static void test_aux(void **state)
{
	static const struct perfabi_auxtrace record = {.reference = 77,
						       .idx = 3,
						       .tid = 4001,
						       .cpu = UINT32_MAX};
	_cleanup_(perfdata_writer_freep) struct perfdata_writer *w = NULL;
	struct perf_event_header h = {.type = PERF_RECORD_SWITCH, .size = 8};
	struct {
		struct perfabi_auxtrace record;
		uint8_t bytes[16];
		struct perf_event_header next;
	} got;
	struct perfdata_about about = ABOUT;
	char path[64], command[256];
	unsigned n;
	int fd = file_new(path);

	about.aux_pmu = "intel_pt";
	about.aux_pmu_type = 6;
	about.perf_clock = true;
	assert_int_equal(perfdata_writer_new(fd, 104 + sizeof(got), NULL, &w), 0);
	add_events(w);
	assert_int_equal(perfdata_aux_begin(w, &record, 0), -EINVAL);
	assert_int_equal(perfdata_aux_begin(w, &record, 25), -EFBIG);
	assert_int_equal(perfdata_aux_add(w, "x", 1), -EINVAL); /* none was begun */
	assert_int_equal(perfdata_aux_begin(w, &record, 11), 0);
	assert_int_equal(perfdata_write(w, &h, 8), -EINVAL);
	assert_int_equal(perfdata_finish(w, &about), -EINVAL);
	assert_int_equal(perfdata_aux_add(w, "abcde", 5), 0);
	assert_int_equal(perfdata_aux_add(w, "fghijkl", 7), -EINVAL);
	assert_int_equal(perfdata_aux_add(w, "fghijk", 6), 0);
	assert_int_equal(perfdata_write(w, &h, 8), 0);
	assert_int_equal(perfdata_counts(w)->others, 1);
	assert_int_equal(perfdata_finish(w, &about), 0);

	assert_int_equal(pread(fd, &got, sizeof(got), 104), sizeof(got));
	assert_int_equal(got.record.header.type, PERFABI_RECORD_AUXTRACE);
	assert_int_equal(got.record.header.size, 48);
	assert_int_equal(got.record.size, 16);
	assert_int_equal(got.record.reference, 77);
	assert_int_equal(got.record.idx, 3);
	assert_memory_equal(got.bytes, "abcdefghijk\0\0\0\0", 16);
	assert_int_equal(got.next.type, PERF_RECORD_SWITCH);
	if (system("perf --version >/dev/null 2>&1") == 0) {
		(void)snprintf(command, sizeof(command),
			       "perf script -i %s --force --header-only 2>/dev/null", path);
		assert_int_equal(run(command, "intel_pt = 6", &n), 0);
		assert_int_equal(n, 1);
		assert_int_equal(run(command, "# clockid", &n), 0);
		assert_int_equal(n, 0);
	}
	(void)close(fd);
	(void)unlink(path);
}

/* perf finds code of the vDSO by its build id: the one that it finds in the mapping itself. */
static void test_vdso(void **state)
{
	_cleanup_(perfdata_writer_freep) struct perfdata_writer *w = NULL;
	struct perfdata_about about = ABOUT;
	char path[64], command[256], want[64] = "";
	uint8_t id[VDSO_BUILD_ID_MAX];
	size_t n = vdso_build_id(id);
	int fd = file_new(path);
	unsigned found;

	if (n == 0 || system("perf --version >/dev/null 2>&1") != 0)
		skip();
	for (size_t i = 0; i < n; i++)
		(void)snprintf(want + 2 * i, sizeof(want) - 2 * i, "%02x", id[i]);
	about.vdso = true;
	assert_int_equal(perfdata_writer_new(fd, 0, NULL, &w), 0);
	add_events(w);
	assert_int_equal(perfdata_finish(w, &about), 0);
	(void)snprintf(command, sizeof(command), "perf buildid-list -i %s --force 2>/dev/null",
		       path);
	(void)snprintf(want + 2 * n, sizeof(want) - 2 * n, " [vdso]");
	assert_int_equal(run(command, want, &found), 0);
	assert_int_equal(found, 1);
	(void)close(fd);
	(void)unlink(path);
}

/*
 * Ids that are added later, which perf finds; and files that are no perf.data, or lie about
 * themselves, stay as they are.
 */
static void test_added_ids(void **state)
{
	static const char name63[] =
		"/a/path/of/sixty-three/bytes/which/leaves/room/for/one/zero/on0";
	const struct perfdata_id first[] = {
		{.path = "/usr/bin/one", .id = "ABCDEFGHIJKLMNOPQRST", .len = 20},
		{.path = name63, .id = "01234567890123456789", .len = 20}};
	const struct perfdata_id second = {.path = "/lib/two.so",
					   .id = "0123456789abcdef",
					   .len = 16};
	_cleanup_(perfdata_writer_freep) struct perfdata_writer *w = NULL;
	struct perfdata_about about = ABOUT;
	char path[64], command[256];
	uint64_t offset, lie = UINT64_MAX - 4;
	int fd = file_new(path);
	struct stat before, after;
	unsigned found;

	assert_int_equal(perfdata_ids_add(fd, first, 2), -EINVAL); /* it is empty */
	about.vdso = true;
	assert_int_equal(perfdata_writer_new(fd, 0, NULL, &w), 0);
	add_events(w);
	assert_int_equal(perfdata_finish(w, &about), 0);
	assert_int_equal(perfdata_ids_add(fd, first, 2), 0);
	assert_int_equal(perfdata_ids_add(fd, &second, 1), 0);
	if (system("perf --version >/dev/null 2>&1") == 0) {
		(void)snprintf(command, sizeof(command), "perf buildid-list -i %s --force", path);
		assert_int_equal(run(command,
				     "4142434445464748494a4b4c4d4e4f5051525354 /usr/bin/one",
				     &found),
				 0);
		assert_int_equal(found, 1);
		assert_int_equal(run(command, name63, &found), 0);
		assert_int_equal(found, 1);
		assert_int_equal(run(command, "30313233343536373839616263646566  ", &found), 0);
		assert_int_equal(found, 1);
		assert_int_equal(run(command, " [vdso]", &found), 0);
		assert_int_equal(found, vdso_build_id((uint8_t[VDSO_BUILD_ID_MAX]){0}) > 0);
	}
	/* the table of features is not where the header says */
	assert_int_equal(pread(fd, &offset, 8, 40), 8); /* data.offset */
	assert_int_equal(pwrite(fd, &lie, 8, 40), 8);
	assert_int_equal(fstat(fd, &before), 0);
	assert_int_equal(perfdata_ids_add(fd, &second, 1), -EINVAL);
	assert_int_equal(fstat(fd, &after), 0);
	assert_int_equal(before.st_size, after.st_size);
	assert_int_equal(pwrite(fd, &offset, 8, 40), 8);
	lie = 0; /* features: none */
	assert_int_equal(pwrite(fd, &lie, 8, 72), 8);
	assert_int_equal(perfdata_ids_add(fd, &second, 1), -EINVAL);
	(void)close(fd);
	(void)unlink(path);
}

static void test_full_disk(void **state)
{
	_cleanup_(perfdata_writer_freep) struct perfdata_writer *w = NULL;
	struct perf_event_header h = {.type = PERF_RECORD_SWITCH, .size = 8};
	int fd = open("/dev/full", O_WRONLY | O_CLOEXEC), r = 0;

	assert_true(fd >= 0);
	assert_int_equal(perfdata_writer_new(fd, 0, NULL, &w), 0);
	add_events(w);
	for (unsigned i = 0; r == 0 && i < 100000; i++)
		r = perfdata_write(w, &h, 8);
	assert_int_equal(r, -ENOSPC);
	assert_int_equal(perfdata_write(w, &h, 8), -ENOSPC);
	assert_int_equal(perfdata_finish(w, &ABOUT), -ENOSPC);
	(void)close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_perf_reads_it),
		cmocka_unit_test(test_counts_and_losses),
		cmocka_unit_test(test_refuses_broken_records),
		cmocka_unit_test(test_limit_and_cancel),
		cmocka_unit_test(test_aux),
		cmocka_unit_test(test_vdso),
		cmocka_unit_test(test_added_ids),
		cmocka_unit_test(test_full_disk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
