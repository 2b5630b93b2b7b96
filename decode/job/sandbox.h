/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the decoder gives up before it reads a byte of what others wrote: privileges, new programs
 * and files, all system calls but those it needs to compute, to read descriptors it was handed,
 * to write its output and to speak with its parent. The parent has set limits already; this sets
 * them again where it can, for whoever starts the decoder by hand.
 *
 * Threads must exist before: they are covered too, and no new one can be made.
 */
#pragma once

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

struct sandbox_layers {
	bool no_new_privs;
	bool seccomp;
	bool landlock;
	bool idle;
	int error; /* why seccomp is not there: negative errno */
};

/* Never fails as a whole; what could not be had is false in *ret. `max_memory` 0: no RLIMIT_AS. */
void sandbox_enter(uint64_t max_memory, bool idle, struct sandbox_layers *ret);

/* How many calls were denied so far (best effort: the kernel does not count for us). */
void sandbox_report(const struct sandbox_layers *l, struct json_object *stats);
