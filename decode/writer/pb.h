/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the encoding of protobuf messages into a flat buffer: just what a trace needs. It refuses
 * to know any schema.
 *
 * A nested message gets one byte for its length and is moved up at pb_close() in the rare case
 * that it needs more: most messages of a trace are shorter than 128 bytes.
 *
 * The caller keeps PB_MARGIN bytes free for numbers; only byte strings are checked against the
 * end, and cut (never past it). So a message of n numeric fields, n < PB_MARGIN / 16, is safe.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PB_MARGIN 4096u

struct pb {
	uint8_t *p;
	uint8_t *end; /* of the buffer */
};

static inline void pb_init(struct pb *pb, uint8_t *buf, size_t size)
{
	pb->p = buf;
	pb->end = buf + size;
}

static inline size_t pb_room(const struct pb *pb)
{
	size_t left = (size_t)(pb->end - pb->p);

	return left > PB_MARGIN ? left - PB_MARGIN : 0;
}

static inline uint8_t *pb_put_varint(uint8_t *p, uint64_t v)
{
	while (v >= 0x80) {
		*p++ = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	*p++ = (uint8_t)v;
	return p;
}

static inline void pb_raw(struct pb *pb, uint64_t v)
{
	pb->p = pb_put_varint(pb->p, v);
}

static inline void pb_uint(struct pb *pb, uint32_t field, uint64_t v)
{
	pb->p = pb_put_varint(pb->p, field << 3);
	pb->p = pb_put_varint(pb->p, v);
}

/* int32 and int64: a negative number takes ten bytes. */
static inline void pb_int(struct pb *pb, uint32_t field, int64_t v)
{
	pb_uint(pb, field, (uint64_t)v);
}

static inline void pb_fixed64(struct pb *pb, uint32_t field, uint64_t v)
{
	pb->p = pb_put_varint(pb->p, field << 3 | 1);
	for (unsigned int i = 0; i < 8; i++)
		*pb->p++ = (uint8_t)(v >> (8 * i));
}

static inline void pb_double(struct pb *pb, uint32_t field, double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof(bits));
	pb_fixed64(pb, field, bits);
}

static inline void pb_bytes(struct pb *pb, uint32_t field, const void *data, size_t len)
{
	if (len > pb_room(pb))
		len = pb_room(pb);
	pb->p = pb_put_varint(pb->p, field << 3 | 2);
	pb->p = pb_put_varint(pb->p, len);
	memcpy(pb->p, data, len);
	pb->p += len;
}

static inline void pb_string(struct pb *pb, uint32_t field, const char *s)
{
	pb_bytes(pb, field, s, strlen(s));
}

/* Begins a nested message; the result goes to pb_close(). */
static inline uint8_t *pb_open(struct pb *pb, uint32_t field)
{
	pb->p = pb_put_varint(pb->p, field << 3 | 2);
	return pb->p++;
}

static inline void pb_close(struct pb *pb, uint8_t *mark)
{
	size_t len = (size_t)(pb->p - mark - 1);

	if (len < 0x80) {
		*mark = (uint8_t)len;
	} else {
		uint8_t head[10];
		size_t n = (size_t)(pb_put_varint(head, len) - head);

		memmove(mark + n, mark + 1, len);
		memcpy(mark, head, n);
		pb->p += n - 1;
	}
}
