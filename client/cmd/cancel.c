// SPDX-License-Identifier: Apache-2.0
/*
 * `tracectl cancel`: stop snapshots that have not ended.
 */
#include "client/core/ctl.h"
#include "client/core/snapshot.h"
#include "client/ui/command.h"

static int cancel_exec(struct ctl *ctl, const void *options, const char *const *operands, size_t n)
{
	return snapshot_each(ctl, "snapshot.cancel", "cancelled", operands, n);
}

const struct command cmd_cancel = {
	.name = "cancel",
	.args = "SNAPSHOT...",
	.summary = "cancel snapshots that still run",
	.doc = "Stops snapshots that are queued, being copied or being decoded. They leave "
	       "nothing in the spool.",
	.operand = OPERAND_SNAPSHOT,
	.min_operands = 1,
	.max_operands = 4096,
	.exec = cancel_exec,
};
