/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bounded view of bytes that somebody else wrote, and a cursor that cannot leave it: after the
 * first read past the end `failed` stays set, and every further read gives zero.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct bytes {
	const uint8_t *p;
	size_t left;
	bool failed;
};

static inline struct bytes bytes_of(const void *p, size_t n)
{
	return (struct bytes){.p = p, .left = n};
}

/* The next n bytes, or NULL (and the cursor has failed). */
static inline const void *bytes_take(struct bytes *b, uint64_t n)
{
	const uint8_t *p = b->p;

	if (b->failed || n > b->left) {
		b->failed = true;
		b->left = 0;
		return NULL;
	}
	/* of no bytes there may be no address, either, to which C adds nothing, not even 0 */
	if (n > 0)
		b->p += n;
	b->left -= (size_t)n;
	return p;
}

static inline uint64_t load_u64(const void *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline uint32_t load_u32(const void *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline uint16_t load_u16(const void *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline uint64_t bytes_u64(struct bytes *b)
{
	const void *p = bytes_take(b, 8);

	return p ? load_u64(p) : 0;
}

static inline uint32_t bytes_u32(struct bytes *b)
{
	const void *p = bytes_take(b, 4);

	return p ? load_u32(p) : 0;
}

static inline uint16_t bytes_u16(struct bytes *b)
{
	const void *p = bytes_take(b, 2);

	return p ? load_u16(p) : 0;
}

/* A NUL-terminated string; its terminator must lie inside. NULL (failed) if there is none. */
static inline const char *bytes_str(struct bytes *b, size_t *ret_len)
{
	const uint8_t *nul = b->failed ? NULL : memchr(b->p, 0, b->left);
	const char *s = (const char *)b->p;

	if (!nul) {
		b->failed = true;
		b->left = 0;
		return NULL;
	}
	*ret_len = (size_t)(nul - b->p);
	(void)bytes_take(b, *ret_len + 1);
	return s;
}

/* LEB128; one that does not fit into 64 bits fails. */
static inline uint64_t bytes_uleb(struct bytes *b)
{
	uint64_t v = 0;

	for (unsigned int shift = 0; shift < 64; shift += 7) {
		const uint8_t *p = bytes_take(b, 1);

		if (!p)
			return 0;
		v |= (uint64_t)(*p & 0x7f) << shift;
		if (!(*p & 0x80))
			return v;
	}
	b->failed = true;
	b->left = 0;
	return 0;
}

static inline int64_t bytes_sleb(struct bytes *b)
{
	uint64_t v = 0;

	for (unsigned int shift = 0; shift < 64; shift += 7) {
		const uint8_t *p = bytes_take(b, 1);

		if (!p)
			return 0;
		v |= (uint64_t)(*p & 0x7f) << shift;
		if (!(*p & 0x80)) {
			if ((*p & 0x40) && shift + 7 < 64)
				v |= UINT64_MAX << (shift + 7);
			return (int64_t)v;
		}
	}
	b->failed = true;
	b->left = 0;
	return 0;
}

static inline uint8_t bytes_u8(struct bytes *b)
{
	const uint8_t *p = bytes_take(b, 1);

	return p ? *p : 0;
}
