// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/step/freeze_reply.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "common/base/io.h"
#include "common/base/safefile.h"
#include "common/bundle/bundle.h"
#include "daemon/backend/step/channel.h"
#include "daemon/base/memfdcheck.h"

#define N_FILES 3
#define SEALS_MAY 0x20u /* EXEC */
#define COPY_STEP (256u << 10)

struct freeze_reply {
	unsigned int refs;
	int fd; /* where the reply comes */
	/* the copier's from here on */
	bool taken; /* the socket is read; what follows says what came */
	struct stepabi_frozen frozen; /* no files: see `why` */
	int files[N_FILES];	      /* in the order of enum stepabi_file; -1 */
	uint64_t sizes[N_FILES];
	const char *code;
	char why[200];
};

static const char *const file_names[N_FILES] = {
	BUNDLE_PERFDATA,
	BUNDLE_IMAGES STEPABI_CODE_PATH,
	BUNDLE_VDSO,
};

int freeze_reply_new(int fd, struct freeze_reply **ret)
{
	struct freeze_reply *a = calloc(1, sizeof(*a));

	if (!a) {
		(void)close_fd(fd);
		return -ENOMEM;
	}
	a->refs = 1;
	a->fd = fd;
	for (size_t i = 0; i < N_FILES; i++)
		a->files[i] = -1;
	*ret = a;
	return 0;
}

struct freeze_reply *freeze_reply_ref(struct freeze_reply *a)
{
	a->refs++;
	return a;
}

static void drop_files(struct freeze_reply *a)
{
	for (size_t i = 0; i < N_FILES; i++)
		close_fdp(&a->files[i]);
	a->frozen.files = 0;
}

struct freeze_reply *freeze_reply_unref(struct freeze_reply *a)
{
	if (!a || --a->refs > 0)
		return NULL;
	drop_files(a);
	(void)close_fd(a->fd);
	free(a);
	return NULL;
}

int freeze_reply_fd(const struct freeze_reply *a)
{
	return a->fd;
}

bool freeze_reply_is_complete(const struct freeze_reply *a)
{
	return a->taken;
}

const struct stepabi_frozen *freeze_reply_frozen(const struct freeze_reply *a)
{
	return &a->frozen;
}

const char *freeze_reply_code(const struct freeze_reply *a)
{
	return a->code;
}

const char *freeze_reply_why(const struct freeze_reply *a)
{
	return a->why;
}

/* ---- receiving */

static int _printf_(3, 4) none(struct freeze_reply *a, const char *code, const char *fmt, ...)
{
	va_list ap;

	drop_files(a);
	a->code = code;
	va_start(ap, fmt);
	(void)vsnprintf(a->why, sizeof(a->why), fmt, ap);
	va_end(ap);
	return FREEZE_REPLY_E_NONE;
}

/* CMSG_SPACE() rounds up, and the kernel passes as many descriptors as fit. */
#define CONTROL_BYTES CMSG_SPACE(sizeof(int) * N_FILES)
#define MAX_RECEIVED ((CONTROL_BYTES - CMSG_LEN(0)) / sizeof(int))

/* Owns the descriptors of a packet until each is checked. */
struct received {
	int fds[MAX_RECEIVED];
	size_t n;
	bool cut;
};

static void received_fini(struct received *r)
{
	for (size_t i = 0; i < r->n; i++)
		(void)close_fd(r->fds[i]);
}

static ssize_t receive(int fd, struct stepabi_frozen *ret, struct received *received)
{
	struct iovec iov = {.iov_base = ret, .iov_len = sizeof(*ret)};
	union {
		struct cmsghdr header;
		char bytes[CONTROL_BYTES];
	} control = {0};
	struct msghdr message = {.msg_iov = &iov,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);

	if (n < 0)
		return -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
		const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < count && received->n < MAX_RECEIVED; i++)
			memcpy(&received->fds[received->n++], CMSG_DATA(c) + i * sizeof(int),
			       sizeof(int));
	}
	received->cut = message.msg_flags & (MSG_TRUNC | MSG_CTRUNC);
	return n;
}

static int take_file(struct freeze_reply *a, size_t which, int *fd)
{
	unsigned int seals = 0;
	char why[160] = "";
	int flags, r;

	r = memfd_check(*fd, file_names[which], &a->sizes[which], &seals, why, sizeof(why));
	if (r == MEMFDCHECK_E_BAD)
		return none(a, "io", "the stepper's reply: %s", why);
	if (r < 0)
		return r;
	if ((seals & ~SEALS_MAY) != STEPABI_SEALS)
		return none(a, "io", "the stepper's reply: %s has the seals %#x, not %#x",
			    file_names[which], seals, (unsigned int)STEPABI_SEALS);
	flags = fcntl(*fd, F_GETFL);
	if (flags < 0 || (flags & O_ACCMODE) == O_WRONLY || (flags & O_PATH))
		return none(a, "io", "the stepper's reply: %s is not open for reading",
			    file_names[which]);
	a->files[which] = take_fd(fd);
	return 0;
}

static int take_files(struct freeze_reply *a, struct received *received)
{
	size_t next = 0;
	int r = 0;

	const uint32_t files = a->frozen.files;

	for (size_t i = 0; r == 0 && i < N_FILES; i++)
		if (files & 1u << i)
			r = take_file(a, i, &received->fds[next++]);
	return r < 0 ? none(a, "io", "the stepper's reply: %s", strerror(-r)) : r;
}

/* 0, FREEZE_REPLY_E_NONE. */
static int take(struct freeze_reply *a)
{
	_cleanup_(received_fini) struct received received = {0};
	struct stepabi_frozen frozen = {0};
	ssize_t n;

	n = receive(a->fd, &frozen, &received);
	a->taken = true;
	if (n == -EAGAIN || n == -EINTR)
		return none(a, "timeout", "the stepper did not answer in time (step_freeze_s)");
	if (n == 0)
		return none(a, "gone", "the stepper has ended and has not answered");
	if (n < 0)
		return none(a, "gone", "the stepper has not answered: %s", strerror((int)-n));
	if (n != sizeof(frozen) || frozen.type != STEPABI_FROZEN || received.cut ||
	    frozen.files >= 1u << N_FILES || (size_t)__builtin_popcount(frozen.files) != received.n)
		return none(a, "io", "the stepper's reply is malformed");
	if (frozen.error == -EFBIG)
		return none(a, "too_large", "the recording is larger than max_output_mib");
	if (frozen.error != 0)
		return none(a, "io", "the stepper could not copy its recording: %s",
			    frozen.error < 0 && frozen.error > -4096 ? strerror(-frozen.error)
								     : "unknown error");
	if (!(frozen.files & STEPABI_FILE_PERFDATA))
		return none(a, "io", "the stepper's reply has no " BUNDLE_PERFDATA);
	step_channel_bound(&frozen.stats);
	if (frozen.raw_ns > INT64_MAX)
		frozen.raw_ns = INT64_MAX;
	a->frozen = frozen;
	return take_files(a, &received);
}

/* ---- copying */

static int copy_file(int from, uint64_t size, int to, const atomic_bool *cancel)
{
	_cleanup_free_ uint8_t *buf = malloc(COPY_STEP);

	if (!buf)
		return -ENOMEM;
	for (uint64_t at = 0; at < size;) {
		const size_t want = size - at < COPY_STEP ? (size_t)(size - at) : COPY_STEP;
		ssize_t n;
		int r;

		if (atomic_load(cancel))
			return -ECANCELED;
		n = io_pread_full(from, buf, want, (off_t)at);
		if (n < 0)
			return (int)n;
		if ((size_t)n < want)
			return -EIO; /* a sealed file cannot have shrunk */
		r = io_pwrite_all(to, buf, want, (off_t)at);
		if (r < 0)
			return r;
		at += want;
	}
	return 0;
}

int freeze_reply_copy(struct freeze_reply *a, int dir_fd, uint32_t files, uint64_t max_bytes,
		      const atomic_bool *cancel, uint64_t *ret_bytes)
{
	uint64_t sum = 0;
	int r;

	if (!a->taken) {
		r = take(a);
		if (r != 0)
			return r;
	}
	if (!a->frozen.files)
		return FREEZE_REPLY_E_NONE;
	for (size_t i = 0; i < N_FILES; i++) {
		if (a->files[i] < 0 || !(files & 1u << i))
			continue;
		if (a->sizes[i] > max_bytes - sum)
			return none(a, "too_large", "the recording is larger than max_output_mib");
		sum += a->sizes[i];
	}
	for (size_t i = 0; i < N_FILES; i++) {
		_cleanup_close_ int out = -1;

		if (a->files[i] < 0 || !(files & 1u << i))
			continue;
		r = safefile_create(dir_fd, file_names[i], &out);
		if (r == 0)
			r = copy_file(a->files[i], a->sizes[i], out, cancel);
		if (r < 0)
			return r;
	}
	*ret_bytes = a->sizes[0];
	return 0;
}
