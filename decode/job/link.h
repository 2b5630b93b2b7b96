/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decoder's end of the link to its parent (common/decoder/protocol.h): asks for files and waits
 * for the answer, says what the file is, reports progress, notices CANCEL. One question is open at
 * a time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "decode/base/file_request.h"

/* The longest wait for an answer: a parent that is gone closes the link, one that hangs does not.
 */
#define LINK_TIMEOUT_MS 120000

struct parent_link {
	int fd; /* borrowed */
	uint32_t next_req;
	uint64_t asked, answered;
	uint64_t last_progress_ns;
	bool cancelled;
};

void parent_link_init(struct parent_link *l, int fd);

/* For struct file_requester; `arg` is the link. */
int parent_link_ask(
	void *arg, const struct file_request *request, struct file_answer *ret_file, int *ret_fd);
int parent_link_judge(void *arg, const struct file_verdict *verdict);

/* At most ten a second go out. 0, -ECANCELED, or the link's error. */
int parent_link_progress(struct parent_link *l, const char *stage, uint64_t done, uint64_t total);
