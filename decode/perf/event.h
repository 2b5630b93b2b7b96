/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One record of a perf.data, taken apart: a tagged union of what decoding uses. Pointers lead
 * into the record's bytes and live until the next one is read. All numbers that could lead out
 * of the record have been checked; what they mean (addresses, pids) has not.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/bytes.h"
#include "decode/perf/data.h"

enum perfevent_kind {
	PERFEVENT_SAMPLE = 1,
	PERFEVENT_MMAP,
	PERFEVENT_COMM,
	PERFEVENT_FORK,
	PERFEVENT_EXIT,
	PERFEVENT_NAMESPACES,
	PERFEVENT_SWITCH,
	PERFEVENT_LOST,
	PERFEVENT_THROTTLE,
	PERFEVENT_AUX,
	PERFEVENT_ITRACE_START, /* pid and tid ran when tracing began */
	PERFEVENT_OTHER, /* known, but nothing that is used */
};

#define PERFEVENT_NO_CPU 0xffffffffu

/* What of a sample's registers is used, by the kernel's numbers for x86-64. */
enum { PERFEVENT_REG_SP = 7, PERFEVENT_REG_IP = 8, PERFEVENT_MAX_REGS = 64 };

struct perfevent_sample {
	uint64_t ip;
	uint64_t period;
	const uint8_t
		*chain; /* n_chain u64, not aligned; innermost first, with PERF_CONTEXT_* marks */
	uint64_t n_chain;
	bool has_chain;
	const uint8_t *raw;
	uint32_t raw_size;
	uint64_t regs_abi;  /* PERF_SAMPLE_REGS_ABI_*; 0: none */
	uint64_t regs_mask; /* which registers follow, lowest bit first */
	const uint8_t *regs;
	const uint8_t *stack; /* from the stack pointer up */
	uint64_t stack_size;  /* bytes that the kernel really copied */
};

struct perfevent_mmap {
	uint64_t addr, len, pgoff;
	uint32_t maj, min;
	uint64_t ino;
	uint8_t build_id[20];
	uint8_t build_id_size; /* 0: this record has device and inode instead, or nothing */
	bool has_inode;
	bool exec;
	const char *path;
	size_t path_len;
};

struct perfevent {
	enum perfevent_kind kind;
	uint16_t misc;
	uint16_t size; /* of the record */
	const struct perfattr *attr;
	uint64_t time;
	bool has_time;
	uint32_t pid, tid; /* of the sample_id, or the record's own */
	uint32_t cpu;
	union {
		struct perfevent_sample sample;
		struct perfevent_mmap mmap;
		struct {
			const char *name;
			size_t name_len;
			bool exec;
		} comm;
		struct {
			uint32_t ppid, ptid;
		} fork; /* also of an exit */
		struct {
			bool out, preempt;
			bool has_other; /* cpu-wide: pid and tid are the record's task, other the
					   next or previous */
			uint32_t other_pid, other_tid;
		} sw;
		struct {
			uint64_t count;
			bool samples; /* LOST_SAMPLES */
		} lost;
		struct {
			bool on; /* unthrottled */
		} throttle;
		struct {
			uint64_t size, flags;
		} aux;
	};
};

enum { PERFEVENT_E_MALFORMED = 1 };

/* Takes one record apart. 0, or PERFEVENT_E_MALFORMED. */
int perfevent_parse(
	struct perfdata *pd, const void *rec, size_t len, struct perfevent *ret) _must_check_;

/*
 * The next record in the order of time. Returns 1 and fills *ret, 0 at the end. Records that are
 * malformed are counted and passed over.
 */
int perfdata_next(struct perfdata *pd, struct perfevent *ret);

/*
 * Goes over all records beforehand, until `record` answers something else than 0, which it returns.
 * The next one is the first again, and losses are counted when that is read for good.
 */
typedef int (*perfdata_record_fn)(void *arg, const struct perfevent *ev);
int perfdata_walk(struct perfdata *pd, perfdata_record_fn record, void *arg);
