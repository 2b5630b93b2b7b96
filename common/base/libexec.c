// SPDX-License-Identifier: Apache-2.0
#include "common/base/libexec.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int found(const char *path, char *ret, size_t size)
{
	if (access(path, X_OK) < 0)
		return -errno;
	if ((size_t)snprintf(ret, size, "%s", path) >= size)
		return -ENAMETOOLONG;
	return 0;
}

int libexec_find(const char *name, const char *override, char *ret, size_t size)
{
	char self[PATH_MAX], path[2 * PATH_MAX];
	ssize_t n;

	if (override && *override)
		return found(override, ret, size);
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	self[n > 0 ? n : 0] = '\0';
	/* libtool runs programs of the build tree out of .libs/ */
	for (unsigned int i = 0; i < 2; i++) {
		char *slash = strrchr(self, '/');

		if (!slash || (i == 1 && strcmp(slash, "/.libs") != 0))
			break;
		*slash = '\0';
		(void)snprintf(path, sizeof(path), "%s/%s", self, name);
		if (access(path, X_OK) == 0)
			return found(path, ret, size);
	}
	(void)snprintf(path, sizeof(path), "%s/%s", TRACERD_LIBEXECDIR, name);
	return found(path, ret, size);
}
