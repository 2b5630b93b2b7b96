/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the BPF filter lets pass of the targets' processes: one entry for each process, of what all
 * its targets want.
 */
#pragma once

#include <sys/types.h>

struct target;
struct targets;

/* Brings the entries of a process and of its single threads up to date. 0, -errno. */
int filter_entries_update(const struct targets *targets, pid_t pid);
/* The same for all living processes of the target. */
int filter_entries_update_all(const struct target *target);
