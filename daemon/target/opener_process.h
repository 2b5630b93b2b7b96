/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts tracerd-open, with an environment of its own and the capabilities that it needs. Does not
 * know what is asked of it: daemon/target/opening.c does.
 */
#pragma once

#include "common/base/cleanup.h"

/* Finds it beside the daemon, or at `program`, and gives the socket to it. 0, -errno. */
int opener_process_start(const char *program, int *ret_sock) _must_check_;
