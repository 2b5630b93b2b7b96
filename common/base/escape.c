// SPDX-License-Identifier: Apache-2.0
#include "common/base/escape.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Length of the valid UTF-8 character at s (Unicode 15, table 3-7), 0 if there is none. */
static size_t utf8_char(const unsigned char *s, size_t len, uint32_t *ret)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	uint32_t c = s[0];
	size_t n = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3
		: c >= 0xf0 && c < 0xf5 ? 4 : 0;

	if (n == 0 || n > len)
		return 0;
	if (n > 1)
		c &= 0x7fu >> n;
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3fu);
	}
	if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return 0;
	*ret = c;
	return n;
}

static bool shown_as_is(uint32_t c)
{
	if (c < 0x20 || (c >= 0x7f && c < 0xa0))
		return false;
	/* soft hyphen, zero width and bidi marks, line and paragraph separators, isolates, BOM */
	if (c == 0xad || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
		(c >= 0x2060 && c <= 0x206f) || c == 0xfeff || c == 0x61c)
		return false;
	/* Mongolian vowel separator, interlinear annotation marks, tag characters */
	return c != 0x180e && !(c >= 0xfff9 && c <= 0xfffb) && !(c >= 0xe0000 && c <= 0xe007f);
}

size_t escape_text(char *dst, size_t size, const char *src, size_t len)
{
	static const char hex[] = "0123456789abcdef";
	const unsigned char *s = (const unsigned char *)src;
	size_t out = 0;

	if (size == 0)
		return 0;
	for (size_t i = 0; i < len;) {
		uint32_t c = 0;
		size_t n = utf8_char(s + i, len - i, &c);
		bool plain = n > 0 && shown_as_is(c);
		size_t need, raw = n > 0 ? n : 1;

		need = plain ? n : 4 * raw;
		if (out + need >= size)
			break;
		if (plain) {
			memcpy(dst + out, s + i, n);
			out += n;
		} else {
			for (size_t k = 0; k < raw; k++) {
				dst[out++] = '\\';
				dst[out++] = 'x';
				dst[out++] = hex[s[i + k] >> 4];
				dst[out++] = hex[s[i + k] & 15];
			}
		}
		i += raw;
	}
	dst[out] = '\0';
	return out;
}
