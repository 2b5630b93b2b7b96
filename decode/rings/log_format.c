// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/rings/log_format.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/base/printf_spec.h"

/* The values that a format takes, one after the other. */
struct logvalues {
	const struct ringfield *v;
	size_t n, next;
};

struct out {
	char *dst;
	size_t size, n;
	bool cut;
};

static void put(struct out *o, const char *s, size_t len)
{
	if (len > o->size - o->n) {
		len = o->size - o->n;
		o->cut = true;
	}
	memcpy(o->dst + o->n, s, len);
	o->n += len;
}

static void put_many(struct out *o, char c, size_t n)
{
	if (n > o->size - o->n) {
		n = o->size - o->n;
		o->cut = true;
	}
	memset(o->dst + o->n, c, n);
	o->n += n;
}

static void put_padded(struct out *o, const struct printf_spec *s, const char *text, size_t len)
{
	size_t pad = s->width > len ? s->width - len : 0;

	if (!s->minus)
		put_many(o, ' ', pad);
	put(o, text, len);
	if (s->minus)
		put_many(o, ' ', pad);
}

static void put_string(struct out *o, const struct printf_spec *s, const char *text)
{
	put_padded(o, s, text, strlen(text));
}

/* A number: prefix (sign, 0x), zeroes that the flag 0 asks for, and the digits. */
static void put_number(struct out *o, const struct printf_spec *s, bool zeroes, const char *prefix,
		       const char *digits, size_t len)
{
	size_t all = strlen(prefix) + len, pad = s->width > all ? s->width - all : 0;

	if (!s->minus && !zeroes)
		put_many(o, ' ', pad);
	put(o, prefix, strlen(prefix));
	if (!s->minus && zeroes)
		put_many(o, '0', pad);
	put(o, digits, len);
	if (s->minus)
		put_many(o, ' ', pad);
}

/* ---- values */

static uint64_t cut_unsigned(uint64_t v, enum printf_length length)
{
	switch (length) {
	case PRINTF_LENGTH_HH:
		return (uint8_t)v;
	case PRINTF_LENGTH_H:
		return (uint16_t)v;
	case PRINTF_LENGTH_NONE:
		return (uint32_t)v;
	default:
		return v;
	}
}

static int64_t cut_signed(uint64_t v, enum printf_length length)
{
	switch (length) {
	case PRINTF_LENGTH_HH:
		return (int8_t)v;
	case PRINTF_LENGTH_H:
		return (int16_t)v;
	case PRINTF_LENGTH_NONE:
		return (int32_t)v;
	default:
		return (int64_t)v;
	}
}

/* The digits of v, at least `least` (LOGFORMAT_MAX_PRECISION at most). */
static size_t digits_of(char buf[LOGFORMAT_MAX_PRECISION + 32], uint64_t v, unsigned base,
			bool upper, size_t least)
{
	const char *set = upper ? "0123456789ABCDEF" : "0123456789abcdef";
	char reversed[LOGFORMAT_MAX_PRECISION + 32];
	size_t n = 0;

	for (; v; v /= base)
		reversed[n++] = set[v % base];
	while (n < least)
		reversed[n++] = '0';
	for (size_t i = 0; i < n; i++)
		buf[i] = reversed[n - 1 - i];
	return n;
}

static void put_integer(struct out *o, const struct printf_spec *s, uint64_t bits)
{
	char digits[LOGFORMAT_MAX_PRECISION + 32];
	size_t least = s->has_precision ? s->precision : 1, n;
	bool zeroes = s->zero && !s->has_precision;
	const char *prefix = "";
	uint64_t v;

	if (s->conversion == 'd' || s->conversion == 'i') {
		int64_t i = cut_signed(bits, s->length);

		v = i < 0 ? -(uint64_t)i : (uint64_t)i;
		prefix = i < 0 ? "-" : s->plus ? "+" : s->space ? " " : "";
		n = digits_of(digits, v, 10, false, least);
	} else {
		v = cut_unsigned(bits, s->length);
		if (s->conversion == 'o') {
			n = digits_of(digits, v, 8, false, least);
			if (s->alt && (n == 0 || digits[0] != '0'))
				n = digits_of(digits, v, 8, false, n + 1);
		} else if (s->conversion == 'u') {
			n = digits_of(digits, v, 10, false, least);
		} else {
			n = digits_of(digits, v, 16, s->conversion == 'X', least);
			if (s->alt && v)
				prefix = s->conversion == 'X' ? "0X" : "0x";
		}
	}
	put_number(o, s, zeroes, prefix, digits, n);
}

static void put_pointer(struct out *o, const struct printf_spec *s, uint64_t v)
{
	char digits[LOGFORMAT_MAX_PRECISION + 32];

	if (v == 0)
		put_string(o, s, "(nil)");
	else
		put_number(o, s, false, "0x", digits, digits_of(digits, v, 16, false, 1));
}

/* No sign, no width: the longest is 1.8e308 by %f with all its decimals. */
static size_t print_float(char *buf, size_t size, const struct printf_spec *s, double v)
{
	const int p = s->has_precision                               ? (int)s->precision
		      : s->conversion == 'a' || s->conversion == 'A' ? -1
								     : 6;
	int n = 0;

	switch (s->conversion) {
	case 'a':
		n = s->alt ? snprintf(buf, size, "%#.*a", p, v) : snprintf(buf, size, "%.*a", p, v);
		break;
	case 'A':
		n = s->alt ? snprintf(buf, size, "%#.*A", p, v) : snprintf(buf, size, "%.*A", p, v);
		break;
	case 'e':
		n = s->alt ? snprintf(buf, size, "%#.*e", p, v) : snprintf(buf, size, "%.*e", p, v);
		break;
	case 'E':
		n = s->alt ? snprintf(buf, size, "%#.*E", p, v) : snprintf(buf, size, "%.*E", p, v);
		break;
	case 'f':
		n = s->alt ? snprintf(buf, size, "%#.*f", p, v) : snprintf(buf, size, "%.*f", p, v);
		break;
	case 'F':
		n = s->alt ? snprintf(buf, size, "%#.*F", p, v) : snprintf(buf, size, "%.*F", p, v);
		break;
	case 'g':
		n = s->alt ? snprintf(buf, size, "%#.*g", p, v) : snprintf(buf, size, "%.*g", p, v);
		break;
	default:
		n = s->alt ? snprintf(buf, size, "%#.*G", p, v) : snprintf(buf, size, "%.*G", p, v);
		break;
	}
	return n < 0 ? 0 : (size_t)n < size ? (size_t)n : size - 1;
}

static void put_float(struct out *o, const struct printf_spec *s, double v)
{
	char buf[LOGFORMAT_MAX_PRECISION + 400];
	bool hex = s->conversion == 'a' || s->conversion == 'A', finite = isfinite(v);
	size_t n = print_float(buf, sizeof(buf), s, fabs(v)), skip = 0;
	char prefix[4] = "";

	if (signbit(v))
		(void)strcpy(prefix, "-");
	else if (s->plus || s->space)
		(void)strcpy(prefix, s->plus ? "+" : " ");
	/* zeroes follow the 0x */
	if (hex && finite && n > 2) {
		size_t at = strlen(prefix);

		prefix[at] = buf[0];
		prefix[at + 1] = buf[1];
		prefix[at + 2] = '\0';
		skip = 2;
	}
	put_number(o, s, s->zero && finite, prefix, buf + skip, n - skip);
}

static void put_text(struct out *o, const struct printf_spec *s, const struct ringfield *f)
{
	size_t len = f->length;
	bool more = f->type == RING_FIELD_TEXT_CUT;

	if (s->has_precision && s->precision <= len) {
		len = s->precision;
		more = false;
	}
	if (!more) {
		put_padded(o, s, f->text, len);
		return;
	}
	put(o, f->text, len);
	/* an ellipsis; there is no width that the whole would not have filled */
	put(o, "\xe2\x80\xa6", 3);
}

static void put_char(struct out *o, const struct printf_spec *s, uint64_t v)
{
	char buf[4];
	size_t n = 0;

	if (s->length != PRINTF_LENGTH_L || (uint32_t)v < 0x80) {
		buf[n++] = (char)v;
	} else if ((uint32_t)v < 0x800) {
		buf[n++] = (char)(0xc0 | (v >> 6 & 0x1f));
		buf[n++] = (char)(0x80 | (v & 0x3f));
	} else if ((uint32_t)v < 0x10000) {
		buf[n++] = (char)(0xe0 | (v >> 12 & 0x0f));
		buf[n++] = (char)(0x80 | (v >> 6 & 0x3f));
		buf[n++] = (char)(0x80 | (v & 0x3f));
	} else {
		buf[n++] = (char)(0xf0 | (v >> 18 & 0x07));
		buf[n++] = (char)(0x80 | (v >> 12 & 0x3f));
		buf[n++] = (char)(0x80 | (v >> 6 & 0x3f));
		buf[n++] = (char)(0x80 | (v & 0x3f));
	}
	put_padded(o, s, buf, n);
}

/* A value of another type than the format's: what it is, so that the rest can still be read. */
static void put_mistyped(struct out *o, const struct ringfield *f)
{
	char buf[64];

	switch (f->type) {
	case RING_FIELD_I64:
		(void)snprintf(buf, sizeof(buf), "<%lld>", (long long)f->value);
		break;
	case RING_FIELD_U64:
		(void)snprintf(buf, sizeof(buf), "<%llu>", (unsigned long long)f->value);
		break;
	case RING_FIELD_POINTER:
		(void)snprintf(buf, sizeof(buf), "<0x%llx>", (unsigned long long)f->value);
		break;
	case RING_FIELD_F64:
		(void)snprintf(buf, sizeof(buf), "<%g>", f->f64);
		break;
	default:
		put(o, "<", 1);
		put(o, f->text, f->length);
		(void)strcpy(buf, ">");
		break;
	}
	put(o, buf, strlen(buf));
}

/* ---- conversions */

/* The next value, or NULL. */
static const struct ringfield *logvalues_take(struct logvalues *v)
{
	return v->next < v->n ? &v->v[v->next++] : NULL;
}

/* The int of a `*`; 0 where there is none. */
static int32_t logvalues_take_int(struct logvalues *v)
{
	const struct ringfield *f = logvalues_take(v);

	return f && ringfield_is_integer(f) ? (int32_t)f->value : 0;
}

static size_t bounded(uint64_t v, size_t max)
{
	return v > max ? max : (size_t)v;
}

/* Width and precision that are values, and the limits of all of them. */
static void take_sizes(struct printf_spec *s, struct logvalues *values)
{
	if (s->width_is_value) {
		const int64_t width = logvalues_take_int(values);

		s->minus = s->minus || width < 0;
		s->width = bounded((uint64_t)(width < 0 ? -width : width), LOGFORMAT_MAX_WIDTH);
	}
	if (s->precision_is_value) {
		const int32_t precision = logvalues_take_int(values);

		s->has_precision = precision >= 0;
		s->precision = precision < 0 ? 0 : (size_t)precision;
	}
	s->width = bounded(s->width, LOGFORMAT_MAX_WIDTH);
	s->precision = bounded(s->precision,
			       s->conversion == 's' ? RING_PAYLOAD_MAX : LOGFORMAT_MAX_PRECISION);
}

static void convert(struct out *o, const struct printf_spec *s, struct logvalues *values)
{
	const struct ringfield *f;
	bool text;

	if (s->conversion == '%') {
		put(o, "%", 1);
		return;
	}
	if (s->conversion == 'n') {
		put(o, "%n", 2);
		return;
	}
	f = logvalues_take(values);
	if (!f || f->type == RING_FIELD_NAME) {
		put(o, "<missing>", 9);
		return;
	}
	text = f->type == RING_FIELD_TEXT || f->type == RING_FIELD_TEXT_CUT;
	switch (s->conversion) {
	case 's':
		if (text)
			put_text(o, s, f);
		else
			put_mistyped(o, f);
		break;
	case 'c':
		if (ringfield_is_integer(f))
			put_char(o, s, f->value);
		else if (text && s->length == PRINTF_LENGTH_L)
			put_text(o, s, f); /* wide characters are recorded as text */
		else
			put_mistyped(o, f);
		break;
	case 'p':
		if (ringfield_is_integer(f))
			put_pointer(o, s, f->value);
		else
			put_mistyped(o, f);
		break;
	case 'd':
	case 'i':
	case 'o':
	case 'u':
	case 'x':
	case 'X':
		if (ringfield_is_integer(f))
			put_integer(o, s, f->value);
		else
			put_mistyped(o, f);
		break;
	default:
		if (f->type == RING_FIELD_F64)
			put_float(o, s, f->f64);
		else
			put_mistyped(o, f);
		break;
	}
}

size_t logformat(char *dst, size_t size, const char *format, size_t len,
		 const struct ringfield *values, size_t n_values, bool *ret_cut)
{
	struct out o = {.dst = dst, .size = size};
	struct logvalues v = {.v = values, .n = n_values};

	for (const char *at = format, *end = format + len; at < end;) {
		const char *percent = memchr(at, '%', (size_t)(end - at));
		struct printf_spec s;

		put(&o, at, (size_t)((percent ? percent : end) - at));
		if (!percent)
			break;
		at = printf_spec_read(percent + 1, end, &s);
		if (!s.conversion) {
			put(&o, percent, (size_t)(end - percent));
			break;
		}
		take_sizes(&s, &v);
		convert(&o, &s, &v);
	}
	*ret_cut = o.cut;
	return o.n;
}
