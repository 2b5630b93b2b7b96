/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "decode/base/off_cpu.h"

#define PREFIX "off CPU: "

static const char *const labels[OFF_CPUS] = {
	[OFF_CPU_UNKNOWN] = PREFIX "unknown",
	[OFF_CPU_PREEMPTED] = PREFIX "preempted",
	[OFF_CPU_THROTTLED] = PREFIX "throttled",
	[OFF_CPU_SLEEPING] = PREFIX "sleeping",
	[OFF_CPU_UNINTERRUPTIBLE] = PREFIX "uninterruptible",
	[OFF_CPU_STOPPED] = PREFIX "stopped",
	[OFF_CPU_DEAD] = PREFIX "dead",
};

const char *off_cpu_text(enum off_cpu why)
{
	return labels[(unsigned int)why < OFF_CPUS ? why : OFF_CPU_UNKNOWN] + sizeof(PREFIX) - 1;
}

const char *off_cpu_label(enum off_cpu why)
{
	return (unsigned int)why < OFF_CPUS && why != OFF_CPU_UNKNOWN ? labels[why] : "off CPU";
}
