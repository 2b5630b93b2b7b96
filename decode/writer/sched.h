/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the scheduling events of each CPU that wait to be written as one bundle of columns (the
 * compact form of Perfetto's ftrace events). It knows the bundle's fields and nothing of packets.
 */
#pragma once

#include "decode/base/strtab.h"
#include "decode/writer/pb.h"
#include "decode/writer/writer.h"

struct writer_sched;

/* The CPU's bundle must be written (writer_sched_put) before the next event. */
#define WRITER_SCHED_FULL 1

/* `preempted` is the value that says so in a switch's state; it depends on the kernel's version. */
int writer_sched_new(struct writer_sched **ret) _must_check_;
void writer_sched_set_preempted(struct writer_sched *s, uint32_t preempted);
struct writer_sched *writer_sched_free(struct writer_sched *s);

/* Both return 0, WRITER_SCHED_FULL or a negative errno; `ts` is on BOOTTIME. */
int writer_sched_switch(struct writer_sched *s, uint32_t cpu, uint64_t ts,
			const struct writer_switch *sw);
int writer_sched_waking(struct writer_sched *s, uint32_t cpu, uint64_t ts,
			const struct writer_waking *k);

/*
 * Appends a bundle's fields; true: call again with a new bundle, for there is more. (A CPU's first
 * switch is a bundle of its own, so that the importer sees it first.)
 */
bool writer_sched_put(struct writer_sched *s, uint32_t cpu, const struct strtab *names,
		      struct pb *pb);

/* The first CPU from *cpu on that has something to write. */
bool writer_sched_next(const struct writer_sched *s, uint32_t *cpu);
