/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a thread does not run, in one word: of its slice, of the summary, and of the text of calls.
 */
#pragma once

#include <stdbool.h>

enum off_cpu {
	OFF_CPU_UNKNOWN, /* no more is known */
	OFF_CPU_PREEMPTED,
	OFF_CPU_THROTTLED, /* likewise it could run on, but its cgroup's CPU quota is used up */
	OFF_CPU_SLEEPING,
	OFF_CPU_UNINTERRUPTIBLE,
	OFF_CPU_STOPPED,
	OFF_CPU_DEAD,
};

#define OFF_CPUS ((unsigned int)OFF_CPU_DEAD + 1)

/* The word: "sleeping", "unknown". A number that is none of these is unknown, too. Static. */
const char *off_cpu_text(enum off_cpu why);

/* The word behind what it is: "off CPU: sleeping", "off CPU" if it is not known. Static. */
const char *off_cpu_label(enum off_cpu why);

/* Whether it waits for nothing but a CPU. */
static inline bool off_cpu_is_ready(enum off_cpu why)
{
	return why == OFF_CPU_PREEMPTED || why == OFF_CPU_THROTTLED;
}
