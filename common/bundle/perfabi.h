/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's perf interface as far as it is newer than the headers that a build machine may
 * have, the records' layouts that those headers only describe in comments, and the system call.
 */
#pragma once

#include <linux/perf_event.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* Linux 6.0 */
#define PERFABI_FORMAT_LOST (1U << 4)

/* Everything that a record of ours carries in its sample, or in its trailer. */
#define PERFABI_SAMPLE_ID_TYPE \
	(PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU)

/* The trailer of records that are no samples, for PERFABI_SAMPLE_ID_TYPE with sample_id_all. */
struct perfabi_sample_id {
	uint32_t pid, tid;
	uint64_t time;
	uint32_t cpu, reserved;
	uint64_t id;
};

struct perfabi_mmap2 {
	struct perf_event_header header;
	uint32_t pid, tid;
	uint64_t addr, len, pgoff;
	uint32_t maj, min;
	uint64_t ino, ino_generation;
	uint32_t prot, flags;
	char filename[];
};

struct perfabi_comm {
	struct perf_event_header header;
	uint32_t pid, tid;
	char comm[];
};

/* FORK and EXIT */
struct perfabi_task {
	struct perf_event_header header;
	uint32_t pid, ppid;
	uint32_t tid, ptid;
	uint64_t time;
};

struct perfabi_lost {
	struct perf_event_header header;
	uint64_t id, lost;
};

struct perfabi_itrace_start {
	struct perf_event_header header;
	uint32_t pid, tid;
};

/*
 * In place of a process and a thread that a reader may not know, or that the kernel does not know
 * any more.
 */
#define PERFABI_NOBODY UINT32_MAX

struct perfabi_switch_cpu_wide {
	struct perf_event_header header;
	uint32_t next_prev_pid, next_prev_tid;
};

struct perfabi_aux {
	struct perf_event_header header;
	uint64_t offset, size, flags;
};

/*
 * Records that perf itself writes (tools/perf/Documentation/perf.data-file-format.txt); they have
 * no trailer. The bytes of an AUXTRACE follow it and are not in its header.size.
 */
enum {
	PERFABI_RECORD_AUXTRACE_INFO = 70,
	PERFABI_RECORD_AUXTRACE = 71,
	PERFABI_RECORD_TIME_CONV = 79,
};

struct perfabi_auxtrace {
	struct perf_event_header header;
	uint64_t size, offset, reference;
	uint32_t idx, tid, cpu, reserved;
};

struct perfabi_time_conv {
	struct perf_event_header header;
	uint64_t shift, mult, zero;
};

#define PERFABI_AUXTRACE_INTEL_PT 1U
/* have_sched_switch: SWITCH records of the traced tasks tell who runs, or SWITCH_CPU_WIDE ones */
#define PERFABI_PT_SWITCHES_OF_TASKS 2U
#define PERFABI_PT_SWITCHES_OF_CPUS 3U

/* The words of AUXTRACE_INFO as perf's intel-pt.c reads them. */
enum perfabi_pt_word {
	PERFABI_PT_PMU_TYPE,
	PERFABI_PT_TIME_SHIFT,
	PERFABI_PT_TIME_MULT,
	PERFABI_PT_TIME_ZERO,
	PERFABI_PT_CAP_USER_TIME_ZERO,
	PERFABI_PT_TSC_BIT, /* these: bits of the event's config */
	PERFABI_PT_NORETCOMP_BIT,
	PERFABI_PT_HAVE_SCHED_SWITCH,
	PERFABI_PT_SNAPSHOT_MODE,
	PERFABI_PT_PER_CPU_MMAPS,
	PERFABI_PT_MTC_BIT,
	PERFABI_PT_MTC_FREQ_BITS,
	PERFABI_PT_TSC_CTC_N, /* CPUID.15H EBX, EAX */
	PERFABI_PT_TSC_CTC_D,
	PERFABI_PT_CYC_BIT,
	PERFABI_PT_MAX_NONTURBO_RATIO,
	PERFABI_PT_FILTER_STR_LEN, /* the string follows, padded to 8 */
	_PERFABI_PT_WORDS,
};

struct perfabi_auxtrace_info_pt {
	struct perf_event_header header;
	uint32_t type, reserved;
	uint64_t words[_PERFABI_PT_WORDS];
};

/* Bits of the config of an intel_pt event (/sys/bus/event_source/devices/intel_pt/format). */
#define PERFABI_PT_CONFIG_PT (UINT64_C(1) << 0)
#define PERFABI_PT_CONFIG_CYC (UINT64_C(1) << 1)
#define PERFABI_PT_CONFIG_MTC (UINT64_C(1) << 9)
#define PERFABI_PT_CONFIG_TSC (UINT64_C(1) << 10)
#define PERFABI_PT_CONFIG_NORETCOMP (UINT64_C(1) << 11)
#define PERFABI_PT_CONFIG_BRANCH (UINT64_C(1) << 13)
#define PERFABI_PT_CONFIG_MTC_PERIOD (UINT64_C(0xf) << 14)
#define PERFABI_PT_CONFIG_PSB_PERIOD_SHIFT 24

struct perfabi_ns {
	uint64_t dev, ino;
};

struct perfabi_namespaces {
	struct perf_event_header header;
	uint32_t pid, tid;
	uint64_t nr;
	struct perfabi_ns ns[];
};

/* The registers of x86-64 without the segments that a user's frame does not need. */
#define PERFABI_REGS_X86_64 0xff0fffULL
/* x0-x30, sp, pc */
#define PERFABI_REGS_ARM64 0x1ffffffffULL
#if defined(__x86_64__)
#define PERFABI_REGS_USER PERFABI_REGS_X86_64
#elif defined(__aarch64__)
#define PERFABI_REGS_USER PERFABI_REGS_ARM64
#else
#define PERFABI_REGS_USER 0ULL /* no dwarf stacks here */
#endif

/*
 * What an event does to the AUX area of its group's leader (perf_event_open(2), kernel 6.13), in a
 * word that older headers call reserved. Kernels that do not know it, and PMUs that cannot, answer
 * EINVAL.
 */
#define PERFABI_AUX_PAUSE 2u
#define PERFABI_AUX_RESUME 4u
static inline void perfabi_set_aux_action(struct perf_event_attr *attr, uint32_t action)
{
	memcpy((char *)attr + offsetof(struct perf_event_attr, aux_sample_size) +
		       sizeof(attr->aux_sample_size),
	       &action, sizeof(action));
}

static inline int perfabi_open(struct perf_event_attr *attr, pid_t pid, int cpu, int group_fd,
			       unsigned long flags)
{
	return (int)syscall(SYS_perf_event_open, attr, pid, cpu, group_fd,
			    flags | PERF_FLAG_FD_CLOEXEC);
}
