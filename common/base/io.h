/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole reads and writes, and file descriptors over Unix sockets. Everything returns 0 (or a
 * count) or a negative errno and retries EINTR; nothing here logs.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"

/* Writes all of `len` bytes, or fails. */
int io_write_all(int fd, const void *buf, size_t len) _must_check_;
int io_pwrite_all(int fd, const void *buf, size_t len, off_t off) _must_check_;

/* Reads up to `len` bytes until the end of the file; returns the count. */
ssize_t io_read_full(int fd, void *buf, size_t len) _must_check_;
ssize_t io_pread_full(int fd, void *buf, size_t len, off_t off) _must_check_;

/*
 * Reads a whole file of at most `max` bytes from its begin, wherever it stands, into a new
 * NUL-terminated buffer that the caller frees. It need not say how long it is, but one must be able
 * to seek in it. -EFBIG if there is more.
 */
int io_pread_file(int fd, size_t max, char **ret, size_t *ret_len) _must_check_;

/*
 * The same of a file, opened with openat(dirfd, path) read-only; it need not be one in which one
 * can seek. For /proc and sysfs: O_NOFOLLOW is not set, so `path` must be a name that nobody else
 * can replace.
 */
int io_read_file_at(int dirfd, const char *path, size_t max, char **ret,
		    size_t *ret_len) _must_check_;

/*
 * Sends `len` bytes with `n_fds` descriptors (at most IO_MAX_FDS) on the first byte. Returns the
 * count of bytes sent; -EAGAIN where the socket is full. Descriptors stay the caller's.
 */
#define IO_MAX_FDS 64
ssize_t io_send_fds(int sock, const void *buf, size_t len, const int *fds, size_t n_fds, int flags);

/*
 * Receives up to `len` bytes and up to `max_fds` descriptors, close-on-exec. Returns the count of
 * bytes, 0 at the end of the stream. More descriptors than `max_fds`, or truncated control data:
 * all are closed and the answer is -EPROTO. *ret_n_fds is set on success only.
 */
ssize_t io_recv_fds(int sock, void *buf, size_t len, int *fds, size_t max_fds, size_t *ret_n_fds,
		    int flags);

/* An unnamed memory file, close-on-exec, no execution; the name is for /proc only. */
int io_memfd(const char *name);

/*
 * Moves a descriptor above 2, close-on-exec: for libraries, in a program that has closed its
 * standard output. Takes over `fd`; a negative one is passed through, -1 and errno where there is
 * no number left.
 */
int io_above_stdio(int fd);

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t io_now_ns(void);
