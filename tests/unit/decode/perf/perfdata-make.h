/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes small perf.data files record by record, whole and broken ones, for the tests of the
 * reader. Writes the file layout by itself, so that reader and writer do not share a mistake.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct make {
	uint8_t data[1 << 20];
	size_t n;     /* bytes of records */
	size_t begun; /* where the record under construction starts */
	uint64_t sample_type;
	uint64_t id; /* of the one event */
	int cycles;  /* a sample each so many cycles instead, the time between unknown */
	uint64_t config; /* of the event, 0: what it is */
	uint32_t cpu;	 /* of samples */
	int backward;	 /* its rings kept the newest */
};

/* One cpu-clock event of 1 kHz with IP, TID, TIME, CPU, CALLCHAIN and sample_id_all. */
void make_init(struct make *m);

void make_begin(struct make *m, uint32_t type, uint16_t misc);
void make_u64(struct make *m, uint64_t v);
void make_u32(struct make *m, uint32_t a, uint32_t b);
void make_text(struct make *m, const char *s);
void make_end(struct make *m);
/* The trailer of records that are no samples, then make_end(). */
void make_end_with_id(struct make *m, uint32_t pid, uint32_t tid, uint64_t time, uint32_t cpu);

void make_comm(
	struct make *m, uint64_t time, uint32_t pid, uint32_t tid, const char *name, int exec);
void make_fork(
	struct make *m, uint64_t time, uint32_t pid, uint32_t tid, uint32_t ppid, uint32_t ptid);
void make_exit(struct make *m, uint64_t time, uint32_t pid, uint32_t tid);
void make_mmap(struct make *m, uint64_t time, uint32_t pid, uint64_t addr, uint64_t len,
	uint64_t off, uint64_t ino, const char *path);
void make_sample(
	struct make *m, uint64_t time, uint32_t pid, uint32_t tid, const uint64_t *chain, size_t n);
void make_switch(struct make *m, uint64_t time, uint32_t pid, uint32_t tid, int out);

/* SWITCH_CPU_WIDE: away from the thread to the other one, or here from it. */
void make_switch_wide(struct make *m, uint64_t time, uint32_t cpu, uint32_t pid, uint32_t tid,
		      uint32_t other_pid, uint32_t other_tid, int out);

/*
 * One event more, a tracepoint that is recorded each time, with IDENTIFIER, IP, TID, TIME, CPU,
 * RAW; and one of it, of which the kernel's struct is `raw`. Both are known by `id`.
 */
void make_tracepoint(struct make *m, uint64_t id, const char *name);
void make_tracepoint_sample(struct make *m, uint64_t id, uint64_t time, uint32_t pid, uint32_t tid,
			    const void *raw, size_t n);

/*
 * Intel PT: AUXTRACE_INFO says that the file's event is it, with TSC (1 ns each) and an MTC every 8
 * ticks of a counter that runs at a 4th of that; AUXTRACE with its bytes, padded.
 */
#define MAKE_PT_CONFIG 0xce00u /* TSC, MTC, period 3 */
void make_pt_info(struct make *m, int snapshot, int per_cpu);
void make_aux(struct make *m, uint32_t idx, int32_t tid, int32_t cpu, uint64_t offset,
	      uint64_t reference, const void *bytes, size_t n);

/* The whole file as a new memfd. */
int make_file(const struct make *m);
