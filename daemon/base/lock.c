// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int lock_file(int dir_fd, const char *name, int *ret_fd)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	_cleanup_close_ int fd =
		openat(dir_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return -errno;
	if (fcntl(fd, F_SETLK, &whole) < 0)
		return errno == EAGAIN || errno == EACCES ? -EBUSY : -errno;
	*ret_fd = take_fd(&fd);
	return 0;
}
