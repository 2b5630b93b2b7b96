/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The peer of a connection: its credentials at connect(), as the kernel reports them. A client that
 * passes its socket on still acts as the process that connected. Decides the role only; target/
 * decides what a user may do with a target.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "common/base/cleanup.h"

struct peer {
	uid_t uid;
	gid_t gid;
	pid_t pid;  /* for the log only: it may have been reused */
	int pidfd;  /* -1: gone already, or the kernel cannot say */
	bool admin; /* root, the daemon's own user, the socket's group */
};

#define AUTH_NO_GROUP ((gid_t)-1)

/* `admin_gid` may be AUTH_NO_GROUP. 0, -errno. */
int peer_init(struct peer *p, int sock, gid_t admin_gid) _must_check_;
void peer_fini(struct peer *p);

/* gid of a group's name: 0, -ENOENT, -errno. Reads the user database: at start only. */
int auth_group(const char *name, gid_t *ret) _must_check_;
