/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decoder's end of the link to its parent (common/decoder/protocol.h): asks for files and waits for the
 * answer, tells what the file is, tells progress, notices CANCEL. One question is open at a time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "decode/base/file_request.h"

/* The longest wait for an answer: a parent that is gone closes the link, one that hangs does not.
 */
#define LINK_TIMEOUT_MS 120000

struct link {
	int fd; /* borrowed */
	uint32_t next_req;
	uint64_t asked, answered;
	uint64_t last_progress_ns;
	bool cancelled;
};

void link_init(struct link *l, int fd);

/* For struct need; `arg` is the link. */
int link_ask(
	void *arg, const struct declink_need *need, struct declink_file *ret_file, int *ret_fd);
int link_judge(void *arg, const struct declink_file *file, bool recognised);

/* At most ten a second go out. 0, -ECANCELED, or the link's error. */
int link_progress(struct link *l, const char *stage, uint64_t done, uint64_t total);
