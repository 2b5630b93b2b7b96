/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns who runs on each CPU, as far as it follows from the switches of the recorded threads
 * alone, and passes it to the writer as switches that join without a gap.
 *
 * What is not recorded is not made up. Between a recorded thread's leaving and the next one's
 * coming only the first and the last occupant are known: if they are the same kind, that one is
 * shown, else the pseudo-thread "idle or other". Where switches are missing it is "not recorded".
 * A pseudo-thread exists once a CPU (as the idle task does), for it may be on several at once;
 * their tids lie above what Linux gives out (2^22).
 */
#pragma once

#include "decode/writer/writer.h"

struct sched;

/* Who ran instead or woke; tid is real or one of TL_TID_*; name is a writer's, 0 = not known. */
struct sched_task {
	uint32_t tid, name;
};

int sched_new(struct writer *w, struct sched **ret) _must_check_;
struct sched *sched_free(struct sched *s);
DEFINE_CLEANUP(struct sched *, sched_free)

/*
 * A recorded thread leaves, comes, is seen running on the CPU, or somebody is woken from there.
 * Return 0, -ENOMEM, or SCHED_E_CPU for a CPU number beyond the limit. `ts` must not go back.
 */
#define SCHED_E_CPU 1
int sched_out(struct sched *s, uint32_t cpu, uint64_t ts, struct sched_task task,
	      enum writer_state state, struct sched_task other);
int sched_in(struct sched *s, uint32_t cpu, uint64_t ts, struct sched_task task,
	     struct sched_task other);
int sched_seen(struct sched *s, uint32_t cpu, uint64_t ts, struct sched_task task);
/*
 * It ends: on a CPU where it runs somebody else may come without its leaving (a thread's own SWITCH
 * records end with it).
 */
void sched_exit(struct sched *s, uint64_t ts, uint32_t tid);
/* Somebody leaves who has exited and has no number any more. */
int sched_gone(struct sched *s, uint32_t cpu, uint64_t ts, struct sched_task other);
int sched_wake(struct sched *s, uint32_t cpu, uint64_t ts, struct sched_task wakee,
	       struct sched_task waker, bool in_irq);

/* From then on it is not known who runs anywhere, until the next switch or sight. */
void sched_lost(struct sched *s, uint64_t ts);

/* Passes on what was held back. */
void sched_finish(struct sched *s);

/* How often two switches contradicted each other. */
uint64_t sched_inconsistent(const struct sched *s);
