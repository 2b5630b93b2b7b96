// SPDX-License-Identifier: Apache-2.0
/* Formats of logs: as printf() would have said it, and whatever else a program may have written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "decode/rings/log_format.h"

static struct ringfield number(enum ring_field_type type, uint64_t bits)
{
	struct ringfield f = {.type = type, .value = bits};

	memcpy(&f.f64, &bits, sizeof(bits));
	return f;
}

static struct ringfield i64(int64_t v)
{
	return number(RING_FIELD_I64, (uint64_t)v);
}

static struct ringfield f64(double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof(bits));
	return number(RING_FIELD_F64, bits);
}

static struct ringfield text(const char *s)
{
	return (struct ringfield){.type = RING_FIELD_TEXT, .text = s, .length = strlen(s)};
}

static void expect(const char *format, const struct ringfield *v, size_t n, const char *result)
{
	char out[4096];
	bool cut = true;
	size_t len = logformat(out, sizeof(out) - 1, format, strlen(format), v, n, &cut);

	out[len] = '\0';
	assert_string_equal(out, result);
	assert_false(cut);
}

static void test_nothing_to_convert(void **state)
{
	(void)state;
	expect("", NULL, 0, "");
	expect("plain", NULL, 0, "plain");
	expect("100%% %%d", NULL, 0, "100% %d");
}

static void test_values_in_order(void **state)
{
	const struct ringfield v[] = {text("bob"), i64(3), f64(1.5),
				      number(RING_FIELD_POINTER, 0xbeef)};

	(void)state;
	expect("%s: %d of %.2f at %p", v, 4, "bob: 3 of 1.50 at 0xbeef");
}

static void test_stars(void **state)
{
	const struct ringfield v[] = {i64(6),     i64(2),  f64(3.14159), i64(-4),
				      text("ab"), i64(-1), text("whole")};

	(void)state;
	expect("[%*.*f] [%*s] [%.*s]", v, 7, "[  3.14] [ab  ] [whole]");
}

static void test_missing_and_mistyped(void **state)
{
	const struct ringfield v[] = {text("five"), i64(-5), number(RING_FIELD_U64, 7), f64(0.5),
		number(RING_FIELD_POINTER, 16)};
	const struct ringfield name = {.type = RING_FIELD_NAME, .value = 3};

	(void)state;
	expect("%d|%s|%f|%p|%s|%d", v, 5, "<five>|<-5>|<7>|<0.5>|<0x10>|<missing>");
	expect("%c %s", (struct ringfield[]){text("x"), name}, 2, "<x> <missing>");
	expect("%*d|", v, 1, "<missing>|");
}

static void test_what_is_no_conversion(void **state)
{
	const struct ringfield v[] = {i64(1), i64(2)};

	(void)state;
	/* nothing is written through %n, and it takes no value */
	expect("%n%d", v, 2, "%n1");
	/* what is behind one that nobody knows cannot be told */
	expect("%d %y %d", v, 2, "1 %y %d");
	expect("%d %", v, 2, "1 %");
	expect("%d %5", v, 2, "1 %5");
	expect("%d %1$d", v, 2, "1 %1$d");
	expect("%hhhd %d", v, 2, "%hhhd %d");
}

static void test_bounds(void **state)
{
	const struct ringfield v[] = {i64(1), i64(INT32_MAX), i64(2), i64(INT32_MIN), i64(3)};
	char out[4096];
	bool cut;

	(void)state;
	assert_int_equal(logformat(out, sizeof(out), "%999999999999999999999d", 23, v, 5, &cut),
			 LOGFORMAT_MAX_WIDTH);
	assert_int_equal(logformat(out, sizeof(out), "%.999999999999999999999d", 24, v, 5, &cut),
		LOGFORMAT_MAX_PRECISION);
	assert_int_equal(logformat(out, sizeof(out), "%d%*d%*d", 8, v, 5, &cut),
			 1 + 2 * LOGFORMAT_MAX_WIDTH);
	assert_false(cut);
	assert_int_equal(logformat(out, 10, "%999d", 5, v, 5, &cut), 10);
	assert_true(cut);
	assert_int_equal(logformat(out, 0, "x", 1, v, 5, &cut), 0);
	assert_true(cut);
	/* a NUL is a byte as any other, and the format need not end in one */
	assert_int_equal(logformat(out, sizeof(out), "a\0%dXX", 4, v, 5, &cut), 3);
	assert_memory_equal(out, "a\0001", 3);
	assert_int_equal(logformat(out, sizeof(out), "a%d", 2, v, 5, &cut), 2);
}

static void test_texts(void **state)
{
	struct ringfield cut = text("beginn");

	(void)state;
	cut.type = RING_FIELD_TEXT_CUT;
	expect("<%8s> <%-8s> <%.2s>", (struct ringfield[]){text("abc"), text("abc"), text("abc")},
	       3, "<     abc> <abc     > <ab>");
	expect("<%s> <%.3s>", (struct ringfield[]){cut, cut}, 2, "<beginn\xe2\x80\xa6> <beg>");
	expect("%s", (struct ringfield[]){{.type = RING_FIELD_TEXT, .text = "xyz", .length = 0}}, 1,
	       "");
	/* wide ones come as text, or as their number */
	expect("%lc%lc%lc%lc %ls",
	       (struct ringfield[]){i64('a'), i64(0xe9), i64(0x20ac), text("\xf0\x9f\x98\x80"),
				    text("\xc3\xa9")},
	       5, "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 \xc3\xa9");
}

/* ---- as the C library does it, over random conversions */

static uint64_t seed = 0x1234567890abcdef;

static uint64_t random_u64(void)
{
	seed ^= seed >> 12;
	seed ^= seed << 25;
	seed ^= seed >> 27;
	return seed * 2685821657736338717u;
}

static uint64_t random_number(void)
{
	static const uint64_t some[] = {0,          1,           7,
					8,          255,         256,
					0x7f,       0x80,        0x7fff,
					0x8000,     0x7fffffff,  0x80000000,
					0xffffffff, INT64_MAX,   (uint64_t)INT64_MIN,
					UINT64_MAX, (uint64_t)-5};

	return random_u64() % 2 ? some[random_u64() % (sizeof(some) / sizeof(some[0]))]
				: random_u64() >> random_u64() % 64;
}

static double random_double(void)
{
	static const double some[] = {0.0,         -0.0,  1.0,
				      -1.5,        0.1,   1e-10,
				      123456789.0, 1e100, 1.7976931348623157e308,
				      5e-324};
	uint64_t bits = random_u64();
	double v;

	if (bits % 3)
		return some[random_u64() % (sizeof(some) / sizeof(some[0]))];
	bits = random_u64();
	memcpy(&v, &bits, sizeof(v));
	return v;
}

static size_t make_spec(char *spec, const char *flags, const char *length, char conversion)
{
	size_t n = 0;

	spec[n++] = '%';
	for (const char *f = flags; *f; f++)
		if (random_u64() % 3 == 0)
			spec[n++] = *f;
	if (random_u64() % 2)
		n += (size_t)sprintf(spec + n, "%u", (unsigned)(random_u64() % 40) + 1);
	if (random_u64() % 2 && conversion != 'c' && conversion != 'p')
		n += (size_t)sprintf(spec + n, ".%u", (unsigned)(random_u64() % 30));
	n += (size_t)sprintf(spec + n, "%s%c", length, conversion);
	return n;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void say_integer(char *out, size_t size, const char *spec, const char *length, uint64_t v)
{
	if (strcmp(length, "l") == 0)
		(void)snprintf(out, size, spec, (long)v);
	else if (strcmp(length, "ll") == 0)
		(void)snprintf(out, size, spec, (long long)v);
	else if (strcmp(length, "j") == 0)
		(void)snprintf(out, size, spec, (intmax_t)v);
	else if (strcmp(length, "z") == 0)
		(void)snprintf(out, size, spec, (size_t)v);
	else if (strcmp(length, "t") == 0)
		(void)snprintf(out, size, spec, (ptrdiff_t)v);
	else
		(void)snprintf(out, size, spec, (int)v);
}

static void say_double(char *out, size_t size, const char *spec, double v)
{
	(void)snprintf(out, size, spec, v);
}

static void say_pointer(char *out, size_t size, const char *spec, uint64_t v)
{
	/* NOLINT(performance-no-int-to-ptr) */
	(void)snprintf(out, size, spec, (void *)(uintptr_t)v);
}

static void say_text(char *out, size_t size, const char *spec, const char *v)
{
	(void)snprintf(out, size, spec, v);
}
#pragma GCC diagnostic pop

static void test_as_printf(void **state)
{
	static const char *const lengths[] = {"", "hh", "h", "l", "ll", "j", "z", "t"};
	static const char *const texts[] = {"", "a", "abc",
					    "a longer text than the width is, mostly"};
	char spec[64], said[2048];
	struct ringfield v;

	(void)state;
	for (int i = 0; i < 200000; i++) {
		const char *length = lengths[random_u64() % 8];

		switch (random_u64() % 6) {
		case 0:
			v = i64((int64_t)random_number());
			make_spec(spec, "-+ 0", length, "di"[random_u64() % 2]);
			say_integer(said, sizeof(said), spec, length, v.value);
			break;
		case 1:
			v = number(RING_FIELD_U64, random_number());
			make_spec(spec, "-#0", length, "oxX"[random_u64() % 3]);
			say_integer(said, sizeof(said), spec, length, v.value);
			break;
		case 2:
			v = number(RING_FIELD_U64, random_number());
			make_spec(spec, "-0", length, 'u');
			say_integer(said, sizeof(said), spec, length, v.value);
			break;
		case 3:
			v = f64(random_double());
			make_spec(spec, "-+ #0", "", "aAeEfFgG"[random_u64() % 8]);
			say_double(said, sizeof(said), spec, v.f64);
			break;
		case 4:
			v = number(RING_FIELD_POINTER, random_number());
			make_spec(spec, "-", "", 'p');
			say_pointer(said, sizeof(said), spec, v.value);
			break;
		default:
			v = text(texts[random_u64() % 4]);
			make_spec(spec, "-", "", 's');
			say_text(said, sizeof(said), spec, v.text);
			break;
		}
		expect(spec, &v, 1, said);
	}
}

/* Any bytes as a format, any fields: it ends, and stays within what it was given. */
static void test_any_bytes(void **state)
{
	static const char set[] = "%%%%%%dsfcpxnhljztL*.-+ #0123456789ag\0\xff";
	char format[64], *out;
	struct ringfield v[8];
	bool cut;

	(void)state;
	for (int i = 0; i < 200000; i++) {
		const size_t len = random_u64() % sizeof(format), n = random_u64() % 9,
			     size = random_u64() % 600;

		for (size_t k = 0; k < len; k++)
			format[k] = set[random_u64() % (sizeof(set) - 1)];
		for (size_t k = 0; k < n; k++) {
			v[k] = random_u64() % 2 ? f64(random_double()) : text("text");
			v[k].type = (enum ring_field_type)(1 + random_u64() % 7);
			v[k].value = random_number();
			v[k].text = "text";
			v[k].length = random_u64() % 5;
		}
		out = malloc(size + 1);
		assert_non_null(out);
		assert_true(logformat(out, size, format, len, v, n, &cut) <= size);
		free(out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_to_convert),
		cmocka_unit_test(test_values_in_order),
		cmocka_unit_test(test_stars),
		cmocka_unit_test(test_missing_and_mistyped),
		cmocka_unit_test(test_what_is_no_conversion),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_as_printf),
		cmocka_unit_test(test_any_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
