/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unified cgroup hierarchy: where it is mounted, which cgroup a unit's name means, which
 * processes are in it. Never moves a process and never writes.
 *
 * Threat: names come from clients. They are looked up beneath the mount only, without following
 * links, and a search is bounded.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"

#define CGROUP_NAME_MAX 512
#define CGROUP_PROCS_MAX 8192

/* Answers beside 0 and -errno. */
enum {
	CGROUP_E_NONE = 1, /* no such unit or path, or no unified hierarchy here */
	CGROUP_E_BAD_NAME,
	CGROUP_E_MANY, /* several cgroups have this name, or more processes than the limit */
	/* it has threads of processes that are in another one: ret->path is that one's */
	CGROUP_E_THREADED,
};

struct cgroup {
	int dirfd;    /* owned */
	uint64_t ino; /* its identity; unlike the path, it is never another cgroup's */
	char path[CGROUP_NAME_MAX]; /* below the mount, begins with '/' */
};
#define CGROUP_INIT                                                                                \
	{                                                                                          \
		.dirfd = -1                                                                        \
	}

/* Finds the mount point in the text of mountinfo. 0 or CGROUP_E_NONE. */
int cgroup_mount_parse(const char *text, size_t len, char *buf, size_t size) _must_check_;
/* An O_PATH directory fd of the mount. 0, CGROUP_E_NONE, -errno. */
int cgroup_mount_open(int *ret_fd) _must_check_;

/* By unit name ("nginx.service": searched), or by path with a '/' in it. */
int cgroup_open(int mount_fd, const char *name, struct cgroup *ret) _must_check_;
/* That of all processes, which cgroup_open() refuses. */
int cgroup_open_root(int mount_fd, struct cgroup *ret) _must_check_;
void cgroup_close(struct cgroup *cgroup);

/* All processes in it and below; a new array. CGROUP_E_MANY past the limit. */
int cgroup_procs(const struct cgroup *cgroup, pid_t **ret, size_t *ret_n) _must_check_;
/* Whether `pid` is the only process in it and no cgroup is below. */
bool cgroup_holds_only(const struct cgroup *cgroup, pid_t pid);
/* Whether it was removed. */
bool cgroup_gone(const struct cgroup *cgroup);
