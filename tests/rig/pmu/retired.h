/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOFTPT_RETIRED_H
#define SOFTPT_RETIRED_H

#include <linux/types.h>

struct dentry;

/* As /sys/kernel/debug/softpt/retired has them. */
struct retired {
	u32 tid;	/* in the first PID namespace */
	u16 cpu;
	u16 lost;	/* 1: an overflow lost the packets of this instruction */
	u64 ip;
};

int retired_init(struct dentry *dir);
void retired_exit(void);
void retired_log(u64 ip, bool lost);

#endif
