// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/rings/log_spec.h"

#include <string.h>

#include "decode/rings/log_format.h"

/* A decimal number that stops growing at `max`. */
static size_t read_decimal(const char *format, size_t len, size_t *i, size_t max)
{
	size_t v = 0;

	for (; *i < len && format[*i] >= '0' && format[*i] <= '9'; (*i)++) {
		v = v * 10 + (size_t)(format[*i] - '0');
		if (v > max)
			v = max;
	}
	return v;
}

/* An int that a '*' takes; 0 where there is none. */
static int32_t take_int(struct logvalues *v)
{
	const struct ringfield *f = logvalues_take(v);

	return f && ringfield_is_integer(f) ? (int32_t)f->value : 0;
}

static size_t bounded(int64_t v, size_t max)
{
	return (uint64_t)v > max ? max : (size_t)v;
}

static bool read_flag(struct logspec *s, char c)
{
	switch (c) {
	case '-':
		return s->minus = true;
	case '+':
		return s->plus = true;
	case ' ':
		return s->space = true;
	case '#':
		return s->alt = true;
	case '0':
		return s->zero = true;
	case '\'': /* the locale's, which nobody knows here */
		return true;
	default:
		return false;
	}
}

static enum loglength read_length(const char *format, size_t len, size_t *i)
{
	const char c = *i < len ? format[*i] : '\0', next = *i + 1 < len ? format[*i + 1] : '\0';

	switch (c) {
	case 'h':
	case 'l':
		*i += next == c ? 2 : 1;
		if (c == 'h')
			return next == c ? LOGLENGTH_HH : LOGLENGTH_H;
		return next == c ? LOGLENGTH_LL : LOGLENGTH_L;
	case 'j':
		++*i;
		return LOGLENGTH_J;
	case 'z':
		++*i;
		return LOGLENGTH_Z;
	case 't':
		++*i;
		return LOGLENGTH_T;
	case 'L':
		++*i;
		return LOGLENGTH_LD;
	default:
		return LOGLENGTH_NONE;
	}
}

struct logspec logspec_read(const char *format, size_t len, size_t *i, struct logvalues *values)
{
	struct logspec s = {0};

	while (*i < len && read_flag(&s, format[*i]))
		++*i;
	if (*i < len && format[*i] == '*') {
		int64_t width = take_int(values);

		++*i;
		if (width < 0) {
			s.minus = true;
			width = -width;
		}
		s.width = bounded(width, LOGFORMAT_MAX_WIDTH);
	} else {
		s.width = read_decimal(format, len, i, LOGFORMAT_MAX_WIDTH);
	}
	if (*i < len && format[*i] == '.') {
		++*i;
		s.has_precision = true;
		if (*i < len && format[*i] == '*') {
			int32_t precision = take_int(values);

			++*i;
			if (precision < 0)
				s.has_precision = false;
			else
				s.precision = bounded(precision, RING_PAYLOAD_MAX);
		} else {
			s.precision = read_decimal(format, len, i, RING_PAYLOAD_MAX);
		}
	}
	s.length = read_length(format, len, i);
	if (*i < len && format[*i] && strchr("diouxXcspaAeEfFgGn%", format[*i]))
		s.conversion = format[(*i)++];
	if (s.conversion != 's' && s.precision > LOGFORMAT_MAX_PRECISION)
		s.precision = LOGFORMAT_MAX_PRECISION;
	return s;
}
