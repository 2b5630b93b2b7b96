/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The map by which the programs find the goroutine of a thread (goroutine.bpf.h), shared with the
 * daemon (goroutines.c).
 */
#pragma once

#include "common/bundle/goroutine.h"

#define GO_PROCESSES 1024u

/* Of a thread group, in the numbers of the daemon's namespace. */
struct go_process {
	struct go_layout layout;
	schedev_u32 gone; /* another program is in it now */
	schedev_u64 whys[GO_WHYS];
};
