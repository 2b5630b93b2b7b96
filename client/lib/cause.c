// SPDX-License-Identifier: Apache-2.0
#include "client/lib/cause.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/lib/eventlib.h"
#include "client/lib/name.h"
#include "common/base/fileid.h"
#include "common/base/io.h"

/* An eventfd has no inode of its own, but no file and no socket has this one. */
static int wake_fd = -1;
static struct fileid wake_id;

static uint32_t connected;
static uint64_t request_interval_ns;
static uint64_t last_request_ns;

/* For each entry of the page: the trigger whose cooldown runs, and since when. */
static struct {
	uint64_t end; /* ticks */
	uint32_t id;
} reported[RING_THRESHOLDS];

/*
 * Whether the descriptor still is the one that was opened. A program that closes all descriptors
 * closes this one, too, and its next file may get the number; we must not write eight bytes to
 * that.
 */
static bool wake_is_ours(int fd)
{
	return fileid_has(&wake_id, fd);
}

int cause_wake_fd(void)
{
	int fd = __atomic_load_n(&wake_fd, __ATOMIC_ACQUIRE);
	int r;

	if (wake_is_ours(fd))
		return fd;
	fd = io_above_stdio(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (fd < 0)
		return -errno;
	r = fileid_of(fd, &wake_id);
	if (r < 0) {
		(void)close_fd(fd);
		return r;
	}
	__atomic_store_n(&wake_fd, fd, __ATOMIC_RELEASE);
	return fd;
}

void cause_connect(const struct ring_control *page)
{
	if (page)
		__atomic_store_n(&request_interval_ns, page->request_interval_ns, __ATOMIC_RELAXED);
	__atomic_store_n(&connected, page != NULL, __ATOMIC_RELEASE);
}

void cause_forked(void)
{
	int fd = __atomic_exchange_n(&wake_fd, -1, __ATOMIC_RELAXED);

	if (wake_is_ours(fd))
		(void)close_fd(fd);
	__atomic_store_n(&connected, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&last_request_ns, 0, __ATOMIC_RELAXED);
	memset(reported, 0, sizeof(reported));
}

/*
 * Returns the descriptor that wakes the daemon, or -1: no daemon would hear of it. A program that
 * has closed the descriptor has closed the connection, too, and the library is not told.
 */
static int wake_reachable(void)
{
	int fd;

	if (!__atomic_load_n(&connected, __ATOMIC_ACQUIRE))
		return -1;
	fd = __atomic_load_n(&wake_fd, __ATOMIC_ACQUIRE);
	if (wake_is_ours(fd))
		return fd;
	__atomic_store_n(&connected, 0, __ATOMIC_RELAXED);
	return -1;
}

bool cause_is_heard(void)
{
	int error = errno;
	bool heard = wake_reachable() >= 0;

	errno = error;
	return heard;
}

/* Writes the cause and wakes the daemon. The mark is in the ring before the daemon reads it. */
static void cause_send(struct ring_header *h, struct ring_cause *cause, int fd)
{
	uint64_t c = __atomic_fetch_add(&h->cause_head, 1, __ATOMIC_RELAXED);
	struct ring_cause *to =
		(struct ring_cause *)((char *)h + RING_CAUSES_OFFSET) + c % RING_CAUSES;
	const uint64_t one = 1;

	record_trigger(cause->name, cause->kind == RING_CAUSE_REGION ? cause->begin : 0, c + 1);
	cause->tid = (uint32_t)syscall(SYS_gettid);
	__atomic_store_n(&to->sequence, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	memcpy(&to->kind, &cause->kind, sizeof(*to) - offsetof(struct ring_cause, kind));
	__atomic_store_n(&to->sequence, c + 1, __ATOMIC_RELEASE);
	/* if it is full it is readable already */
	(void)!write(fd, &one, sizeof(one));
}

/*
 * If several threads exceed a threshold at the same time, one is reported and the others are
 * counted.
 */
static bool is_cooling(uint32_t slot, uint32_t id, uint64_t end, uint64_t cooldown)
{
	uint64_t last = __atomic_load_n(&reported[slot].end, __ATOMIC_RELAXED);

	/* another trigger has taken the entry */
	if (__atomic_exchange_n(&reported[slot].id, id, __ATOMIC_RELAXED) != id) {
		__atomic_store_n(&reported[slot].end, end, __ATOMIC_RELAXED);
		return false;
	}
	if (end <= last || end - last < cooldown)
		return true;
	return !__atomic_compare_exchange_n(&reported[slot].end, &last, end, false,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

void cause_region(tracerd_name name, uint32_t slot, uint64_t begin, uint64_t end)
{
	struct ring_header *h = ringmem_header();
	struct ring_cause cause = {.kind = RING_CAUSE_REGION,
				   .name = name,
				   .begin = begin,
				   .end = end};
	const struct name *text = name_get(name);
	struct threshold t;
	int fd;

	/* the trigger may have been removed or changed since the comparison */
	if (!h || slot >= RING_THRESHOLDS || !threshold_get(slot, &t) || end - begin < t.over)
		return;
	/* Within the cooldown without a system call. */
	fd = is_cooling(slot, t.id, end, t.cooldown) ? -1 : wake_reachable();
	if (fd < 0) {
		__atomic_fetch_add(&h->suppressed[slot], 1, __ATOMIC_RELAXED);
		return;
	}
	cause.trigger = t.id;
	cause.length = text->length < sizeof(cause.text) ? text->length : sizeof(cause.text);
	memcpy(cause.text, name_bytes(text), cause.length);
	cause_send(h, &cause, fd);
}

int tracerd_snapshot(const char *reason)
{
	struct ring_header *h = ringmem_header();
	struct ring_cause cause = {.kind = RING_CAUSE_REQUEST};
	uint64_t now, last;
	int error = errno, fd = h ? wake_reachable() : -1;

	errno = error;
	if (fd < 0)
		return -ENOTCONN;
	now = io_now_ns();
	last = __atomic_load_n(&last_request_ns, __ATOMIC_RELAXED);
	/* if two threads ask at the same moment, one does */
	if ((last && (now <= last ||
		      now - last < __atomic_load_n(&request_interval_ns, __ATOMIC_RELAXED))) ||
	    !__atomic_compare_exchange_n(&last_request_ns, &last, now, false, __ATOMIC_RELAXED,
					 __ATOMIC_RELAXED)) {
		__atomic_fetch_add(&h->requests_suppressed, 1, __ATOMIC_RELAXED);
		return -EAGAIN;
	}
	cause.begin = cause.end = events_now();
	if (reason) {
		cause.length = (uint32_t)strnlen(reason, sizeof(cause.text));
		memcpy(cause.text, reason, cause.length);
	}
	cause_send(h, &cause, fd);
	errno = error;
	return 0;
}
