/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Further processes for a target that is armed: one on its way from the request to its answer. For
 * daemon/target/scan.c, which makes them members and reads them, and daemon/target/proof.c, which
 * finds out whether the target's owner may see them.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct target;

/* The next one that is to be read; `ret_dirfd` stays the join's. False: there is none. */
bool joins_next(struct target *target, pid_t *ret_pid, int *ret_dirfd);
/*
 * The ones of joins_next() have been read: answers those of which it is known whether they may be
 * seen.
 */
void joins_were_read(struct target *target);
/* It has become known of a process. */
void joins_look(struct target *target);
/* Answers all: the target records no more. */
void joins_refuse(struct target *target, const char *why);
