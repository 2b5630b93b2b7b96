// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/cred.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/io.h"
#include "common/base/procfs.h"
#include "common/decoder/opener_protocol.h"

#define STATUS_MAX 65536 /* of which the groups are the most */

/*
 * What follows "NAME:" at the begin of a line. "Name:" is the first line, and the kernel escapes
 * newlines in it.
 */
static const char *field(const char *text, const char *name)
{
	const char *p = strstr(text, name);

	return p ? p + strlen(name) : NULL;
}

/*
 * The numbers of one line. Not by sscanf(), which measures the rest of the text for each of them.
 */
static int numbers(const char *p, unsigned int *ret, size_t max, size_t *ret_n)
{
	size_t n = 0;

	if (!p)
		return -EBADMSG;
	for (;;) {
		unsigned long value;
		char *end;

		p += strspn(p, "\t ");
		if (*p == '\n')
			break;
		if (*p < '0' || *p > '9')
			return -EBADMSG;
		if (n == max)
			return -E2BIG;
		value = strtoul(p, &end, 10);
		if (value > UINT_MAX)
			return -EBADMSG;
		ret[n++] = (unsigned int)value;
		p = end;
	}
	*ret_n = n;
	return 0;
}

/* Real, effective, saved and file system id. */
static int four(const char *p, unsigned int ret[4])
{
	size_t n;
	int r = numbers(p, ret, 4, &n);

	return r == 0 && n == 4 ? 0 : -EBADMSG;
}

static bool all_alike(const unsigned int ids[4])
{
	return ids[0] == ids[1] && ids[0] == ids[2] && ids[0] == ids[3];
}

int cred_parse(const char *text, struct cred **ret)
{
	gid_t list[OPENER_MAX_GROUPS];
	unsigned int uid[4], gid[4];
	struct cred *cred;
	size_t n;
	int r;

	r = four(field(text, "\nUid:"), uid);
	if (r == 0)
		r = four(field(text, "\nGid:"), gid);
	if (r == 0)
		r = numbers(field(text, "\nGroups:"), list, OPENER_MAX_GROUPS, &n);
	if (r < 0)
		return r;
	cred = malloc(sizeof(*cred) + n * sizeof(*list));
	if (!cred)
		return -ENOMEM;
	*cred = (struct cred){.refs = 1,
			      .uid = uid[3],
			      .gid = gid[3],
			      .plain = all_alike(uid) && all_alike(gid),
			      .n_groups = n};
	memcpy(cred->groups, list, n * sizeof(*list));
	*ret = cred;
	return 0;
}

static int cred_read_at(int proc_dirfd, const char *name, struct cred **ret)
{
	_cleanup_free_ char *text = NULL;
	size_t len;
	int r;

	r = io_read_file_at(proc_dirfd, name, STATUS_MAX, &text, &len);
	return r < 0 ? r : cred_parse(text, ret);
}

int cred_read(int proc_dirfd, struct cred **ret)
{
	return cred_read_at(proc_dirfd, "status", ret);
}

int cred_read_plain(int proc_dirfd, uid_t uid, struct cred **ret)
{
	char path[PROC_MEMORY_PATH], name[PROC_MEMORY_PATH + 8];
	_cleanup_(cred_unrefp) struct cred *cred = NULL;
	struct stat st;
	int r;

	/* A main thread that has ended is root's: it has no memory. */
	if (proc_memory_path(proc_dirfd, path) < 0)
		path[0] = '\0';
	(void)snprintf(name, sizeof(name), "%sstatus", path);
	r = cred_read_at(proc_dirfd, name, &cred);
	if (r < 0)
		return r;
	/*
	 * After the credentials: the kernel takes the directory away from the user before it gives
	 * the process other ones.
	 */
	if (fstatat(proc_dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!cred->plain || cred->uid != uid || st.st_uid != uid)
		return -EACCES;
	*ret = take_ptr(cred);
	return 0;
}

struct cred *cred_ref(struct cred *cred)
{
	cred->refs++;
	return cred;
}

struct cred *cred_unref(struct cred *cred)
{
	if (cred && --cred->refs == 0)
		free(cred);
	return NULL;
}

bool cred_equal(const struct cred *a, const struct cred *b)
{
	return a == b || (a->uid == b->uid && a->gid == b->gid && a->n_groups == b->n_groups &&
			  !memcmp(a->groups, b->groups, a->n_groups * sizeof(*a->groups)));
}
