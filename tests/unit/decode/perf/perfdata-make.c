// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/decode/perf/perfdata-make.h"

#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/io.h"

void make_init(struct make *m)
{
	memset(m, 0, sizeof(*m));
	m->sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID |
			 PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_CALLCHAIN;
	m->id = 77;
}

void make_u64(struct make *m, uint64_t v)
{
	if (m->n + 8 > sizeof(m->data))
		abort();
	memcpy(m->data + m->n, &v, 8);
	m->n += 8;
}

void make_u32(struct make *m, uint32_t a, uint32_t b)
{
	make_u64(m, (uint64_t)b << 32 | a);
}

void make_text(struct make *m, const char *s)
{
	size_t n = strlen(s) + 1;

	for (size_t at = 0; at < n; at += 8) {
		uint64_t v = 0;

		memcpy(&v, s + at, n - at < 8 ? n - at : 8);
		make_u64(m, v);
	}
}

void make_begin(struct make *m, uint32_t type, uint16_t misc)
{
	m->begun = m->n;
	make_u32(m, type, misc);
}

void make_end(struct make *m)
{
	uint16_t size = (uint16_t)(m->n - m->begun);

	memcpy(m->data + m->begun + 6, &size, 2);
}

void make_end_with_id(struct make *m, uint32_t pid, uint32_t tid, uint64_t time, uint32_t cpu)
{
	make_u32(m, pid, tid);
	make_u64(m, time);
	make_u32(m, cpu, 0);
	make_u64(m, m->id);
	make_end(m);
}

void make_comm(
	struct make *m, uint64_t time, uint32_t pid, uint32_t tid, const char *name, int exec)
{
	make_begin(m, PERF_RECORD_COMM, exec ? PERF_RECORD_MISC_COMM_EXEC : 0);
	make_u32(m, pid, tid);
	make_text(m, name);
	make_end_with_id(m, pid, tid, time, 0);
}

static void make_task(struct make *m, uint32_t type, uint64_t time, uint32_t pid, uint32_t tid,
	uint32_t ppid, uint32_t ptid)
{
	make_begin(m, type, 0);
	make_u32(m, pid, ppid);
	make_u32(m, tid, ptid);
	make_u64(m, time);
	make_end_with_id(m, ppid, ptid, time, 0);
}

void make_fork(
	struct make *m, uint64_t time, uint32_t pid, uint32_t tid, uint32_t ppid, uint32_t ptid)
{
	make_task(m, PERF_RECORD_FORK, time, pid, tid, ppid, ptid);
}

void make_exit(struct make *m, uint64_t time, uint32_t pid, uint32_t tid)
{
	make_task(m, PERF_RECORD_EXIT, time, pid, tid, pid, tid);
}

void make_mmap(struct make *m, uint64_t time, uint32_t pid, uint64_t addr, uint64_t len,
	uint64_t off, uint64_t ino, const char *path)
{
	make_begin(m, PERF_RECORD_MMAP2, PERF_RECORD_MISC_USER);
	make_u32(m, pid, pid);
	make_u64(m, addr);
	make_u64(m, len);
	make_u64(m, off);
	make_u32(m, 8, 1);
	make_u64(m, ino);
	make_u64(m, 0);
	make_u32(m, 5, 2); /* r-x, private */
	make_text(m, path);
	make_end_with_id(m, pid, pid, time, 0);
}

void make_sample(
	struct make *m, uint64_t time, uint32_t pid, uint32_t tid, const uint64_t *chain, size_t n)
{
	make_begin(m, PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER);
	make_u64(m, m->id);
	make_u64(m, n ? chain[0] : 0);
	make_u32(m, pid, tid);
	make_u64(m, time);
	make_u32(m, m->cpu, 0);
	make_u64(m, n + 1);
	make_u64(m, PERF_CONTEXT_USER);
	for (size_t i = 0; i < n; i++)
		make_u64(m, chain[i]);
	make_end(m);
}

void make_switch(struct make *m, uint64_t time, uint32_t pid, uint32_t tid, int out)
{
	make_begin(m, PERF_RECORD_SWITCH, out ? PERF_RECORD_MISC_SWITCH_OUT : 0);
	make_end_with_id(m, pid, tid, time, 0);
}

void make_switch_wide(struct make *m, uint64_t time, uint32_t cpu, uint32_t pid, uint32_t tid,
		      uint32_t other_pid, uint32_t other_tid, int out)
{
	make_begin(m, PERF_RECORD_SWITCH_CPU_WIDE, out ? PERF_RECORD_MISC_SWITCH_OUT : 0);
	make_u32(m, other_pid, other_tid);
	make_end_with_id(m, pid, tid, time, cpu);
}

void make_tracepoint(struct make *m, uint64_t id, const char *name)
{
	struct perf_event_attr attr = {.type = PERF_TYPE_TRACEPOINT,
				       .size = sizeof(attr),
				       .config = id,
				       .sample_period = 1,
				       .sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP |
						      PERF_SAMPLE_TID | PERF_SAMPLE_TIME |
						      PERF_SAMPLE_CPU | PERF_SAMPLE_RAW,
				       .sample_id_all = 1};
	uint64_t words[sizeof(attr) / 8];

	memcpy(words, &attr, sizeof(attr));
	make_begin(m, 64, 0);
	for (size_t i = 0; i < sizeof(attr) / 8; i++)
		make_u64(m, words[i]);
	make_u64(m, id);
	make_end(m);
	make_begin(m, 78, 0);
	make_u64(m, 2); /* the name */
	make_u64(m, id);
	make_text(m, name);
	make_end(m);
}

void make_tracepoint_sample(struct make *m, uint64_t id, uint64_t time, uint32_t pid, uint32_t tid,
			    const void *raw, size_t n)
{
	uint8_t words[256] = {0};
	const uint32_t size = (uint32_t)((4 + n + 7) / 8 * 8 - 4);

	if (n > sizeof(words) - 8)
		abort();
	memcpy(words, &size, 4);
	memcpy(words + 4, raw, n);
	make_begin(m, PERF_RECORD_SAMPLE, PERF_RECORD_MISC_KERNEL);
	make_u64(m, id);
	make_u64(m, 0xffffffff81000000);
	make_u32(m, pid, tid);
	make_u64(m, time);
	make_u32(m, m->cpu, 0);
	for (size_t at = 0; at < size + 4; at += 8) {
		uint64_t v;

		memcpy(&v, words + at, 8);
		make_u64(m, v);
	}
	make_end(m);
}

void make_pt_info(struct make *m, int snapshot, int per_cpu)
{
	const uint64_t words[17] = {
		PERF_TYPE_SOFTWARE, 1,     2,       0, 1, 0x400, 0x800, 3, (uint64_t)snapshot,
		(uint64_t)per_cpu,  0x200, 0x3c000, 4, 1, 2,     24,    0};

	m->config = MAKE_PT_CONFIG;
	make_begin(m, 70, 0);
	make_u32(m, 1, 0);
	for (size_t i = 0; i < 17; i++)
		make_u64(m, words[i]);
	make_end(m);
}

void make_aux(struct make *m, uint32_t idx, int32_t tid, int32_t cpu, uint64_t offset,
	      uint64_t reference, const void *bytes, size_t n)
{
	make_begin(m, 71, 0);
	make_u64(m, (n + 7) & ~(size_t)7);
	make_u64(m, offset);
	make_u64(m, reference);
	make_u32(m, idx, (uint32_t)tid);
	make_u32(m, (uint32_t)cpu, 0);
	make_end(m);
	for (size_t i = 0; i < n; i += 8) {
		uint64_t v = 0;

		memcpy(&v, (const uint8_t *)bytes + i, n - i < 8 ? n - i : 8);
		make_u64(m, v);
	}
}

int make_file(const struct make *m)
{
	struct perf_event_attr attr = {.type = m->cycles ? PERF_TYPE_HARDWARE : PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = m->config ? m->config : PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = 1000000,
		.sample_type = m->sample_type,
		.sample_id_all = 1,
		.use_clockid = 1,
		.write_backward = m->backward ? 1 : 0,
		.clockid = CLOCK_MONOTONIC};
	uint64_t header[13] = {
		0x32454c4946524550u, 104, sizeof(attr) + 16, 104 + 8, sizeof(attr) + 16};
	uint64_t data_off = 104 + 8 + sizeof(attr) + 16, ids[2] = {104, 8};
	int fd = io_memfd("perf.data");

	header[5] = data_off;
	header[6] = m->n;
	if (fd < 0 || io_pwrite_all(fd, header, sizeof(header), 0) < 0 ||
		io_pwrite_all(fd, &m->id, 8, 104) < 0 ||
		io_pwrite_all(fd, &attr, sizeof(attr), 112) < 0 ||
		io_pwrite_all(fd, ids, sizeof(ids), 112 + sizeof(attr)) < 0 ||
		io_pwrite_all(fd, m->data, m->n, (off_t)data_off) < 0)
		abort();
	return fd;
}
