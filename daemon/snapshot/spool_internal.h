/* SPDX-License-Identifier: Apache-2.0 */
/* What the spool and its rule of retention share. */
#pragma once

#include "daemon/snapshot/spool.h"

/* Root and the daemon's own user have only the limits of the whole. */
bool spool_is_exempt(const struct spool_limits *limits, uid_t uid);
/* With `incoming` more bytes the file system would have less free than it shall keep. */
bool spool_short_of_disk(const struct spool_limits *limits, const struct spool_usage *usage, uint64_t incoming);
