// SPDX-License-Identifier: Apache-2.0
#include "decode/go/text_out.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/io.h"

void gotext_flush(struct gotext_out *o)
{
	if (o->error == 0 && o->n)
		o->error = io_write_all(o->fd, o->buf, o->n);
	o->n = 0;
}

void gotext_put(struct gotext_out *o, const char *s, size_t n)
{
	if (o->error < 0)
		return;
	if (o->max_bytes && n > o->max_bytes - o->bytes) {
		gotext_flush(o);
		o->error = o->error < 0 ? o->error : -EFBIG;
		return;
	}
	o->bytes += n;
	while (n > 0) {
		const size_t part = n < sizeof(o->buf) - o->n ? n : sizeof(o->buf) - o->n;

		memcpy(o->buf + o->n, s, part);
		o->n += part;
		s += part;
		n -= part;
		if (o->n == sizeof(o->buf))
			gotext_flush(o);
	}
}

void gotext_printf(struct gotext_out *o, const char *format, ...)
{
	char text[512];
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	if (n > 0)
		gotext_put(o, text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1);
}

/* How many bytes the character takes; 0: it is none. */
static size_t character(const uint8_t *p, size_t n, uint32_t *ret)
{
	const size_t len = p[0] < 0x80 ? 1 : p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	uint32_t c = len == 1 ? p[0] : p[0] & (0xffu >> (len + 1));

	if (p[0] >= 0xf8 || (p[0] >= 0x80 && p[0] < 0xc0) || len > n)
		return 0;
	for (size_t i = 1; i < len; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3f);
	}
	if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return 0;
	*ret = c;
	return len;
}

void gotext_quote(struct gotext_out *o, const char *s, size_t n)
{
	static const char named[] = "\a\b\f\n\r\t\v\\\"", letters[] = "abfnrtv\\\"";
	size_t len, plain = 0;

	gotext_put(o, "\"", 1);
	for (size_t i = 0; i < n; i += len) {
		const uint8_t b = (uint8_t)s[i];
		const char *at = b ? strchr(named, b) : NULL;
		uint32_t c = 0;

		len = character((const uint8_t *)s + i, n - i, &c);
		if (len && !at && gotext_is_printable(c)) {
			plain += len;
			continue;
		}
		gotext_put(o, s + i - plain, plain);
		plain = 0;
		if (at)
			gotext_printf(o, "\\%c", letters[at - named]);
		else if (len == 0 || c < 0x20 || c == 0x7f)
			gotext_printf(o, "\\x%02x", b);
		else
			gotext_printf(o, c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
		len = len ? len : 1;
	}
	gotext_put(o, s + n - plain, plain);
	gotext_put(o, "\"", 1);
}
