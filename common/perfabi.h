/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's perf interface as far as it is newer than the headers that a build machine may
 * have, the records' layouts that those headers only describe in comments, and the system call.
 */
#pragma once

#include <linux/perf_event.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* Linux 6.0 */
#define PERFABI_FORMAT_LOST (1U << 4)

/* Everything that a record of ours carries in its sample, or in its trailer. */
#define PERFABI_SAMPLE_ID_TYPE (PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU)

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

static inline int perfabi_open(struct perf_event_attr *attr, pid_t pid, int cpu, int group_fd, unsigned long flags)
{
	return (int)syscall(SYS_perf_event_open, attr, pid, cpu, group_fd, flags | PERF_FLAG_FD_CLOEXEC);
}
