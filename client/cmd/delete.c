// SPDX-License-Identifier: Apache-2.0
/*
 * `tracectl delete`: remove snapshots from the daemon's spool.
 */
#include "client/core/ctl.h"
#include "client/core/snapshot.h"
#include "client/ui/command.h"

static int delete_exec(struct ctl *ctl, const void *options, const char *const *operands, size_t n)
{
	return snapshot_each(ctl, "snapshot.delete", "deleted", operands, n);
}

const struct command cmd_delete = {
	.name = "delete",
	.args = "SNAPSHOT...",
	.summary = "delete snapshots",
	.doc = "Removes snapshots from the daemon's spool. One that still runs must be cancelled "
	       "first.",
	.operand = OPERAND_SNAPSHOT,
	.min_operands = 1,
	.max_operands = 4096,
	.exec = delete_exec,
};
