// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/memfdcheck.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>

static int _printf_(3, 4) bad(char *why, size_t size, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(why, size, fmt, ap);
	va_end(ap);
	return MEMFDCHECK_E_BAD;
}

/*
 * A memfd is a regular file of tmpfs that has seals; a file that somebody made on a tmpfs has none
 * but SEAL.
 */
int memfd_check(int fd, const char *what, uint64_t *ret_bytes, unsigned int *ret_seals, char *why,
		size_t why_size)
{
	struct statfs fs;
	struct stat st;
	int seals;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return bad(why, why_size, "%s: not a memfd but a %s", what,
			   S_ISFIFO(st.st_mode)   ? "pipe"
			   : S_ISSOCK(st.st_mode) ? "socket"
			   : S_ISDIR(st.st_mode)  ? "directory"
						  : "device or something else");
	if (fstatfs(fd, &fs) < 0)
		return -errno;
	if (fs.f_type == HUGETLBFS_MAGIC)
		return bad(why, why_size, "%s: memory of MFD_HUGETLB is not taken", what);
	if (fs.f_type != TMPFS_MAGIC)
		return bad(why, why_size, "%s: a file of a file system, not a memfd", what);
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0)
		return errno == EINVAL || errno == EBADF
			       ? bad(why, why_size, "%s: not a memfd, or one that is not open",
				     what)
			       : -errno;
	*ret_bytes = (uint64_t)st.st_size;
	*ret_seals = (unsigned int)seals;
	return 0;
}
