// SPDX-License-Identifier: Apache-2.0
// A log's line, from the program through the memory to the decoder, is what printf() would have
// made of it.
#include <float.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "client/lib/eventlib.h"
#include "decode/rings/log_format.h"
#include "tests/unit/client/lib/ring-read.h"
#include "tests/unit/cmocka_names.h"

#define SLOTS 64u
#define ROUNDS 20000

static uint64_t seed = 88172645463325252ULL;

static uint64_t random_u64(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static uint32_t random_below(uint32_t n)
{
	return (uint32_t)(random_u64() >> 33) % n;
}

static int setup(void **state)
{
	process_enter();
	assert_int_equal(ringmem_create(1, SLOTS, RING_MAX_NAMES, RING_CLOCK_TSC), 0);
	events_enable(true);
	return 0;
}

/* The slots are read where they are: all is on one thread. */
static size_t last_line(const char *format, char *ret, size_t size)
{
	struct ringread r = {.bytes = (uint8_t *)ringmem_header()};
	struct ringread_record record;
	struct ringfield values[RINGFIELD_MAX];
	static uint64_t at = 1; /* behind the thread's own record */
	size_t n = 0, pos = 0;
	bool broken = false, cut;

	memcpy(&r.header, r.bytes, sizeof(r.header));
	r.geometry = (struct ring_geometry){.rings = r.header.rings, .slots = r.header.slots,
		.names_max = r.header.names_max, .text_bytes = r.header.text_bytes};
	assert_true(ring_layout(&r.geometry));
	assert_true(ringread_record(&r, 0, at, &record, &at));
	assert_int_equal(record.kind, RING_LOG);
	assert_string_equal(ringread_name(&r, record.name), format);
	while (ringfield_next(record.payload, record.n, &pos, &values[n], &broken))
		n++;
	assert_false(broken);
	n = logformat(ret, size, format, strlen(format), values, n, &cut);
	assert_false(cut);
	return n;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void expect_line(const char *format, ...)
{
	char want[2048], got[2048];
	va_list args, again;
	size_t n;
	int k;

	va_start(args, format);
	va_copy(again, args);
	k = vsnprintf(want, sizeof(want), format, args);
	tracerd_vlog(TRACERD_INFO, format, again);
	va_end(again);
	va_end(args);
	assert_uint_in_range(k, 0, sizeof(want) - 1);
	n = last_line(format, got, sizeof(got));
	if (n != (size_t)k || memcmp(got, want, n) != 0)
		fail_msg("\"%s\" became \"%.*s\", printf makes \"%s\"", format, (int)n, got, want);
}
#pragma GCC diagnostic pop

/* "%-+08.3" or the like; few widths, so that there are not more formats than names. */
static void random_spec(char *ret, size_t size, bool precision)
{
	static const char *const flags[] = {"", "-", "+", " ", "0", "#", "-#", "+0", "#0", "- "};
	static const char *const widths[] = {"", "1", "7", "20"};
	static const char *const precisions[] = {"", "", ".", ".0", ".1", ".5"};

	(void)snprintf(ret, size, "<%%%s%s%s", flags[random_below(10)], widths[random_below(4)],
		precision ? precisions[random_below(6)] : "");
}

static uint64_t random_number(void)
{
	static const uint64_t special[] = {
		0, 1, UINT64_MAX, INT64_MAX, (uint64_t)INT64_MIN, 0x80000000, 0xff, 0x8000};

	return random_below(3) ? random_u64() >> random_below(64) : special[random_below(8)];
}

static double random_double(void)
{
	static const double special[] = {0.0,     -0.0,   1.0,  -1.5, DBL_MAX,
					 DBL_MIN, 5e-324, 1e22, 0.1,  123456.789};
	uint64_t bits = random_u64();
	double d;

	if (random_below(2))
		return special[random_below(10)];
	if (random_below(8) == 0)
		return random_below(2) ? (double)INFINITY : (double)-INFINITY;
	memcpy(&d, &bits, sizeof(d));
	return isnan(d) || fabs(d) > 1e30 ? 2.5 : d;
}

static void test_integers(void **state)
{
	static const char *const ints[] = {"hhd", "hd", "d", "i", "hhu", "hu",
					   "u",   "x",  "X", "o", "hhx", "c"};
	static const char *const longs[] = {"ld", "lu", "lx", "lo", "lld", "llX",
					    "jd", "ju", "zd", "zu", "td",  "tx"};
	char format[64];

	for (int i = 0; i < ROUNDS; i++) {
		size_t n, which = random_below(24);

		random_spec(format, sizeof(format) - 8, which != 11);
		n = strlen(format);
		if (which < 12) {
			(void)snprintf(format + n, sizeof(format) - n, "%s>", ints[which]);
			expect_line(format, (int)random_number());
		} else {
			(void)snprintf(format + n, sizeof(format) - n, "%s>", longs[which - 12]);
			expect_line(format, random_number());
		}
	}
}

static void test_doubles(void **state)
{
	char format[64];

	for (int i = 0; i < ROUNDS; i++) {
		char kind = "fFeEgGaA"[random_below(8)];
		double d = random_double();
		size_t n;

		random_spec(format, sizeof(format) - 8, true);
		n = strlen(format);
		(void)snprintf(format + n, sizeof(format) - n, "%s%c>", random_below(3) ? "" : "l",
			       kind);
		expect_line(format, d);
		/* a hexadecimal long double has digits of its own */
		if (kind == 'a' || kind == 'A')
			continue;
		(void)snprintf(format + n, sizeof(format) - n, "L%c>", kind);
		expect_line(format, (long double)d);
	}
}

static void test_texts_and_pointers(void **state)
{
	static const char *const texts[] = {"", "a", "abcdef", "a longer text than most of them",
					    "\xc3\xa4\xff"};
	static const char *const widths[] = {"", "-", "1", "-7", "20"};
	static const char *const precisions[] = {"", ".", ".0", ".1", ".5"};
	char format[64];

	for (int i = 0; i < ROUNDS / 10; i++) {
		const char *width = widths[random_below(5)],
			   *precision = precisions[random_below(5)];

		(void)snprintf(format, sizeof(format), "<%%%s%ss>", width, precision);
		expect_line(format, texts[random_below(5)]);
		(void)snprintf(format, sizeof(format), "<%%%s%sls>", width, precision);
		expect_line(format, random_below(2) ? L"" : L"wide");
		(void)snprintf(format, sizeof(format), "<%%%slc>", width);
		expect_line(format, (wint_t)('a' + random_below(26)));
		(void)snprintf(format, sizeof(format), "<%%%sp>", width);
		expect_line(format, (void *)(uintptr_t)random_number());
	}
}

static void test_stars_and_many(void **state)
{
	for (int i = 0; i < ROUNDS / 10; i++) {
		int width = (int)random_below(60) - 30, precision = (int)random_below(20) - 5;

		expect_line("<%*d|%.*d|%*.*f>", width, 17, precision, 42, width, precision,
			    random_double());
		expect_line("<%.*s|%*s|%-*c>", precision, "some text", width, "x", width, 'y');
		expect_line("100%% %s=%d, %s=%g%%, %lu of %zu at %p: %hhx %c %s", "a", 1, "b",
			    random_double(), (unsigned long)random_u64(), (size_t)random_u64(),
			    (void *)0x7f0000001000, 0x1ff, 'c', "end");
		expect_line("%d%d%d%d%d%d%d%d%d%d%d%d", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
		expect_line("%f%d%f%d%f%d%f%d%f%d%f%d%f%d%f%d%f%d", 1.0, 1, 2.0, 2, 3.0, 3, 4.0, 4,
			    5.0, 5, 6.0, 6, 7.0, 7, 8.0, 8, 9.0, 9);
		expect_line("no conversion at all");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_integers),
		cmocka_unit_test(test_doubles),
		cmocka_unit_test(test_texts_and_pointers),
		cmocka_unit_test(test_stars_and_many),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
