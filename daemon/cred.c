// SPDX-License-Identifier: Apache-2.0
#include "daemon/cred.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/io.h"
#include "common/openlink.h"

#define STATUS_MAX 65536 /* of which the groups are the most */

/* What follows "NAME:" at the begin of a line. "Name:" is the first line, and the kernel escapes newlines in it. */
static const char *field(const char *text, const char *name)
{
	const char *p = strstr(text, name);

	return p ? p + strlen(name) : NULL;
}

/* The fourth of real, effective, saved and file system id. */
static int last_of_four(const char *p, unsigned int *ret)
{
	return p && sscanf(p, "%*u %*u %*u %u", ret) == 1 ? 0 : -EBADMSG;
}

static int groups(const char *p, gid_t *ret, size_t *ret_n)
{
	size_t n = 0;

	if (!p)
		return -EBADMSG;
	for (;;) {
		unsigned int value;
		int used;

		p += strspn(p, "\t ");
		if (*p == '\n' || !*p)
			break;
		if (sscanf(p, "%u%n", &value, &used) != 1)
			return -EBADMSG;
		if (n == OPENLINK_MAX_GROUPS)
			return -E2BIG;
		ret[n++] = value;
		p += used;
	}
	*ret_n = n;
	return 0;
}

int cred_parse(const char *text, struct cred **ret)
{
	gid_t list[OPENLINK_MAX_GROUPS];
	unsigned int uid, gid;
	struct cred *cred;
	size_t n;
	int r;

	r = last_of_four(field(text, "\nUid:"), &uid);
	if (r == 0)
		r = last_of_four(field(text, "\nGid:"), &gid);
	if (r == 0)
		r = groups(field(text, "\nGroups:"), list, &n);
	if (r < 0)
		return r;
	cred = malloc(sizeof(*cred) + n * sizeof(*list));
	if (!cred)
		return -ENOMEM;
	*cred = (struct cred){.refs = 1, .uid = uid, .gid = gid, .n_groups = n};
	memcpy(cred->groups, list, n * sizeof(*list));
	*ret = cred;
	return 0;
}

int cred_read(int proc_dirfd, struct cred **ret)
{
	_cleanup_free_ char *text = NULL;
	size_t len;
	int r;

	r = io_read_file_at(proc_dirfd, "status", STATUS_MAX, &text, &len);
	return r < 0 ? r : cred_parse(text, ret);
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
