// SPDX-License-Identifier: Apache-2.0
/*
 * Logs: walks a printf format, takes the values of its conversions and records them. The decoder
 * formats them.
 *
 * A format with %n, or with a conversion that ISO C 11 does not have, cannot be walked: then the
 * format itself is the text. Nothing is ever written through %n.
 */
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <wchar.h>

#include "client/lib/eventlib.h"
#include "client/lib/payload.h"
#include "client/lib/record.h"
#include "common/base/printf_spec.h"

#define WIDE_BYTES 256 /* of a wide text, as UTF-8 */

/* A va_list that several functions can read from in turn. */
struct values {
	va_list args;
};

/* Where values go: to a payload, or nowhere while they are only measured. */
struct sink {
	struct payload *payload;
	size_t level; /* how long a text may be */
	/* without a payload */
	size_t fixed; /* bytes of heads and numbers */
	struct payload_texts *texts;
};

static void put_number(struct sink *s, enum ring_field_type type, uint64_t bits)
{
	if (s->payload)
		(void)payload_number(s->payload, 0, type, bits);
	else
		s->fixed += sizeof(struct ring_field) + sizeof(bits);
}

static void put_text(struct sink *s, const void *bytes, size_t length, size_t room)
{
	if (s->payload) {
		(void)payload_text(s->payload, 0, bytes, length, room < s->level ? room : s->level);
	} else {
		s->fixed += sizeof(struct ring_field);
		payload_texts_add(s->texts, length);
	}
}

/* Encodes a character as UTF-8; 0 bytes if it is none. */
static size_t encode_wide(uint32_t c, char *ret)
{
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	static const uint8_t first[] = {0, 0, 0xc0, 0xe0, 0xf0};

	if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return 0;
	for (size_t i = n - 1; i > 0; i--, c >>= 6)
		ret[i] = (char)(0x80 | (c & 0x3f));
	ret[0] = (char)(first[n] | c);
	return n;
}

/* At most `max` characters and `precision` bytes. */
static __attribute__((noinline)) void put_wide(struct sink *s, const wchar_t *text, size_t max,
					       size_t precision)
{
	char bytes[WIDE_BYTES], one[4];
	size_t n = 0;

	for (; max && *text; max--, text++) {
		size_t k = encode_wide((uint32_t)*text, one);

		if (k > precision - n)
			break;
		if (k > sizeof(bytes) - n) {
			put_text(s, bytes, SIZE_MAX, n);
			return;
		}
		memcpy(bytes + n, one, k);
		n += k;
	}
	put_text(s, bytes, n, n + 3);
}

static bool take_text(struct values *v, const struct printf_spec *c, struct sink *s)
{
	size_t precision = c->has_precision ? c->precision : SIZE_MAX;

	if (c->length == PRINTF_LENGTH_L) {
		const wchar_t *wide = va_arg(v->args, const wchar_t *);

		put_wide(s, wide ? wide : L"(null)", SIZE_MAX, precision);
	} else if (c->length == PRINTF_LENGTH_NONE) {
		const char *text = va_arg(v->args, const char *);

		/* With a precision the text need not end with NUL. */
		if (!text)
			text = "(null)";
		put_text(s, text,
			 strnlen(text, precision < RING_PAYLOAD_MAX ? precision : RING_PAYLOAD_MAX),
			 RING_PAYLOAD_MAX);
	} else {
		return false;
	}
	return true;
}

static bool take_character(struct values *v, const struct printf_spec *c, struct sink *s)
{
	if (c->length == PRINTF_LENGTH_L) {
		wchar_t wide = (wchar_t)va_arg(v->args, wint_t);

		put_wide(s, &wide, 1, SIZE_MAX);
	} else if (c->length == PRINTF_LENGTH_NONE) {
		put_number(s, RING_FIELD_I64, (unsigned char)va_arg(v->args, int));
	} else {
		return false;
	}
	return true;
}

static bool take_signed(struct values *v, enum printf_length length, struct sink *s)
{
	int64_t n;

	switch (length) {
	case PRINTF_LENGTH_NONE:
		n = va_arg(v->args, int);
		break;
	case PRINTF_LENGTH_HH:
		n = (signed char)va_arg(v->args, int);
		break;
	case PRINTF_LENGTH_H:
		n = (short)va_arg(v->args, int);
		break;
	case PRINTF_LENGTH_L:
		n = va_arg(v->args, long);
		break;
	case PRINTF_LENGTH_LL:
		n = va_arg(v->args, long long);
		break;
	case PRINTF_LENGTH_J:
		n = va_arg(v->args, intmax_t);
		break;
	case PRINTF_LENGTH_Z:
		n = va_arg(v->args, ssize_t);
		break;
	case PRINTF_LENGTH_T:
		n = va_arg(v->args, ptrdiff_t);
		break;
	default:
		return false;
	}
	put_number(s, RING_FIELD_I64, (uint64_t)n);
	return true;
}

static bool take_unsigned(struct values *v, enum printf_length length, struct sink *s)
{
	uint64_t n;

	switch (length) {
	case PRINTF_LENGTH_NONE:
		n = va_arg(v->args, unsigned);
		break;
	case PRINTF_LENGTH_HH:
		n = (unsigned char)va_arg(v->args, unsigned);
		break;
	case PRINTF_LENGTH_H:
		n = (unsigned short)va_arg(v->args, unsigned);
		break;
	case PRINTF_LENGTH_L:
		n = va_arg(v->args, unsigned long);
		break;
	case PRINTF_LENGTH_LL:
		n = va_arg(v->args, unsigned long long);
		break;
	case PRINTF_LENGTH_J:
		n = va_arg(v->args, uintmax_t);
		break;
	case PRINTF_LENGTH_Z:
		n = va_arg(v->args, size_t);
		break;
	case PRINTF_LENGTH_T:
		n = (size_t)va_arg(v->args, ptrdiff_t);
		break;
	default:
		return false;
	}
	put_number(s, RING_FIELD_U64, n);
	return true;
}

static bool take_double(struct values *v, enum printf_length length, struct sink *s)
{
	uint64_t bits;
	double d;

	if (length == PRINTF_LENGTH_LD)
		d = (double)va_arg(v->args, long double);
	else if (length == PRINTF_LENGTH_NONE || length == PRINTF_LENGTH_L)
		d = va_arg(v->args, double);
	else
		return false;
	memcpy(&bits, &d, sizeof(bits));
	put_number(s, RING_FIELD_F64, bits);
	return true;
}

static bool take_pointer(struct values *v, const struct printf_spec *c, struct sink *s)
{
	if (c->length != PRINTF_LENGTH_NONE)
		return false;
	put_number(s, RING_FIELD_POINTER, (uintptr_t)va_arg(v->args, void *));
	return true;
}

/* Takes the values of one conversion; false if it is not one of ISO C's. */
static bool take_values(struct values *v, struct printf_spec *c, struct sink *s)
{
	if (c->width_is_value)
		put_number(s, RING_FIELD_I64, (uint64_t)(int64_t)va_arg(v->args, int));
	if (c->precision_is_value) {
		const int precision = va_arg(v->args, int);

		put_number(s, RING_FIELD_I64, (uint64_t)(int64_t)precision);
		c->has_precision = precision >= 0;
		c->precision = precision < 0 ? 0 : (size_t)precision;
	}
	switch (c->conversion) {
	case 'd':
	case 'i':
		return take_signed(v, c->length, s);
	case 'u':
	case 'o':
	case 'x':
	case 'X':
		return take_unsigned(v, c->length, s);
	case 'f':
	case 'F':
	case 'e':
	case 'E':
	case 'g':
	case 'G':
	case 'a':
	case 'A':
		return take_double(v, c->length, s);
	case 'c':
		return take_character(v, c, s);
	case 's':
		return take_text(v, c, s);
	case 'p':
		return take_pointer(v, c, s);
	default:
		return false;
	}
}

/* Takes all values of the format; false if it cannot be walked. `args` stays as it was. */
static bool walk(const char *format, va_list args, struct sink *s)
{
	struct values v;
	bool ok = true;

	va_copy(v.args, args);
	for (const char *at = strchr(format, '%'); ok && at; at = strchr(at, '%')) {
		struct printf_spec c;

		if (at[1] == '%') {
			at += 2;
			continue;
		}
		at = printf_spec_read(at + 1, NULL, &c);
		ok = take_values(&v, &c, s);
	}
	va_end(v.args);
	return ok;
}

static void payload_clear(struct payload *p)
{
	p->used = 0;
	p->cut = false;
}

/* They do not fit: the length to which texts are cut. */
static __attribute__((noinline)) size_t values_level(const char *format, va_list args)
{
	struct payload_texts texts;
	struct sink s = {.texts = &texts};

	texts.n = 0;
	(void)walk(format, args, &s);
	return payload_level(&texts, s.fixed < RING_PAYLOAD_MAX ? RING_PAYLOAD_MAX - s.fixed : 0);
}

/* False: the format cannot be walked. */
static bool put_values(struct payload *p, const char *format, va_list args)
{
	struct sink s = {.payload = p, .level = RING_PAYLOAD_MAX};

	/* Nearly always everything fits. */
	payload_clear(p);
	if (!walk(format, args, &s))
		return false;
	if (!p->cut)
		return true;
	s.level = values_level(format, args);
	payload_clear(p);
	return walk(format, args, &s);
}

static tracerd_name format_name(tracerd_name *here, const char *format)
{
	tracerd_name name = here ? __atomic_load_n(here, __ATOMIC_RELAXED) : 0;
	size_t length;

	if (name)
		return name;
	/* A format that was cut would not show what its values are. */
	length = strnlen(format, RING_MAX_NAME + 1);
	if (length > RING_MAX_NAME)
		return 0;
	name = tracerd_intern_bytes(format, length);
	if (here)
		__atomic_store_n(here, name, __ATOMIC_RELAXED);
	return name;
}

static void log_values(tracerd_name *here, enum tracerd_level level, const char *format,
		       va_list args)
{
	const struct ring *ring = threadring_get();
	struct record record = {.kind = RING_LOG, .stamp = stamp_now(), .a = level};
	struct payload p;

	if (!ring || !format)
		return;
	record.name = format_name(here, format);
	if (record.name == 0 || !put_values(&p, format, args)) {
		/* It found no room among the names, so its values have none either. */
		bool values_lost = record.name == 0 && strchr(format, '%');

		record.name = 0;
		payload_clear(&p);
		(void)payload_text(&p, 0, format, strnlen(format, RING_PAYLOAD_MAX),
				   RING_PAYLOAD_MAX);
		p.cut |= values_lost;
	}
	payload_record(ring, &p, &record);
}

void tracerd_log_slow(tracerd_name *here, enum tracerd_level level, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	log_values(here, level, format, args);
	va_end(args);
}

void tracerd_vlog(enum tracerd_level level, const char *format, va_list args)
{
	if (state_on())
		log_values(NULL, level, format, args);
}
