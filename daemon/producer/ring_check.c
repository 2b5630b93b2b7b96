// SPDX-License-Identifier: Apache-2.0
#include "daemon/producer/ring_check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/io.h"
#include "daemon/base/memfdcheck.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
static int _printf_(3, 4) bad(char *why, size_t size, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(why, size, fmt, ap);
	va_end(ap);
	return RINGCHECK_E_BAD;
}

static int check_memfd(int fd, uint64_t *ret_bytes, char *why, size_t size)
{
	unsigned int seals = 0;
	int r = memfd_check(fd, "rings", ret_bytes, &seals, why, size);

	if (r != 0)
		return r == MEMFDCHECK_E_BAD ? RINGCHECK_E_BAD : r;
	seals &= ~RING_SEALS_MAY;
	if (seals != RING_SEALS)
		return bad(
			why, size,
			"rings: the seals must be exactly SHRINK, GROW, FUTURE_WRITE and SEAL (%#x); they are %#x%s",
			RING_SEALS, seals,
			(seals & F_SEAL_WRITE) ? ": with WRITE nobody could write events"
			: !(seals & F_SEAL_FUTURE_WRITE)
				? ": without FUTURE_WRITE pages could be taken away"
			: !(seals & F_SEAL_SEAL) ? ": without SEAL they could still change"
						 : "");
	return 0;
}

/* What exactly is wrong with a header that ring_header_check() refuses. */
static int explain(const struct ring_header *h, uint64_t bytes, char *why, size_t size)
{
	struct ring_geometry g = {.rings = h->rings,
				  .slots = h->slots,
				  .names_max = h->names_max,
				  .text_bytes = h->text_bytes};

	if (memcmp(h->magic, RING_MAGIC, sizeof(h->magic)) != 0)
		return bad(why, size, "rings: the header has not the magic \"%s\"", RING_MAGIC);
	if (h->version != RING_VERSION)
		return bad(why, size,
			   "rings: version %u of the memory's layout, this tracerd knows %u",
			   h->version, RING_VERSION);
	if (h->clock != RING_CLOCK_TSC && h->clock != RING_CLOCK_MONOTONIC_RAW)
		return bad(why, size, "rings: no clock has the number %u", h->clock);
	if (!ring_layout(&g))
		return bad(
			why, size,
			"rings: %u rings of %u slots, %u names, %u bytes of text: outside the layout's limits",
			h->rings, h->slots, h->names_max, h->text_bytes);
	if (g.total_bytes != bytes || h->total_bytes != bytes)
		return bad(
			why, size,
			"rings: the memory has %llu bytes, its header says %llu, its geometry needs %llu",
			(unsigned long long)bytes, (unsigned long long)h->total_bytes,
			(unsigned long long)g.total_bytes);
	return bad(why, size, "rings: the header's offsets do not follow from its geometry");
}

int ringcheck_memory(int fd, struct ringcheck *ret, char *why, size_t why_size)
{
	struct ring_geometry geometry;
	struct ring_header h; /* a private copy: the producer may change the memory at any time */
	uint64_t bytes = 0;
	ssize_t n;
	int r;

	r = check_memfd(fd, &bytes, why, why_size);
	if (r != 0)
		return r;
	n = io_pread_full(fd, &h, sizeof(h), 0);
	if (n == -EBADF)
		return bad(why, why_size, "rings: the descriptor is not open for reading");
	if (n < 0)
		return (int)n;
	if ((size_t)n < sizeof(h))
		return bad(why, why_size, "rings: %zd bytes: too small for a header", n);
	if (!ring_header_check(&h, bytes, &geometry))
		return explain(&h, bytes, why, why_size);
	*ret = (struct ringcheck){.geometry = geometry,
				  .clock = h.clock,
				  .cause_head = h.cause_head};
	return 0;
}

int ringcheck_eventfd(int fd, char *why, size_t why_size)
{
	static const char wanted[] = "anon_inode:[eventfd]";
	char path[32], link[64];
	ssize_t n;

	/*
	 * A read could tell, too; but it could block, and it would take what is for the event loop.
	 */
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, link, sizeof(link));
	if (n < 0)
		return -errno;
	if ((size_t)n != sizeof(wanted) - 1 || memcmp(link, wanted, sizeof(wanted) - 1) != 0)
		return bad(why, why_size, "wake: not an eventfd");
	return 0;
}
