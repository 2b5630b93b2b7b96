/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tracerd and tracerd-open say to each other. tracerd-open is started by the daemon and is of the same build, so
 * the messages are plain structs, one a SOCK_SEQPACKET packet; a packet of another size is refused.
 *
 *   daemon -> front    OPENLINK_START with one end of a socketpair: a worker with those rights serves it
 *                      OPENLINK_KILL: it did not answer in time
 *   daemon -> worker   struct openlink_request; the root directory and the mapped file ride along, as `fds` says
 *   worker -> daemon   struct openlink_answer; the file that was found rides along
 *
 * A worker answers in the order of the requests. The end of its socket says that it is gone.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/decoder/opener.h"
#include "common/decoder/protocol.h"

#define OPENLINK_FD 3 /* the front's end */
#define OPENLINK_MAX_GROUPS 1024

enum openlink_command_type { OPENLINK_START = 1, OPENLINK_KILL };

struct openlink_command {
	uint32_t type;
	uint32_t worker; /* a number that the daemon chose; not in use while that worker lives */
	/* OPENLINK_START: the rights that the files are opened with; of uid 0 with CAP_DAC_READ_SEARCH, too */
	uid_t uid;
	gid_t gid;
	uint32_t n_groups;
	gid_t groups[OPENLINK_MAX_GROUPS]; /* of which only those that there are, are sent: the socket takes many commands */
};

static inline size_t openlink_command_size(uint32_t n_groups)
{
	return offsetof(struct openlink_command, groups) + n_groups * sizeof(gid_t);
}

enum { OPENLINK_FD_ROOT = 1, OPENLINK_FD_MAPPED = 2 };

struct openlink_request {
	uint32_t id;
	uint32_t fds;	     /* OPENLINK_FD_*: which descriptors ride along, in this order */
	uint64_t max_copy;   /* bytes that a copy may have; see open/filesystem.h */
	struct declink_need need;
};

struct openlink_answer {
	uint32_t id;
	bool found;
	bool copied; /* the descriptor is a sealed memfd with the file's bytes */
	struct opener_answer answer; /* its fd has no meaning */
};
