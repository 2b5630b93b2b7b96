/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the rest of the decoder asks for a file it has no name for in its own world: one function,
 * answered over the link in the program (job/job.c) and by the file system in tests. Whoever asks
 * gets a read-only descriptor of its own, or "no" and why.
 */
#pragma once

#include <stdbool.h>

#include "common/decoder/protocol.h"

struct file_requester {
	/*
	 * 1: *ret_fd is the caller's; 0: there is none, ret_file->why says why; negative errno: the
	 * link is gone or the job was cancelled (-ECANCELED), nothing more can be decoded.
	 */
	int (*ask)(void *arg, const struct file_request *request, struct file_answer *ret_file,
		int *ret_fd);
	void *arg;
	/*
	 * Says of a file that was found whether it is what was asked for (common/decoder/protocol.h
	 * says what that means). Due for each of them, before the next is asked for. 0, or as
	 * ask(). NULL where nobody wants to know.
	 */
	int (*judge)(void *arg, const struct file_verdict *verdict);
};

static inline int file_requester_judge(const struct file_requester *files,
				       const struct file_answer *file, bool recognised)
{
	const struct file_verdict verdict = {.req = file->req, .recognised = recognised};

	return files->judge ? files->judge(files->arg, &verdict) : 0;
}
