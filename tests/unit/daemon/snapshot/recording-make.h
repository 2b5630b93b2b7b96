/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target and its recording that are made up, for tests of what is done with them: in place of
 * daemon/target and daemon/capture, with what goes wrong as a test says.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct target {
	uint64_t id;
	bool gone;
};

struct frozen {
	bool waits;
	void (*ready)(void *arg);
	void *ready_arg;
};

struct made {
	struct target target;
	unsigned frozen_alive;
	unsigned copy_ms; /* for each record */
	_Atomic bool hold_copy; /* at its first record, until this is cleared */
	int copy_error, freeze_error;
	unsigned copy_records;
	bool creds_changed;
	uint64_t until_ns; /* CLOCK_MONOTONIC_RAW; 0: before anybody asked */
	bool ended; /* the target, before it */
	uint64_t aside_bytes; /* what each would set aside */
	_Atomic unsigned aside_called, aside_refused;
	/* somebody else's recording */
	bool must_wait, has_programs, brings;
	const char *lack;
	struct frozen *waiting; /* the last that was frozen */
};
extern struct made made;
