/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts the decoder's process: no capability, limits, an empty environment, no fd but the link and
 * stderr. For common/decoder/decoder.c, which speaks to it.
 */
#pragma once

#include "common/decoder/decoder.h"

/* Exit code of a child that could not become the decoder. */
#define DECODER_EXEC_FAILED 127

/* `link_fd` becomes DECODER_PROTOCOL_FD and `stderr_fd` 2 in the child; both stay the caller's. */
int decoder_spawn(const struct decoder_options *o, int link_fd, int stderr_fd,
		  pid_t *ret_pid) _must_check_;
