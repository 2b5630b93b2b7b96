/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rights that a process has on files, as the kernel shows them: file system uid and gid,
 * groups. Shared by reference; never changed once read.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/base/cleanup.h"

struct cred {
	unsigned int refs;
	uid_t uid;
	gid_t gid;
	/* real, effective and saved ids are the same: no set-user-ID or set-group-ID program */
	bool plain;
	size_t n_groups;
	gid_t groups[];
};

/*
 * Of the process whose /proc directory this is. -E2BIG: more groups than an opener takes
 * (OPENER_MAX_GROUPS).
 */
int cred_read(int proc_dirfd, struct cred **ret) _must_check_;
/* -EACCES: these are not of a process of this user that the user may look into. */
int cred_read_plain(int proc_dirfd, uid_t uid, struct cred **ret) _must_check_;
/* Parses the text of /proc/PID/status. -EBADMSG, -E2BIG, -ENOMEM. */
int cred_parse(const char *text, struct cred **ret) _must_check_;
struct cred *cred_ref(struct cred *cred);
struct cred *cred_unref(struct cred *cred);
DEFINE_CLEANUP(struct cred *, cred_unref)

bool cred_equal(const struct cred *a, const struct cred *b);
