// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/daemon/perf/record-make.h"

#include <string.h>

#define KERNEL_IP 0xffffffff81000000ULL

const struct record_layout record_dwarf_layout = {
	.sample_type = PERFABI_SAMPLE_ID_TYPE | PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN |
		       PERF_SAMPLE_RAW | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER,
	.regs_user = 0x7,
};

static void put(struct record_made *b, const void *p, size_t n)
{
	memcpy(b->bytes + b->len, p, n);
	b->len += n;
}

static void put64(struct record_made *b, uint64_t v)
{
	put(b, &v, 8);
}

static void put32(struct record_made *b, uint32_t v)
{
	put(b, &v, 4);
}

void record_make(struct record_made *b, const struct tracerd_sched_event *ev, uint32_t pid,
		 uint32_t tid)
{
	struct perf_event_header h = {.type = PERF_RECORD_SAMPLE, .misc = PERF_RECORD_MISC_KERNEL};
	uint8_t stack[RECORD_STACK_BYTES];

	*b = (struct record_made){.len = sizeof(h)};
	memset(stack, 0x55, sizeof(stack));
	put64(b, 77); /* id */
	put64(b, KERNEL_IP);
	put32(b, pid);
	put32(b, tid);
	put64(b, 1000); /* time */
	put32(b, 1);
	put32(b, 0);
	put64(b, 5); /* chain */
	put64(b, (uint64_t)PERF_CONTEXT_KERNEL);
	put64(b, KERNEL_IP + 8);
	put64(b, (uint64_t)PERF_CONTEXT_USER);
	put64(b, 0x401000);
	put64(b, 0x402000);
	put32(b, sizeof(*ev) + 4); /* padded, as the kernel does */
	put(b, ev, sizeof(*ev));
	put32(b, 0);
	put64(b, 2); /* registers */
	for (int i = 0; i < 3; i++)
		put64(b, 0x1111);
	put64(b, RECORD_STACK_BYTES);
	put(b, stack, sizeof(stack));
	put64(b, RECORD_STACK_BYTES);
	h.size = (uint16_t)b->len;
	memcpy(b->bytes, &h, sizeof(h));
}

const struct tracerd_sched_event record_example = {
	.magic = SCHEDEV_MAGIC,
	.kind = SCHEDEV_OUT,
	.pid = 100,
	.tid = 101,
	.state = 1,
	.other_pid = 900,
	.other_tid = 901,
	.other_uid = 5,
	.cpu = 1,
	.other_comm = "secret",
};
