// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/dir.h"

#include <errno.h>
#include <sys/stat.h>

int dir_make(const char *path, mode_t mode)
{
	struct stat st;

	/*
	 * The mask is 077: permissions for others are given on purpose, and only to what we made.
	 */
	if (mkdir(path, mode) == 0)
		return chmod(path, mode) < 0 ? -errno : 0;
	if (errno != EEXIST)
		return -errno;
	if (stat(path, &st) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}
