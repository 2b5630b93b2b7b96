// SPDX-License-Identifier: Apache-2.0
#include "common/bundle/stackrec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/bundle/perfabi.h"

/*
 * By the kernel's numbers (asm/perf_regs.h of x86): AX BX CX DX SI DI BP SP IP, then FLAGS and
 * segments, then R8 to R15.
 */
#define REGS_MASK 0xff01ffull
#define N_REGS 17u

struct head {
	struct perf_event_header header;
	uint64_t id, ip;
	uint32_t pid, tid;
	uint64_t time;
	uint32_t cpu, reserved;
	uint64_t abi, regs[N_REGS];
	uint64_t stack_size;
};

struct record {
	struct head head;
	uint8_t stack[STACKREC_MAX + 8]; /* and the size of what was there */
};
_Static_assert(sizeof(struct record) < 65536, "header.size has 16 bits");

int stackrec_add_event(struct perfdata_writer *w, uint64_t id)
{
	const struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_DUMMY,
		.sample_period = 1,
		.sample_type = PERFABI_SAMPLE_ID_TYPE | PERF_SAMPLE_IP | PERF_SAMPLE_REGS_USER |
			       PERF_SAMPLE_STACK_USER,
		.read_format = PERF_FORMAT_ID,
		.sample_regs_user = REGS_MASK,
		.sample_stack_user = STACKREC_MAX,
		.sample_id_all = 1,
		.exclude_kernel = 1,
		.exclude_hv = 1,
	};

	return perfdata_add_event(w, "stack", &attr, &id, 1);
}

int stackrec_write(struct perfdata_writer *w, const struct stackrec *rec)
{
	const struct user_regs_struct *r = rec->regs;
	const uint64_t size = (rec->stack_bytes < STACKREC_MAX ? rec->stack_bytes : STACKREC_MAX) &
			      ~UINT64_C(7);
	const size_t length = offsetof(struct record, stack) + (size ? size + sizeof(size) : 0);
	_cleanup_free_ struct record *out = malloc(sizeof(*out));

	if (!out)
		return -ENOMEM;
	out->head = (struct head){
		.header = {.type = PERF_RECORD_SAMPLE,
			   .misc = PERF_RECORD_MISC_USER,
			   .size = (uint16_t)length},
		.id = rec->id,
		.ip = r->rip,
		.pid = (uint32_t)rec->pid,
		.tid = (uint32_t)rec->tid,
		.time = rec->time,
		.abi = PERF_SAMPLE_REGS_ABI_64,
		.regs = {r->rax, r->rbx, r->rcx, r->rdx, r->rsi, r->rdi, r->rbp, r->rsp, r->rip,
			 r->r8, r->r9, r->r10, r->r11, r->r12, r->r13, r->r14, r->r15},
		.stack_size = size,
	};
	if (size) {
		memcpy(out->stack, rec->stack, size);
		memcpy(out->stack + size, &size, sizeof(size));
	}
	return perfdata_write(w, out, length);
}
