// SPDX-License-Identifier: Apache-2.0
#include "decode/go/format.h"

#define STACK(bit) .stacks = (bit)
#define STRING(bit) .strings = (bit)

const struct gofmt_spec gofmt_specs[GOFMT_N_TYPES] = {
	[GOFMT_EVENT_BATCH] = {"EventBatch"},
	[GOFMT_STACKS] = {"Stacks"},
	[GOFMT_STACK] = {"Stack"},
	[GOFMT_STRINGS] = {"Strings"},
	[GOFMT_STRING] = {"String"},
	[GOFMT_CPU_SAMPLES] = {"CPUSamples"},
	[GOFMT_CPU_SAMPLE] = {"CPUSample"},
	[GOFMT_FREQUENCY] = {"Frequency"},
	[GOFMT_PROCS_CHANGE] = {"ProcsChange", true, 2, STACK(2), .args = {"procs_value", "stack"}},
	[GOFMT_PROC_START] = {"ProcStart", true, 2, .args = {"p", "p_seq"}},
	[GOFMT_PROC_STOP] = {"ProcStop", true},
	[GOFMT_PROC_STEAL] = {"ProcSteal", true, 3, .args = {"p", "p_seq", "m"}},
	[GOFMT_PROC_STATUS] = {"ProcStatus", true, 2, .args = {"p", "pstatus"}},
	[GOFMT_GO_CREATE] = {"GoCreate", true, 3, STACK(6),
			     .args = {"new_g", "new_stack", "stack"}},
	[GOFMT_GO_CREATE_SYSCALL] = {"GoCreateSyscall", true, 1, .args = {"new_g"}},
	[GOFMT_GO_START] = {"GoStart", true, 2, .args = {"g", "g_seq"}},
	[GOFMT_GO_DESTROY] = {"GoDestroy", true},
	[GOFMT_GO_DESTROY_SYSCALL] = {"GoDestroySyscall", true},
	[GOFMT_GO_STOP] = {"GoStop", true, 2, STRING(1), STACK(2),
			   .args = {"reason_string", "stack"}},
	[GOFMT_GO_BLOCK] = {"GoBlock", true, 2, STRING(1), STACK(2),
			    .args = {"reason_string", "stack"}},
	[GOFMT_GO_UNBLOCK] = {"GoUnblock", true, 3, STACK(4), .args = {"g", "g_seq", "stack"}},
	[GOFMT_GO_SYSCALL_BEGIN] = {"GoSyscallBegin", true, 2, STACK(2),
				    .args = {"p_seq", "stack"}},
	[GOFMT_GO_SYSCALL_END] = {"GoSyscallEnd", true},
	[GOFMT_GO_SYSCALL_END_BLOCKED] = {"GoSyscallEndBlocked", true},
	[GOFMT_GO_STATUS] = {"GoStatus", true, 3, .args = {"g", "m", "gstatus"}},
	[GOFMT_STW_BEGIN] = {"STWBegin", true, 2, STRING(1), STACK(2),
			     .args = {"kind_string", "stack"}},
	[GOFMT_STW_END] = {"STWEnd", true},
	[GOFMT_GC_ACTIVE] = {"GCActive", true, 1, .args = {"gc_seq"}},
	[GOFMT_GC_BEGIN] = {"GCBegin", true, 2, STACK(2), .args = {"gc_seq", "stack"}},
	[GOFMT_GC_END] = {"GCEnd", true, 1, .args = {"gc_seq"}},
	[GOFMT_GC_SWEEP_ACTIVE] = {"GCSweepActive", true, 1, .args = {"p"}},
	[GOFMT_GC_SWEEP_BEGIN] = {"GCSweepBegin", true, 1, STACK(1), .args = {"stack"}},
	[GOFMT_GC_SWEEP_END] = {"GCSweepEnd", true, 2, .args = {"swept_value", "reclaimed_value"}},
	[GOFMT_GC_MARK_ASSIST_ACTIVE] = {"GCMarkAssistActive", true, 1, .args = {"g"}},
	[GOFMT_GC_MARK_ASSIST_BEGIN] = {"GCMarkAssistBegin", true, 1, STACK(1), .args = {"stack"}},
	[GOFMT_GC_MARK_ASSIST_END] = {"GCMarkAssistEnd", true},
	[GOFMT_HEAP_ALLOC] = {"HeapAlloc", true, 1, .args = {"heapalloc_value"}},
	[GOFMT_HEAP_GOAL] = {"HeapGoal", true, 1, .args = {"heapgoal_value"}},
	[GOFMT_GO_LABEL] = {"GoLabel", true, 1, STRING(1), .args = {"label_string"}},
	[GOFMT_USER_TASK_BEGIN] = {"UserTaskBegin", true, 4, STRING(4), STACK(8),
				   .args = {"task", "parent_task", "name_string", "stack"}},
	[GOFMT_USER_TASK_END] = {"UserTaskEnd", true, 2, STACK(2), .args = {"task", "stack"}},
	[GOFMT_USER_REGION_BEGIN] = {"UserRegionBegin", true, 3, STRING(2), STACK(4),
				     .args = {"task", "name_string", "stack"}},
	[GOFMT_USER_REGION_END] = {"UserRegionEnd", true, 3, STRING(2), STACK(4),
				   .args = {"task", "name_string", "stack"}},
	[GOFMT_USER_LOG] = {"UserLog", true, 4, STRING(6), STACK(8),
			    .args = {"task", "key_string", "value_string", "stack"}},
	[GOFMT_GO_SWITCH] = {"GoSwitch", true, 2, .args = {"g", "g_seq"}},
	[GOFMT_GO_SWITCH_DESTROY] = {"GoSwitchDestroy", true, 2, .args = {"g", "g_seq"}},
	[GOFMT_GO_CREATE_BLOCKED] = {"GoCreateBlocked", true, 3, STACK(6),
				     .args = {"new_g", "new_stack", "stack"}},
	[GOFMT_GO_STATUS_STACK] = {"GoStatusStack", true, 4, STACK(8),
				   .args = {"g", "m", "gstatus", "stack"}},
	[GOFMT_EXPERIMENTAL_BATCH] = {"ExperimentalBatch"},
	[GOFMT_SYNC] = {"Sync"},
	[GOFMT_CLOCK_SNAPSHOT] = {"ClockSnapshot", true, 3, .args = {"mono", "sec", "nsec"}},
	[GOFMT_END_OF_GENERATION] = {"EndOfGeneration"},
	[128] = {"Span", true, 3, .args = {"id", "npages_value", "kindclass"}},
	[129] = {"SpanAlloc", true, 3, .args = {"id", "npages_value", "kindclass"}},
	[130] = {"SpanFree", true, 1, .args = {"id"}},
	[131] = {"HeapObject", true, 2, .args = {"id", "type"}},
	[132] = {"HeapObjectAlloc", true, 2, .args = {"id", "type"}},
	[133] = {"HeapObjectFree", true, 1, .args = {"id"}},
	[134] = {"GoroutineStack", true, 2, .args = {"id", "order"}},
	[135] = {"GoroutineStackAlloc", true, 2, .args = {"id", "order"}},
	[136] = {"GoroutineStackFree", true, 1, .args = {"id"}},
};

int gofmt_long_uvarint(const uint8_t *p, uint64_t size, uint64_t *ret)
{
	uint64_t v = 0;

	for (unsigned int i = 0; i < 10; i++) {
		if (i == size)
			return 0;
		v |= (uint64_t)(p[i] & 0x7f) << 7 * i;
		if (p[i] < 0x80) {
			if (i == 9 && p[i] > 1)
				return -1;
			*ret = v;
			return (int)i + 1;
		}
	}
	return -1;
}
