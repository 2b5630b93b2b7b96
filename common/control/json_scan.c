// SPDX-License-Identifier: Apache-2.0
/*
 * The scanner: one pass, a stack of JSON_DEPTH_MAX bits instead of recursion. It accepts exactly
 * RFC 8259 minus what json.h rules out.
 */
#include "common/control/json_scan.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/control/json.h"

struct scan {
	const unsigned char *p, *start, *end;
	json_event_fn fn;
	void *arg;
	unsigned int depth;
	bool in_object[JSON_DEPTH_MAX]; /* else in an array */
	const char *error;
};

static bool scan_fail(struct scan *s, const char *error)
{
	if (!s->error)
		s->error = error;
	return false;
}

/* What was scanned from `from` to here. */
static bool scan_report(struct scan *s, enum json_event event, const unsigned char *from,
			size_t len)
{
	const char *error = s->fn(s->arg, event, (const char *)from, len);

	return !error || scan_fail(s, error);
}

static void scan_space(struct scan *s)
{
	while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
		s->p++;
}

static int hex_digit(unsigned char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Four digits after \u; -1 if they are none. */
static long scan_hex4(struct scan *s)
{
	long v = 0;

	if (s->end - s->p < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		int d = hex_digit(s->p[i]);

		if (d < 0)
			return -1;
		v = v * 16 + d;
	}
	s->p += 4;
	return v;
}

static bool scan_escape(struct scan *s)
{
	long v;

	if (s->p == s->end)
		return scan_fail(s, "text ends in a string");
	switch (*s->p++) {
	case '"':
	case '\\':
	case '/':
	case 'b':
	case 'f':
	case 'n':
	case 'r':
	case 't':
		return true;
	case 'u':
		break;
	default:
		return scan_fail(s, "unknown escape in a string");
	}
	v = scan_hex4(s);
	if (v < 0)
		return scan_fail(s, "bad \\u escape");
	if (v == 0)
		return scan_fail(s, "NUL in a string");
	if (v >= 0xdc00 && v <= 0xdfff)
		return scan_fail(s, "lone surrogate in a string");
	if (v >= 0xd800 && v <= 0xdbff) {
		if (s->end - s->p < 2 || s->p[0] != '\\' || s->p[1] != 'u')
			return scan_fail(s, "lone surrogate in a string");
		s->p += 2;
		v = scan_hex4(s);
		if (v < 0xdc00 || v > 0xdfff)
			return scan_fail(s, "lone surrogate in a string");
	}
	return true;
}

/* One character of more than one byte; shortest form, no surrogates, up to U+10FFFF (RFC 3629). */
static bool scan_utf8(struct scan *s)
{
	const unsigned char *p = s->p;
	size_t left = (size_t)(s->end - p), n;
	unsigned char lo = 0x80, hi = 0xbf;

	if (p[0] >= 0xc2 && p[0] <= 0xdf)
		n = 1;
	else if (p[0] >= 0xe0 && p[0] <= 0xef) {
		n = 2;
		if (p[0] == 0xe0)
			lo = 0xa0;
		else if (p[0] == 0xed)
			hi = 0x9f;
	} else if (p[0] >= 0xf0 && p[0] <= 0xf4) {
		n = 3;
		if (p[0] == 0xf0)
			lo = 0x90;
		else if (p[0] == 0xf4)
			hi = 0x8f;
	} else
		return scan_fail(s, "invalid UTF-8");
	if (left <= n || p[1] < lo || p[1] > hi)
		return scan_fail(s, "invalid UTF-8");
	for (size_t i = 2; i <= n; i++)
		if (p[i] < 0x80 || p[i] > 0xbf)
			return scan_fail(s, "invalid UTF-8");
	s->p += n + 1;
	return true;
}

static bool scan_string(struct scan *s, enum json_event event)
{
	const unsigned char *from = ++s->p; /* after the quote */

	while (s->p < s->end) {
		unsigned char c = *s->p;

		if (c == '"') {
			s->p++;
			return scan_report(s, event, from, (size_t)(s->p - 1 - from));
		}
		if (c < 0x20)
			return scan_fail(s, "control character in a string");
		if (c == '\\') {
			s->p++;
			if (!scan_escape(s))
				return false;
		} else if (c < 0x80)
			s->p++;
		else if (!scan_utf8(s))
			return false;
	}
	return scan_fail(s, "text ends in a string");
}

static size_t scan_digits(struct scan *s)
{
	const unsigned char *from = s->p;

	while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
		s->p++;
	return (size_t)(s->p - from);
}

static bool number_fits(const unsigned char *from, size_t len, bool integer)
{
	char buf[JSON_NUMBER_MAX + 1];

	if (len > JSON_NUMBER_MAX)
		return false;
	memcpy(buf, from, len);
	buf[len] = '\0';
	errno = 0;
	if (integer) {
		(void)strtoll(buf, NULL, 10);
		return errno == 0;
	}
	return isfinite(strtod(buf, NULL));
}

static bool scan_number(struct scan *s)
{
	const unsigned char *from = s->p;
	bool integer = true;

	if (*s->p == '-')
		s->p++;
	if (s->p < s->end && *s->p == '0')
		s->p++;
	else if (scan_digits(s) == 0)
		return scan_fail(s, "not a value");
	if (s->p < s->end && *s->p == '.') {
		integer = false;
		s->p++;
		if (scan_digits(s) == 0)
			return scan_fail(s, "bad number");
	}
	if (s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
		integer = false;
		s->p++;
		if (s->p < s->end && (*s->p == '+' || *s->p == '-'))
			s->p++;
		if (scan_digits(s) == 0)
			return scan_fail(s, "bad number");
	}
	if (!number_fits(from, (size_t)(s->p - from), integer))
		return scan_fail(s, "number does not fit");
	return scan_report(s, integer ? JSON_INTEGER : JSON_REAL, from, (size_t)(s->p - from));
}

static bool scan_word(struct scan *s, const char *word, enum json_event event)
{
	size_t n = strlen(word);

	if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0)
		return scan_fail(s, "not a value");
	s->p += n;
	return scan_report(s, event, NULL, 0);
}

static bool scan_key(struct scan *s)
{
	scan_space(s);
	if (s->p == s->end || *s->p != '"')
		return scan_fail(s, "expected a key");
	if (!scan_string(s, JSON_KEY))
		return false;
	scan_space(s);
	if (s->p == s->end || *s->p != ':')
		return scan_fail(s, "expected a colon");
	s->p++;
	return true;
}

/*
 * What stands at s->p: a scalar is consumed whole; '{' and '[' open a level, unless they are
 * closed at once. *opened says that a value must follow.
 */
static bool scan_value(struct scan *s, bool *opened)
{
	bool object;

	*opened = false;
	scan_space(s);
	if (s->p == s->end)
		return scan_fail(s, "text ends where a value should be");
	switch (*s->p) {
	case '"':
		return scan_string(s, JSON_STRING);
	case 't':
		return scan_word(s, "true", JSON_TRUE);
	case 'f':
		return scan_word(s, "false", JSON_FALSE);
	case 'n':
		return scan_word(s, "null", JSON_NULL);
	case '{':
	case '[':
		break;
	default:
		return scan_number(s);
	}
	object = *s->p == '{';
	if (s->depth == JSON_DEPTH_MAX)
		return scan_fail(s, "too deep");
	s->p++;
	if (!scan_report(s, object ? JSON_OPEN_OBJECT : JSON_OPEN_ARRAY, NULL, 0))
		return false;
	scan_space(s);
	if (s->p < s->end && *s->p == (object ? '}' : ']')) {
		s->p++;
		return scan_report(s, JSON_CLOSE, NULL, 0);
	}
	s->in_object[s->depth++] = object;
	*opened = true;
	return !object || scan_key(s);
}

/* After a value: closes levels until a comma says that another one follows, or all are closed. */
static bool scan_after(struct scan *s, bool *done)
{
	for (;;) {
		bool object;

		*done = s->depth == 0;
		if (*done)
			return true;
		object = s->in_object[s->depth - 1];
		scan_space(s);
		if (s->p == s->end)
			return scan_fail(s, "text ends too early");
		if (*s->p == ',') {
			s->p++;
			return !object || scan_key(s);
		}
		if (*s->p != (object ? '}' : ']'))
			return scan_fail(s, "expected a comma or the end");
		s->p++;
		s->depth--;
		if (!scan_report(s, JSON_CLOSE, NULL, 0))
			return false;
	}
}

static bool scan_text(struct scan *s)
{
	bool done = false;

	while (!done) {
		bool opened;

		if (!scan_value(s, &opened))
			return false;
		if (!opened && !scan_after(s, &done))
			return false;
	}
	scan_space(s);
	return s->p == s->end || scan_fail(s, "something follows the value");
}

bool json_scan(const char *text, size_t len, json_event_fn fn, void *arg, const char **ret_error,
	       size_t *ret_at)
{
	struct scan s = {.p = (const unsigned char *)text, .start = (const unsigned char *)text,
		.end = (const unsigned char *)text + len, .fn = fn, .arg = arg};

	if (scan_text(&s))
		return true;
	*ret_error = s.error;
	*ret_at = (size_t)(s.p - s.start);
	return false;
}
