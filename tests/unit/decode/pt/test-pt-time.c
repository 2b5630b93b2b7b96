// SPDX-License-Identifier: Apache-2.0
/* Time from TSC, TMA, MTC, CYC and CBR: each case with the numbers that the manual's rules give. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "decode/pt/time.h"

static struct pttime of(uint32_t n, uint32_t d, uint32_t shift, uint32_t nominal)
{
	const struct pttime_config c = {.tsc_ctc_n = n,
					.tsc_ctc_d = d,
					.mtc_shift = shift,
					.nominal_ratio = nominal};
	struct pttime t;

	pttime_init(&t, &c);
	return t;
}

static void test_tsc_alone(void **state)
{
	struct pttime t = of(0, 0, 0, 0);

	(void)state;
	assert_int_equal(pttime_now(&t), 0);
	pttime_mtc(&t, 7);
	pttime_cyc(&t, 100);
	pttime_tma(&t, 1, 1);
	assert_int_equal(pttime_now(&t), 0);
	pttime_tsc(&t, 1000);
	assert_int_equal(pttime_now(&t), 1000);
	/* without what they need the others say nothing */
	pttime_tma(&t, 1, 1);
	pttime_mtc(&t, 9);
	pttime_cyc(&t, 500);
	pttime_cbr(&t, 20);
	pttime_cyc(&t, 500);
	assert_int_equal(pttime_now(&t), 1000);
}

static void test_never_backwards(void **state)
{
	struct pttime t = of(0, 0, 0, 0);

	(void)state;
	pttime_tsc(&t, 1000);
	pttime_tsc(&t, 900);
	assert_int_equal(pttime_now(&t), 1000);
	assert_int_equal(t.backwards, 1);
	/* of two stamps that contradict each other the next one tells which is right */
	pttime_tsc(&t, 950);
	assert_int_equal(pttime_now(&t), 950);
	assert_int_equal(t.ahead, 2);
	pttime_tsc(&t, 1001);
	assert_int_equal(pttime_now(&t), 1001);
}

/* TSC:CTC 100:2, an MTC every 8 ticks: 400 TSC. */
static void test_mtc_with_tma(void **state)
{
	struct pttime t = of(100, 2, 3, 0);

	(void)state;
	pttime_tsc(&t, 100000);
	/* the counter stood at 0x1015, its tick was 30 TSC ago */
	pttime_tma(&t, 0x1015, 30);
	assert_int_equal(pttime_now(&t), 100000);
	/* the next one: 0x1018, which is 3 ticks later */
	pttime_mtc(&t, 0x1018 >> 3 & 0xff);
	assert_int_equal(pttime_now(&t), 100000 - 30 + 3 * 50);
	pttime_mtc(&t, (uint8_t)((0x1018 >> 3) + 1));
	assert_int_equal(pttime_now(&t), 100000 - 30 + 11 * 50);
	/* some are missing; and the 8 bits wrap */
	pttime_mtc(&t, (uint8_t)((0x1018 >> 3) + 250));
	assert_int_equal(pttime_now(&t), 100000 - 30 + (3 + 250 * 8) * 50);
	pttime_mtc(&t, (uint8_t)((0x1018 >> 3) + 260));
	assert_int_equal(pttime_now(&t), 100000 - 30 + (3 + 260 * 8) * 50);
	/* a TSC is right, whatever was counted */
	pttime_tsc(&t, 300000);
	assert_int_equal(pttime_now(&t), 300000);
	pttime_mtc(&t, 0x12); /* without TMA it only says where the counter is */
	assert_int_equal(pttime_now(&t), 300000);
	pttime_mtc(&t, 0x13);
	assert_int_equal(pttime_now(&t), 300000 + 400);
}

/* The TMA's counter is in front of a wrap of what an MTC shows. */
static void test_mtc_wraps_behind_tma(void **state)
{
	struct pttime t = of(4, 1, 0, 0);

	(void)state;
	pttime_tsc(&t, 1000);
	pttime_tma(&t, 0x12fe, 0);
	pttime_mtc(&t, 0x03);
	assert_int_equal(pttime_now(&t), 1000 + 5 * 4);
}

/* An MTC shows bits 12 to 19: TMA has only 16. */
static void test_mtc_above_16_bits(void **state)
{
	struct pttime t = of(1, 2, 12, 0);

	(void)state;
	pttime_tsc(&t, 0xa0018);
	pttime_tma(&t, 0xf020, 8);
	pttime_mtc(&t, 0xa0);
	assert_int_equal(pttime_now(&t), 0xa0018 - 8 + (0x10000 - 0xf020) / 2);
	pttime_mtc(&t, 0xa1);
	assert_int_equal(pttime_now(&t), 0xa0018 - 8 + (0x10000 - 0xf020 + 0x1000) / 2);
}

static void test_cyc_by_cbr(void **state)
{
	struct pttime t = of(0, 0, 0, 24);

	(void)state;
	pttime_tsc(&t, 1000);
	pttime_cbr(&t, 12);
	pttime_cyc(&t, 100);
	assert_int_equal(pttime_now(&t), 1200);
	pttime_cyc(&t, 1);
	assert_int_equal(pttime_now(&t), 1202);
	/* another frequency does not change what was */
	pttime_cbr(&t, 48);
	assert_int_equal(pttime_now(&t), 1202);
	pttime_cyc(&t, 100);
	assert_int_equal(pttime_now(&t), 1252);
	/* an estimate that was too late does not outlive the next stamp */
	pttime_tsc(&t, 1240);
	assert_int_equal(pttime_now(&t), 1240);
	pttime_cyc(&t, 100);
	assert_int_equal(pttime_now(&t), 1290);
}

/* Between two MTC it is seen how long a cycle is: here 400 TSC in 1000 cycles. */
static void test_cyc_calibrated(void **state)
{
	struct pttime t = of(100, 2, 3, 24);

	(void)state;
	pttime_tsc(&t, 100000);
	pttime_cbr(&t, 24);
	pttime_tma(&t, 0x1018, 0);
	pttime_cyc(&t, 1000);
	pttime_mtc(&t, (uint8_t)((0x1018 >> 3) + 1));
	pttime_cyc(&t, 1000);
	pttime_mtc(&t, (uint8_t)((0x1018 >> 3) + 2));
	assert_int_equal(t.tsc, 100800);
	pttime_cyc(&t, 500);
	/* 1000 had been taken for as many TSC */
	assert_int_equal(pttime_now(&t), 101000);
	assert_true(t.ahead > 0);
	pttime_cyc(&t, 500);
	for (unsigned int i = 3; i < 8; i++) {
		pttime_mtc(&t, (uint8_t)((0x1018 >> 3) + i));
		pttime_cyc(&t, 1000);
	}
	assert_int_equal(t.tsc, 100000 + 7 * 400);
	assert_int_equal(pttime_now(&t), 100000 + 8 * 400);
}

/*
 * While the trace is off, or the core sleeps, nothing is counted, and a cycle is no longer for it.
 */
static void test_cyc_stood_still(void **state)
{
	struct pttime t = of(0, 0, 0, 24);

	(void)state;
	pttime_cbr(&t, 24);
	pttime_tsc(&t, 100000);
	pttime_cyc(&t, 100);
	pttime_off(&t);
	pttime_tsc(&t, 200000);
	pttime_cyc(&t, 100);
	assert_int_equal(pttime_now(&t), 200100);

	/*
	 * it was never off, but the packet comes because time went by in which nothing was counted
	 */
	pttime_tsc(&t, 300000);
	pttime_cyc(&t, 100);
	assert_int_equal(pttime_now(&t), 300100);

	/* nor is it longer for the header of a PSB when the trace was off */
	pttime_off(&t);
	pttime_tsc_of_psb(&t, 400000);
	pttime_cyc(&t, 100);
	assert_int_equal(pttime_now(&t), 400100);

	/* up to the header of a PSB all cycles were counted: that is how long each is */
	pttime_tsc_of_psb(&t, 400400);
	pttime_cyc(&t, 100);
	assert_int_equal(pttime_now(&t), 400800);
}

/* A CYC counts from the CYC before it, over an MTC that has none in front. */
static void test_cyc_over_mtc(void **state)
{
	struct pttime t = of(4, 1, 4, 1);

	(void)state;
	pttime_tsc(&t, 0xa0000);
	pttime_tma(&t, 0x18, 8);
	pttime_cbr(&t, 2);
	pttime_mtc(&t, 2);
	assert_int_equal(pttime_now(&t), 0xa0018);
	pttime_cyc(&t, 0x80);
	assert_int_equal(pttime_now(&t), 0xa0058);
	pttime_mtc(&t, 3);
	pttime_mtc(&t, 4);
	assert_int_equal(pttime_now(&t), 0xa0098);
	pttime_cyc(&t, 0xe0);
	assert_int_equal(pttime_now(&t), 0xa00c8);
	/* the core slept: from the last MTC, then; 0xe0 cycles were 0x80 TSC */
	pttime_mtc(&t, 5);
	for (uint8_t i = 6; i < 20; i++)
		pttime_mtc(&t, i);
	pttime_cyc(&t, 0x10);
	assert_int_equal(pttime_now(&t), 0xa0018 + 17 * 0x40 + 9);
}

static void test_lost(void **state)
{
	struct pttime t = of(100, 2, 3, 24);

	(void)state;
	pttime_tsc(&t, 100000);
	pttime_cbr(&t, 24);
	pttime_tma(&t, 0x1018, 0);
	pttime_cyc(&t, 400);
	pttime_mtc(&t, (uint8_t)((0x1018 >> 3) + 1));
	pttime_cyc(&t, 10);
	pttime_lost(&t);
	pttime_cyc(&t, 10);
	/* what was counted around a gap is no measure of a cycle */
	pttime_mtc(&t, (uint8_t)((0x1018 >> 3) + 2));
	assert_int_equal(t.cal_tsc, t.cal_cycles);
	assert_int_equal(pttime_now(&t), 100800);
}

/*
 * Numbers from a stranger: no overflow that a sanitizer sees, and the time still never runs
 * backwards.
 */
static void test_any_numbers(void **state)
{
	uint64_t x = 88172645463325252ull;

	(void)state;
	for (unsigned int round = 0; round < 200; round++) {
		struct pttime t = of((uint32_t)(x >> 7), (uint32_t)(x >> 9),
				     (uint32_t)(x >> 11) & 0x3f, (uint32_t)(x >> 5) & 0xffff);
		uint64_t last = 0;

		for (unsigned int i = 0; i < 1000; i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			switch (x >> 60) {
			case 0:
				pttime_tsc(&t, x & 0xffffffffffffff);
				break;
			case 1:
				pttime_tma(&t, x & 0xffff, x >> 16 & 0x1ff);
				break;
			case 2:
			case 3:
				pttime_cbr(&t, x & 0xff);
				break;
			case 4:
				pttime_lost(&t);
				break;
			case 5:
			case 6:
			case 7:
				pttime_mtc(&t, (uint8_t)x);
				break;
			default:
				pttime_cyc(&t, x >> (x & 63));
				break;
			}
			/* back only to a stamp */
			assert_true(pttime_now(&t) >= last || pttime_now(&t) == t.tsc);
			last = pttime_now(&t);
		}
	}
}

/* A TSC packet lacks the highest byte. */
static void test_whole(void **state)
{
	struct pttime_config c = {0};
	struct pttime t;

	(void)state;
	assert_int_equal(pttime_whole(&c, 5), 5);
	c.reference = 0x0100000000001000;
	assert_int_equal(pttime_whole(&c, 0x2000), 0x0100000000002000);
	assert_int_equal(pttime_whole(&c, 0xffffffffffff00), 0x00ffffffffffff00);
	c.reference = 0x01ffffffffff0000;
	assert_int_equal(pttime_whole(&c, 0x10), 0x0200000000000010);
	c.reference = 0xffffffffffff0000;
	assert_int_equal(pttime_whole(&c, 0x10), 0xff00000000000010);
	c.reference = 0x1000;
	assert_int_equal(pttime_whole(&c, 0xffffffffffff00), 0xffffffffffff00);
	c.reference = 0x0100000000001000;
	pttime_init(&t, &c);
	pttime_tsc(&t, 0x2000);
	assert_int_equal(pttime_now(&t), 0x0100000000002000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tsc_alone),
		cmocka_unit_test(test_never_backwards),
		cmocka_unit_test(test_mtc_with_tma),
		cmocka_unit_test(test_mtc_wraps_behind_tma),
		cmocka_unit_test(test_mtc_above_16_bits),
		cmocka_unit_test(test_cyc_by_cbr),
		cmocka_unit_test(test_cyc_calibrated),
		cmocka_unit_test(test_cyc_stood_still),
		cmocka_unit_test(test_cyc_over_mtc),
		cmocka_unit_test(test_lost),
		cmocka_unit_test(test_any_numbers),
		cmocka_unit_test(test_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
