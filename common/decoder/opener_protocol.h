/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tracerd and tracerd-open say to each other. tracerd-open is started by the daemon and is of
 * the same build, so the messages are plain structs, one a SOCK_SEQPACKET packet; a packet of
 * another size is refused.
 *
 *   daemon -> front    OPENER_START with one end of a socketpair: a worker with those rights serves
 *                      it OPENER_KILL: it did not answer in time
 *   daemon -> worker   struct opener_request; the root directory and the mapped file ride along, as
 *                      `fds` says, or the directory of a process, which is to be looked into
 *   worker -> daemon   struct opener_reply; the file that was found rides along
 *
 * A worker answers in the order of the requests. The end of its socket says that it is gone.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/filenote.h"
#include "common/decoder/opener.h"
#include "common/decoder/protocol.h"

#define OPENER_PROTOCOL_FD 3 /* the front's end */
#define OPENER_MAX_GROUPS 1024

enum opener_command_type { OPENER_START = 1, OPENER_KILL };

struct opener_command {
	uint32_t type;
	uint32_t worker; /* a number that the daemon chose; not in use while that worker lives */
	/*
	 * OPENER_START: the rights that the files are opened with; of uid 0 with
	 * CAP_DAC_READ_SEARCH, too
	 */
	uid_t uid;
	gid_t gid;
	uint32_t n_groups;
	/* of which only those that there are, are sent: the socket takes many commands */
	gid_t groups[OPENER_MAX_GROUPS];
};

static inline size_t opener_command_size(uint32_t n_groups)
{
	return offsetof(struct opener_command, groups) + n_groups * sizeof(gid_t);
}

/* OPENER_FD_PROCESS goes alone: then no file is asked for. */
enum { OPENER_FD_ROOT = 1, OPENER_FD_MAPPED = 2, OPENER_FD_PROCESS = 4 };

struct opener_request {
	uint32_t id;
	uint32_t fds;	     /* OPENER_FD_*: which descriptors ride along, in this order */
	uint64_t max_copy;   /* bytes that a copy may have; see open/filesystem.h */
	struct file_request file;
};

struct opener_reply {
	uint32_t id;
	bool found;
	bool copied; /* the descriptor is a sealed memfd with the file's bytes */
	bool may;    /* these rights are enough to look into the process */
	/*
	 * Of a file that is no copy: whether the mount that it was opened on lets set-user-ID
	 * programs gain rights, so that only root can have put files of root there; and the digest
	 * of its first bytes.
	 */
	bool suid_mount, has_head;
	uint8_t head[SHA256_BYTES];
	struct opener_answer answer; /* its fd has no meaning */
};
