/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tracerd-step answers when it is asked for its recording (common/control/stepabi.h): awaited, checked, and copied into
 * a bundle. Owns the socket and the files that came. Nothing that came is believed: the files are memfds with exactly
 * the seals that keep them as they are, or none of them is taken; what is in them is for the decoder to judge.
 *
 * References are taken and given on the loop; what copies runs on the copier thread, of which there is one.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/control/stepabi.h"

#define FREEZE_REPLY_E_NONE 1 /* no recording came: freeze_reply_why() */

struct freeze_reply;

/* `fd` is taken over, also where this fails. */
int freeze_reply_new(int fd, struct freeze_reply **ret) _must_check_;
struct freeze_reply *freeze_reply_ref(struct freeze_reply *a);
struct freeze_reply *freeze_reply_unref(struct freeze_reply *a);

/* On the loop: becomes readable when the answer has come, or will not come any more. */
int freeze_reply_fd(const struct freeze_reply *a);
/* No answer is waited for: there are the files, or the reason. */
bool freeze_reply_is_complete(const struct freeze_reply *a);

/*
 * Copier. Takes the answer if it has come; if it has not by now it is too late. Writes those of its files that are wanted
 * (`files`: enum stepabi_file) to the bundle's directory, at most `max_bytes` together; *ret_bytes are perf.data's.
 * 0, FREEZE_REPLY_E_NONE, -ECANCELED, -errno of the copy.
 */
int freeze_reply_copy(struct freeze_reply *a, int dir_fd, uint32_t files, uint64_t max_bytes, const atomic_bool *cancel,
		    uint64_t *ret_bytes) _must_check_;

/* Which it has; 0 where none came. */
const struct stepabi_frozen *freeze_reply_frozen(const struct freeze_reply *a);
/* Why none came: an error of the protocol, and a sentence. */
const char *freeze_reply_code(const struct freeze_reply *a);
const char *freeze_reply_why(const struct freeze_reply *a);
