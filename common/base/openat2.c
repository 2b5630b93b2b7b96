// SPDX-License-Identifier: Apache-2.0
#include "common/base/openat2.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

int openat2_fd(int dirfd, const char *path, int flags, mode_t mode, uint64_t resolve)
{
	/* The kernel refuses a mode without O_CREAT. */
	const struct open_how how = {.flags = (unsigned int)(flags | O_CLOEXEC),
				     .mode = flags & O_CREAT ? mode : 0,
				     .resolve = resolve};
	int tries = 0;

	for (;;) {
		const long fd = syscall(SYS_openat2, dirfd, path, &how, sizeof(how));

		if (fd >= 0)
			return (int)fd;
		if (errno != EINTR && (errno != EAGAIN || ++tries == OPENAT2_TRIES))
			return -errno;
	}
}
