// SPDX-License-Identifier: Apache-2.0
// Logs: each conversion of ISO C becomes a field of its value; texts that are too long, and formats
// that cannot be walked.
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <wchar.h>

#include "client/lib/eventlib.h"
#include "tests/unit/client/lib/ring-read.h"
#include "tests/unit/cmocka_names.h"

static struct ringread *memory;
static struct ringread_record record; /* the last log's */

static int fresh(void **state)
{
	static uint32_t rings = 1;

	process_enter();
	events_enable(false);
	assert_int_equal(ringmem_create(rings++, 256, 256, RING_CLOCK_TSC), 0);
	events_enable(true);
	tracerd_instant(tracerd_intern("claims the ring"));
	return 0;
}

static int done(void **state)
{
	memory = ringread_free(memory);
	return 0;
}

/* Reads the log that was written as the `n`th record since fresh(). */
static void read_log(uint32_t n)
{
	uint64_t i = 2;

	memory = ringread_free(memory);
	memory = ringread_new(ringmem_fd());
	for (uint32_t k = 0; k <= n; k++)
		assert_true(ringread_record(memory, 0, i, &record, &i));
	assert_int_equal(record.kind, RING_LOG);
	assert_int_equal(ringread_entry(memory, 0)->head, i);
}

static void expect(uint16_t type, const void *value, size_t n)
{
	struct ring_field f;
	const uint8_t *at;

	assert_true(ringread_field(&record, &f, &at));
	assert_int_equal(f.name, 0);
	assert_int_equal(f.type, type);
	assert_int_equal(f.bytes, n);
	assert_memory_equal(at, value, n);
}

static void expect_i64(int64_t value)
{
	expect(RING_FIELD_I64, &value, sizeof(value));
}

static void expect_u64(uint64_t value)
{
	expect(RING_FIELD_U64, &value, sizeof(value));
}

static void expect_f64(double value)
{
	expect(RING_FIELD_F64, &value, sizeof(value));
}

static void expect_text(const char *text)
{
	expect(RING_FIELD_TEXT, text, strlen(text));
}

static void expect_end(void)
{
	struct ring_field f;
	const uint8_t *at;

	assert_false(ringread_field(&record, &f, &at));
}

static void expect_format(const char *format, enum tracerd_level level)
{
	assert_string_equal(ringread_name(memory, record.name), format);
	assert_int_equal(record.a, level);
	assert_int_equal(record.b, 0);
}

static void test_format_and_level(void **state)
{
	tracerd_log(TRACERD_ERROR, "nothing but a text, 100%%");
	read_log(0);
	expect_format("nothing but a text, 100%%", TRACERD_ERROR);
	assert_int_equal(record.span, 0);
	tracerd_log(TRACERD_DEBUG, "%d%%%d", 1, 2);
	read_log(1);
	expect_format("%d%%%d", TRACERD_DEBUG);
	expect_i64(1);
	expect_i64(2);
	expect_end();
}

static void test_integers(void **state)
{
	tracerd_log(TRACERD_INFO, "%hhd %hd %d %ld %lld %jd %zd %td %i", (signed char)-1, (short)-2,
		    -3, -4L, -5LL, (intmax_t)-6, (ssize_t)-7, (ptrdiff_t)-8, INT_MIN);
	read_log(0);
	for (int64_t i = -1; i >= -8; i--)
		expect_i64(i);
	expect_i64(INT_MIN);
	expect_end();
	tracerd_log(TRACERD_INFO, "%hhu %hu %u %lu %llx %jX %zo %#08x", (unsigned char)255,
		    (unsigned short)65535, UINT_MAX, ULONG_MAX, ULLONG_MAX, UINTMAX_MAX, SIZE_MAX,
		    7U);
	read_log(1);
	expect_u64(255);
	expect_u64(65535);
	expect_u64(UINT_MAX);
	for (int i = 0; i < 4; i++)
		expect_u64(UINT64_MAX);
	expect_u64(7);
	expect_end();
	tracerd_log(TRACERD_INFO, "%" PRId64 " %" PRIu32 " %c%p", INT64_MIN, UINT32_MAX, 'z',
		    (void *)0x1234);
	read_log(2);
	expect_i64(INT64_MIN);
	expect_u64(UINT32_MAX);
	expect_i64('z');
	expect(RING_FIELD_POINTER, &(uint64_t){0x1234}, 8);
	expect_end();
}

/* printf converts a value to the type of its length modifier; the caller may pass a wider int. */
static void test_integers_are_narrowed(void **state)
{
	int wide = 0x1ff80;

	tracerd_log_slow(NULL, TRACERD_INFO, "%hhd %hd", (signed char)wide, (short)wide);
	read_log(0);
	expect_i64(-128);
	expect_i64(-128);
	expect_end();
}

static void test_floating_point(void **state)
{
	tracerd_log(TRACERD_INFO, "%f %lf %e %G %a %Lf %+.3Lg", 0.5, 1.5, 2.5, 3.5, 4.5, 5.5L,
		    6.5L);
	read_log(0);
	for (double d = 0.5; d < 7; d += 1)
		expect_f64(d);
	expect_end();
	/* more than there are registers for, among others */
	tracerd_log(TRACERD_INFO, "%f %d %f %s %f %d %f %f %d %f %f %d %f %d %f", 0.0, 1, 2.0, "3",
		    4.0, 5, 6.0, 7.0, 8, 9.0, 10.0, 11, 12.0, 13, 14.0);
	read_log(1);
	for (int i = 0; i < 15; i++) {
		if (i == 3)
			expect_text("3");
		else if (i == 1 || i == 5 || i == 8 || i == 11 || i == 13)
			expect_i64(i);
		else
			expect_f64(i);
	}
	expect_end();
}

static void test_width_and_precision_are_fields(void **state)
{
	tracerd_log(TRACERD_INFO, "%*d %-*.*f %.*s %5.3d", 10, 1, -4, 2, 3.5, 3, "abcdef", 9);
	read_log(0);
	expect_i64(10);
	expect_i64(1);
	expect_i64(-4);
	expect_i64(2);
	expect_f64(3.5);
	expect_i64(3);
	expect_text("abc");
	expect_i64(9);
	expect_end();
}

/* A text with a precision need not have an end: it is not read behind it. */
static void test_text_without_an_end(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			   0),
	     *text;

	assert_ptr_not_equal(pages, MAP_FAILED);
	assert_int_equal(mprotect(pages + page, page, PROT_NONE), 0);
	text = pages + page - 5;
	memcpy(text, "edged", 5);
	tracerd_log(TRACERD_INFO, "%.5s %.*s %.0s %.s %.*s", text, 3, text + 2, text, text, -1,
		    "all");
	read_log(0);
	expect_text("edged");
	expect_i64(3);
	expect_text("ged");
	expect_text("");
	expect_text("");
	expect_i64(-1);
	expect_text("all");
	expect_end();
	(void)munmap(pages, 2 * page);
}

static void test_null_and_wide_texts(void **state)
{
	const char *volatile null = NULL;
	wchar_t many[400];

	tracerd_log_slow(NULL, TRACERD_INFO, "%s %ls %lc %.4ls", null, L"a\u00e4\u20ac\U0001f600",
			 (wint_t)0x20ac, L"\u20ac\u20ac");
	read_log(0);
	expect_text("(null)");
	expect_text("a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
	expect_text("\xe2\x82\xac");
	/* whole characters only, as printf does */
	expect_text("\xe2\x82\xac");
	expect_end();
	for (int i = 0; i < 399; i++)
		many[i] = 0x20ac;
	many[399] = 0;
	tracerd_log(TRACERD_INFO, "%ls %d", many, 5);
	read_log(1);
	{
		struct ring_field f;
		const uint8_t *at;

		assert_true(ringread_field(&record, &f, &at));
		assert_int_equal(f.type, RING_FIELD_TEXT_CUT);
		assert_uint_in_range(f.bytes, 200, 256);
		assert_memory_equal(at, "\xe2\x82\xac\xe2\x82\xac", 6);
	}
	expect_i64(5);
	expect_end();
	assert_int_equal(memory->header.lost_long, 1);
}

static void test_long_texts_are_cut(void **state)
{
	static char a[3000], b[3000];
	struct ring_field f;
	const uint8_t *at;

	memset(a, 'a', sizeof(a) - 1);
	memset(b, 'b', sizeof(b) - 1);
	tracerd_log(TRACERD_INFO, "%s %d %s %s", a, 1, b, "short");
	read_log(0);
	assert_int_equal(record.span, RING_SPAN_MAX);
	assert_true(ringread_field(&record, &f, &at));
	assert_int_equal(f.type, RING_FIELD_TEXT_CUT);
	/* 1120 less three heads, a number and 8 bytes, for two */
	assert_int_equal(f.bytes, 536);
	assert_memory_equal(at, a, f.bytes);
	expect_i64(1);
	assert_true(ringread_field(&record, &f, &at));
	assert_int_equal(f.type, RING_FIELD_TEXT_CUT);
	assert_int_equal(f.bytes, 536);
	assert_memory_equal(at, b, f.bytes);
	expect_text("short");
	expect_end();
	/* one that just fits is whole */
	a[RING_PAYLOAD_MAX - 8] = 0;
	tracerd_log(TRACERD_INFO, "%s", a);
	read_log(1);
	expect_text(a);
	expect_end();
	assert_int_equal(memory->header.lost_long, 1);
}

/* What cannot be walked: the format is the text, and the arguments are left alone. */
static void test_other_formats_are_texts(void **state)
{
	static const char *const formats[] = {"%n %d", "%d and then %n",
					      "%m",    "%1$d",
					      "%Ld",   "%hs",
					      "%",     "%d %",
					      "%5%",   "%lp",
					      "%k",    "%S",
					      "%hf",   "%wd",
					      "%-",    "%.",
					      "%l",    ""};
	char *unknown = (char *)16; /* nothing may look at it */
	static char endless[RING_MAX_NAME + 2];

	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
		fresh(NULL);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
		tracerd_log_slow(NULL, TRACERD_INFO, formats[i], unknown, unknown, unknown);
		read_log(0);
		assert_int_equal(record.name, 0);
		expect_text(formats[i]);
		expect_end();
		assert_int_equal(memory->header.lost_long, 0);
	}
	/* a format that is longer than a name */
	memset(endless, '.', sizeof(endless) - 1);
	endless[0] = '%';
	endless[1] = 's';
	fresh(NULL);
	tracerd_log_slow(NULL, TRACERD_INFO, endless, unknown);
	read_log(0);
	assert_int_equal(record.name, 0);
	expect_text(endless);
	expect_end();
	/* its values are lost, of which one without any has none */
	assert_int_equal(memory->header.lost_long, 1);
	endless[0] = '.';
	tracerd_log_slow(NULL, TRACERD_INFO, endless);
#pragma GCC diagnostic pop
	read_log(1);
	expect_text(endless);
	expect_end();
	assert_int_equal(memory->header.lost_long, 1);
}

static void vlog(const char *format, ...) __attribute__((__format__(__printf__, 1, 2)));
static void vlog(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	tracerd_vlog(TRACERD_WARNING, format, args);
	va_end(args);
}

static void test_vlog(void **state)
{
	errno = 4711;
	vlog("vlog %s %d", "text", 3);
	assert_int_equal(errno, 4711);
	read_log(0);
	expect_format("vlog %s %d", TRACERD_WARNING);
	expect_text("text");
	expect_i64(3);
	expect_end();
}

/* A literal is looked up once for each place, and has the same number at all. */
static void test_formats_are_names(void **state)
{
	tracerd_name names[4];
	const char *volatile not_literal = "place %d";

	for (int i = 0; i < 4; i++) {
		if (i < 2)
			tracerd_log(TRACERD_INFO, "place %d", i);
		else if (i == 2)
			tracerd_log(TRACERD_INFO, "place %d", i);
		else
			vlog("place %d", i);
		read_log((uint32_t)i);
		names[i] = record.name;
		expect_i64(i);
	}
	assert_int_equal(names[0], names[1]);
	assert_int_equal(names[0], names[2]);
	assert_int_equal(names[0], names[3]);
	assert_int_equal(names[0], tracerd_intern(not_literal));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_format_and_level, fresh, done),
		cmocka_unit_test_setup_teardown(test_integers, fresh, done),
		cmocka_unit_test_setup_teardown(test_integers_are_narrowed, fresh, done),
		cmocka_unit_test_setup_teardown(test_floating_point, fresh, done),
		cmocka_unit_test_setup_teardown(test_width_and_precision_are_fields, fresh, done),
		cmocka_unit_test_setup_teardown(test_text_without_an_end, fresh, done),
		cmocka_unit_test_setup_teardown(test_null_and_wide_texts, fresh, done),
		cmocka_unit_test_setup_teardown(test_long_texts_are_cut, fresh, done),
		cmocka_unit_test_setup_teardown(test_other_formats_are_texts, fresh, done),
		cmocka_unit_test_setup_teardown(test_vlog, fresh, done),
		cmocka_unit_test_setup_teardown(test_formats_are_names, fresh, done),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
