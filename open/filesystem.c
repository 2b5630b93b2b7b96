// SPDX-License-Identifier: Apache-2.0
#include "open/filesystem.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "common/base/io.h"
#include "common/base/safefile.h"

#define MOUNTINFO_MAX (8u << 20)

/* Not all of them are in <linux/magic.h>. */
#define XFS_MAGIC 0x58465342
#define BCACHEFS_MAGIC 0xca451a4e
#define ZFS_MAGIC 0x2fc12fc1
#define EROFS_MAGIC 0xe0f5e1e2
#define CIFS_MAGIC 0xff534d42
#define SMB2_MAGIC 0xfe534d42
#define VFAT_MAGIC 0x4d44
#define EXFAT_MAGIC 0x2011bab0
#define UDF_MAGIC 0x15013346
#define NTFS3_MAGIC 0x7366746e
#define OVERLAYFS_MAGIC 0x794c7630
#define RAMFS_MAGIC_ 0x858458f6
#define TMPFS_MAGIC_ 0x01021994
#define BTRFS_MAGIC 0x9123683e

/* Served by the kernel, or by a server of the administrator's. */
static const uint32_t trusted[] = {
	EXT4_SUPER_MAGIC,  XFS_MAGIC,    BTRFS_MAGIC,  BCACHEFS_MAGIC, ZFS_MAGIC,
	F2FS_SUPER_MAGIC,  TMPFS_MAGIC_, RAMFS_MAGIC_, SQUASHFS_MAGIC, EROFS_MAGIC,
	ISOFS_SUPER_MAGIC, UDF_MAGIC,    VFAT_MAGIC,   EXFAT_MAGIC,    NTFS3_MAGIC,
	NFS_SUPER_MAGIC,   CIFS_MAGIC,   SMB2_MAGIC,
};

/* "MAJ:MIN" of the mount with this id, where `pid` sees it. */
static int mount_device(pid_t pid, uint64_t id, char ret[32])
{
	_cleanup_free_ char *text = NULL;
	char path[32], *line, *rest;
	size_t len;
	int r;

	(void)snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)pid);
	r = io_read_file_at(AT_FDCWD, path, MOUNTINFO_MAX, &text, &len);
	if (r < 0)
		return r;
	/*
	 * A line by itself: sscanf() measures all that follows, and there may be thousands of
	 * mounts.
	 */
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		unsigned long long this;

		/* id, parent, device ... */
		if (sscanf(line, "%llu %*u %31[0-9:]", &this, ret) == 2 && this == id)
			return 0;
	}
	return -ENOENT;
}

/* Whether the first process's mount namespace has an overlay of this device. */
static bool is_host_overlay(const char *device)
{
	_cleanup_free_ char *text = NULL;
	char *line, *rest;
	size_t len;

	if (io_read_file_at(AT_FDCWD, "/proc/1/mountinfo", MOUNTINFO_MAX, &text, &len) < 0)
		return false;
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		char this[32];

		if (strstr(line, " - overlay ") && sscanf(line, "%*u %*u %31[0-9:]", this) == 1 &&
		    !strcmp(this, device))
			return true;
	}
	return false;
}

/*
 * Of a container that the administrator's tools made; a user's own overlay is in no mount namespace
 * but the user's.
 */
static bool is_trusted_overlay(int fd, pid_t pid)
{
	struct statx stx;
	char device[32];

	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &stx) < 0 ||
	    !(stx.stx_mask & STATX_MNT_ID))
		return false;
	if (mount_device(1, stx.stx_mnt_id, device) < 0 &&
	    (pid <= 0 || mount_device(pid, stx.stx_mnt_id, device) < 0))
		return false;
	return is_host_overlay(device);
}

bool filesystem_is_trusted(int fd, pid_t pid)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(trusted); i++)
		if ((uint32_t)fs.f_type == trusted[i])
			return true;
	return (uint32_t)fs.f_type == OVERLAYFS_MAGIC && is_trusted_overlay(fd, pid);
}

int filesystem_copy(int fd, uint64_t size, uint64_t max, int *ret_fd)
{
	_cleanup_close_ int copy = -1;
	uint64_t copied = 0;
	int r;

	if (size > max)
		return -EFBIG;
	copy = io_memfd("tracerd-open");
	if (copy < 0)
		return copy;
	r = safefile_copy(fd, copy, size, &copied);
	if (r < 0)
		return r;
	if (copied < size)
		return -ESTALE;
	if (fcntl(copy, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
		return -errno;
	*ret_fd = take_fd(&copy);
	return 0;
}
