// SPDX-License-Identifier: Apache-2.0
#include "common/base/filenote.h"

#include "common/base/io.h"

int64_t filenote_ns(const struct timespec *t)
{
	int64_t ns;

	if (__builtin_mul_overflow((int64_t)t->tv_sec, INT64_C(1000000000), &ns) ||
	    __builtin_add_overflow(ns, (int64_t)t->tv_nsec, &ns))
		return t->tv_sec < 0 ? INT64_MIN : INT64_MAX;
	return ns;
}

bool filenote_head(int fd, uint8_t ret[SHA256_BYTES])
{
	uint8_t head[FILENOTE_HEAD];
	const ssize_t n = io_pread_full(fd, head, sizeof(head), 0);

	if (n > 0)
		sha256_of(head, (size_t)n, ret);
	return n > 0;
}
