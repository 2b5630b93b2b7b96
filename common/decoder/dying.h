/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoders that were killed and have not died yet. A process that waits for a file system dies when
 * that answers, which may be never; nobody waits for it. For common/decoder/decoder.c, which puts
 * them here, and for the program around it, which reaps them when their descriptor says so, and
 * reports how many there are.
 *
 * They are children of the process, so there is one list. One thread uses it: the one that starts
 * decoders.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* While so many have not died, no other is started: for the same user, for anybody. */
#define DECODER_MAX_DYING_USER 4
#define DECODER_MAX_DYING 16

/* A place on the list, made before there is a child, so that there is always one for it. */
struct dying_child;

struct dying_child *dying_child_new(uid_t uid);
void dying_child_free(struct dying_child *c); /* one that was not put on the list */

/* Whether so many have not died that `uid` gets no more. */
bool decoder_dying_full(uid_t uid);

/*
 * Kills the child and takes `c` and `pidfd` over. It is reaped at once where it has died already.
 */
void decoder_dying_add(struct dying_child *c, pid_t pid, int pidfd);

/*
 * Readable when one can be reaped; for the life of the process. Made at the first call, -errno
 * where that fails: then they are reaped when the next one is added.
 */
int decoder_dying_fd(void);
void decoder_dying_reap(void);

unsigned int decoder_dying_count(void);

/* Reaps until there is none, or the time is over: before an exit. */
void decoder_dying_wait(unsigned int ms);
