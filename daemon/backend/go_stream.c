// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/go_stream.h"

#include <errno.h>
#include <string.h>

#include "common/base/io.h"

int go_stream_read(int fd, uint64_t size, struct go_stream *ret)
{
	struct go_stream s = {0};
	struct gostream_header h;
	unsigned int newest, other;
	ssize_t n = io_pread_full(fd, &h, sizeof(h), 0);

	if (n < 0)
		return (int)n;
	if (n != sizeof(h) || memcmp(h.magic, GOSTREAM_MAGIC, sizeof(h.magic)) != 0 ||
	    h.version != GOSTREAM_VERSION || h.areas != GOSTREAM_AREAS || size < GOSTREAM_PAGE ||
	    h.area_bytes > (size - GOSTREAM_PAGE) / GOSTREAM_AREAS)
		return -EBADMSG;
	for (unsigned int i = 0; i < GOSTREAM_AREAS; i++)
		if (h.area[i].order &&
		    (h.area[i].bytes <= GOSTREAM_TRACE_HEADER || h.area[i].bytes > h.area_bytes))
			return -EBADMSG;
	newest = h.area[1].order > h.area[0].order;
	other = 1 - newest;
	s.lost = h.lost;
	if (h.area[other].order && h.area[other].order + 1 == h.area[newest].order)
		s.extents[s.n++] = (struct go_extent){.at = GOSTREAM_PAGE + other * h.area_bytes,
						      .bytes = h.area[other].bytes};
	if (h.area[newest].order) {
		const uint64_t skip = s.n ? GOSTREAM_TRACE_HEADER : 0;

		s.extents[s.n++] =
			(struct go_extent){.at = GOSTREAM_PAGE + newest * h.area_bytes + skip,
					   .bytes = h.area[newest].bytes - skip};
	}
	for (size_t i = 0; i < s.n; i++)
		s.bytes += s.extents[i].bytes;
	*ret = s;
	return 0;
}

int go_stream_copy(int fd, const struct go_stream *s, int out)
{
	char buf[65536];

	for (size_t i = 0; i < s->n; i++) {
		const struct go_extent *e = &s->extents[i];

		for (uint64_t done = 0; done < e->bytes;) {
			const uint64_t left = e->bytes - done;
			const ssize_t n = io_pread_full(fd, buf,
							left < sizeof(buf) ? left : sizeof(buf),
							(off_t)(e->at + done));
			int r;

			if (n <= 0)
				return n < 0 ? (int)n : -EIO;
			r = io_write_all(out, buf, (size_t)n);
			if (r < 0)
				return r;
			done += (uint64_t)n;
		}
	}
	return 0;
}
