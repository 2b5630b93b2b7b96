/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reply of a tracerd-step to a request for its recording (common/control/stepabi.h): waits for
 * it, checks it, and copies it into a bundle. Owns the socket and the files received. Trusts
 * nothing: unless all files are memfds with exactly the seals that make them immutable, it takes
 * none of them. Their content is for the decoder to judge.
 *
 * The loop takes and drops references; the one copier thread copies.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/control/stepabi.h"

#define FREEZE_REPLY_E_NONE 1 /* there is no recording: freeze_reply_why() */

struct freeze_reply;

/* Takes `fd` over, also on failure. */
int freeze_reply_new(int fd, struct freeze_reply **ret) _must_check_;
struct freeze_reply *freeze_reply_ref(struct freeze_reply *a);
struct freeze_reply *freeze_reply_unref(struct freeze_reply *a);

/* On the loop: becomes readable when the reply has come, or cannot come any more. */
int freeze_reply_fd(const struct freeze_reply *a);
/* The copier has read the reply: there are files, or a reason. */
bool freeze_reply_is_complete(const struct freeze_reply *a);

/*
 * On the copier. Reads the reply; one that has not come by now is too late. Writes the wanted files
 * (enum stepabi_file) into the bundle's directory, at most `max_bytes` together; *ret_bytes is the
 * size of perf.data.
 * 0, FREEZE_REPLY_E_NONE, -ECANCELED, -errno of the copy.
 */
int freeze_reply_copy(struct freeze_reply *a, int dir_fd, uint32_t files, uint64_t max_bytes,
		      const atomic_bool *cancel, uint64_t *ret_bytes) _must_check_;

/* The packet; without files where none came. */
const struct stepabi_frozen *freeze_reply_frozen(const struct freeze_reply *a);
/* Why there is no recording: an error code of the protocol, and a sentence. */
const char *freeze_reply_code(const struct freeze_reply *a);
const char *freeze_reply_why(const struct freeze_reply *a);
