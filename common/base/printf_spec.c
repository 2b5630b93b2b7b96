// SPDX-License-Identifier: Apache-2.0
#include "common/base/printf_spec.h"

#include <string.h>

/* No character of a conversion is NUL, so NUL stands for the end. */
static char peek(const char *at, const char *end)
{
	return at == end ? '\0' : *at;
}

static bool read_flag(struct printf_spec *s, char c)
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
	case '\'': /* POSIX: as the locale groups digits; the decoder does not know the locale */
		return true;
	default:
		return false;
	}
}

static const char *read_decimal(const char *at, const char *end, size_t *ret)
{
	for (char c; (c = peek(at, end)) >= '0' && c <= '9'; at++) {
		*ret = *ret * 10 + (size_t)(c - '0');
		if (*ret > PRINTF_SPEC_MAX)
			*ret = PRINTF_SPEC_MAX;
	}
	return at;
}

static const char *read_length(const char *at, const char *end, enum printf_length *ret)
{
	const char c = peek(at, end);

	switch (c) {
	case 'h':
	case 'l':
		if (peek(at + 1, end) == c) {
			*ret = c == 'h' ? PRINTF_LENGTH_HH : PRINTF_LENGTH_LL;
			return at + 2;
		}
		*ret = c == 'h' ? PRINTF_LENGTH_H : PRINTF_LENGTH_L;
		break;
	case 'j':
		*ret = PRINTF_LENGTH_J;
		break;
	case 'z':
		*ret = PRINTF_LENGTH_Z;
		break;
	case 't':
		*ret = PRINTF_LENGTH_T;
		break;
	case 'L':
		*ret = PRINTF_LENGTH_LD;
		break;
	default:
		return at;
	}
	return at + 1;
}

const char *printf_spec_read(const char *at, const char *end, struct printf_spec *ret)
{
	struct printf_spec s = {0};
	char c;

	while (read_flag(&s, peek(at, end)))
		at++;
	if (peek(at, end) == '*') {
		s.width_is_value = true;
		at++;
	} else {
		at = read_decimal(at, end, &s.width);
	}
	if (peek(at, end) == '.') {
		s.has_precision = true;
		if (peek(++at, end) == '*') {
			s.precision_is_value = true;
			at++;
		} else {
			at = read_decimal(at, end, &s.precision);
		}
	}
	at = read_length(at, end, &s.length);
	c = peek(at, end);
	if (c && strchr("diouxXcspaAeEfFgGn%", c)) {
		s.conversion = c;
		at++;
	}
	*ret = s;
	return at;
}
