/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the rest of the decoder asks for a file it has no name for in its own world: one function,
 * answered over the link in the program (job.c) and by the file system in tests. Whoever asks
 * gets a read-only descriptor of its own, or "no" and why.
 */
#pragma once

#include "common/declink.h"

struct need {
	/*
	 * 1: *ret_fd is the caller's; 0: there is none, ret_file->why says why; negative errno: the
	 * link is gone or the job was cancelled (-ECANCELED), nothing more can be decoded.
	 */
	int (*ask)(void *arg, const struct declink_need *need, struct declink_file *ret_file,
		int *ret_fd);
	void *arg;
};
