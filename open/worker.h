/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One worker of tracerd-open: answers requests on its socket with the rights that it has been
 * given, until the end.
 */
#pragma once

#include "common/decoder/opener_protocol.h"

/* Never returns. `sock` is its end. */
_Noreturn void worker_run(const struct opener_command *start, int sock);
