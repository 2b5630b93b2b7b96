// SPDX-License-Identifier: Apache-2.0
/*
 * Packets of Intel PT one by one, as the manual lays them out: whole, cut at every byte, and bytes
 * that are none. libipt's own dumps are compared by tests/system/pt-conformance.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "decode/pt/packet.h"
#include "tests/unit/cmocka_names.h"

struct vector {
	uint8_t n, bytes[16];
	struct ptpacket want;
};

#define IS(t, ...) {.type = (t), __VA_ARGS__}

/* clang-format off */
static const struct vector vectors[] = {
	{1, {0x00}, IS(PT_PAD)},
	{16, {2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82}, IS(PT_PSB)},
	{2, {2, 0x23}, IS(PT_PSBEND)},
	{2, {2, 0xf3}, IS(PT_OVF)},
	{1, {0x04}, IS(PT_TNT, .count = 1, .value = 0)},
	{1, {0x06}, IS(PT_TNT, .count = 1, .value = 1)},
	{1, {0xfe}, IS(PT_TNT, .count = 6, .value = 0x3f)},
	{1, {0x94}, IS(PT_TNT, .count = 6, .value = 0x0a)},
	{8, {2, 0xa3, 0, 0, 0, 0, 0, 0x80}, IS(PT_TNT, .count = 47, .value = 0)},
	{8, {2, 0xa3, 3, 0, 0, 0, 0, 0x00}, IS(PT_TNT, .count = 1, .value = 1)},
	{8, {2, 0xa3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, IS(PT_TNT, .count = 47, .value = 0x7fffffffffff)},
	{1, {0x0d}, IS(PT_TIP, .ip = PT_IP_NONE)},
	{3, {0x2d, 0x34, 0x12}, IS(PT_TIP, .ip = PT_IP_UPDATE_16, .value = 0x1234)},
	{5, {0x4d, 0x78, 0x56, 0x34, 0x12}, IS(PT_TIP, .ip = PT_IP_UPDATE_32, .value = 0x12345678)},
	{7, {0x71, 1, 2, 3, 4, 5, 0x86}, IS(PT_PGE, .ip = PT_IP_SIGN_48, .value = 0x860504030201)},
	{7, {0x81, 1, 2, 3, 4, 5, 6}, IS(PT_PGD, .ip = PT_IP_UPDATE_48, .value = 0x060504030201)},
	{9, {0xdd, 1, 2, 3, 4, 5, 6, 7, 8}, IS(PT_FUP, .ip = PT_IP_FULL, .value = 0x0807060504030201)},
	{8, {0x19, 1, 2, 3, 4, 5, 6, 7}, IS(PT_TSC, .value = 0x07060504030201)},
	{7, {2, 0x73, 0x34, 0x12, 0, 0x56, 0x01}, IS(PT_TMA, .value = 0x1234, .extra = 0x156)},
	{7, {2, 0x73, 0x34, 0x12, 1, 0x56, 0x01}, IS(PT_PAD, .value = 0x1234, .extra = 0x156)},
	{2, {0x59, 0xab}, IS(PT_MTC, .value = 0xab)},
	{1, {0xfb}, IS(PT_CYC, .value = 0x1f)},
	{2, {0x07, 0x02}, IS(PT_CYC, .value = 1 << 5)},
	{3, {0x0f, 0x03, 0xfe}, IS(PT_CYC, .value = 1 | 1 << 5 | 127 << 12)},
	{4, {2, 3, 0x2a, 0}, IS(PT_CBR, .value = 0x2a)},
	{2, {0x99, 0x01}, IS(PT_MODE_EXEC, .value = 1)},
	{2, {0x99, 0x06}, IS(PT_MODE_EXEC, .value = 6)},
	{2, {0x99, 0x21}, IS(PT_MODE_TSX, .value = 1)},
	{2, {0x99, 0x22}, IS(PT_MODE_TSX, .value = 2)},
	{8, {2, 0x43, 0x01, 0x05, 0, 0, 0, 0}, IS(PT_PIP, .value = 0x280ull << 5, .extra = 1)},
	{7, {2, 0xc8, 1, 2, 0, 0, 0}, IS(PT_VMCS, .value = 0x201000)},
	{2, {2, 0x83}, IS(PT_STOP)},
	{11, {2, 0xc3, 0x88, 1, 2, 3, 4, 5, 6, 7, 8}, IS(PT_MNT, .value = 0x0807060504030201)},
	{6, {2, 0x12, 1, 2, 3, 4}, IS(PT_PTW, .value = 0x04030201)},
	{10, {2, 0xb2, 1, 2, 3, 4, 5, 6, 7, 8}, IS(PT_PTW, .value = 0x0807060504030201, .ip_follows = true)},
	{2, {2, 0x62}, IS(PT_EXSTOP)},
	{2, {2, 0xe2}, IS(PT_EXSTOP, .ip_follows = true)},
	{10, {2, 0xc2, 5, 0, 0, 0, 1, 0, 0, 0}, IS(PT_MWAIT, .value = 5, .extra = 1)},
	{4, {2, 0x22, 0x08, 0x0f}, IS(PT_PWRE, .value = 0x0f08)},
	{7, {2, 0xa2, 0x55, 1, 0, 0, 0}, IS(PT_PWRX, .value = 0x155)},
	{4, {2, 0x13, 0x81, 0x0e}, IS(PT_CFE, .value = 1, .extra = 14, .ip_follows = true)},
	{11, {2, 0x53, 0x00, 1, 2, 3, 0, 0, 0, 0, 0}, IS(PT_EVD, .value = 0x030201)},
	{3, {2, 0x63, 0x85}, IS(PT_BBP)},
	{2, {2, 0x33}, IS(PT_BEP)},
	{2, {2, 0xb3}, IS(PT_BEP, .ip_follows = true)},
	{3, {0xd9, 0x20, 0x03}, IS(PT_TRIG, .value = 3)},
	{5, {0xd9, 0xc0, 0x1a, 0x02, 0x01}, IS(PT_TRIG, .value = 0x1a, .extra = 0x102, .ip_follows = true)},
};
/* clang-format on */

/* In memory that ends with it: a read past its end is seen. */
static int read_exactly(const uint8_t *bytes, size_t n, struct ptpacket *ret)
{
	uint8_t *copy = malloc(n ? n : 1);
	int r;

	assert_non_null(copy);
	if (n)
		memcpy(copy, bytes, n);
	r = ptpacket_read(copy, copy + n, ret);
	free(copy);
	return r;
}

static void test_each(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		const struct vector *v = &vectors[i];
		struct ptpacket pk;

		if (read_exactly(v->bytes, v->n, &pk) != 0)
			fail_msg("vector %zu is no packet", i);
		if (pk.type != v->want.type || pk.length != v->n || pk.value != v->want.value ||
		    pk.extra != v->want.extra || pk.count != v->want.count || pk.ip != v->want.ip ||
		    pk.ip_follows != v->want.ip_follows)
			fail_msg("vector %zu: type %s, length %u, value %lx, %lx", i,
				 ptpacket_name(pk.type), pk.length, pk.value, pk.extra);
		for (size_t n = 0; n < v->n; n++)
			if (read_exactly(v->bytes, n, &pk) != PTPACKET_E_CUT)
				fail_msg("vector %zu cut at %zu", i, n);
	}
}

static void test_bad(void **state)
{
	static const uint8_t bad[][16] = {
		{0x02, 0x00},
		{0x02, 0xff},
		{0x05},
		{0x09},
		{0x15},
		{0x25},
		{0xad, 1},
		{0xed, 1},
		{0xf1},
		{0x99, 0x40},
		{0x99, 0xff},
		{0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82,
		 0x02, 0x83},
		{0x02, 0xa3, 0, 0, 0, 0, 0, 0},
		{0x02, 0xc3, 0x89},
		{0xd9, 0x01},
		{0xd9, 0x5f, 0, 0, 0},
		/* cycles of more than 64 bits */
		{0x07, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct ptpacket pk;

		if (read_exactly(bad[i], 16, &pk) != PTPACKET_E_BAD)
			fail_msg("%zu is a packet", i);
	}
}

/* Whatever the bytes: a packet has a length, and lies within. */
static void test_any_bytes(void **state)
{
	uint64_t x = 88172645463325252ull;

	(void)state;
	for (unsigned int i = 0; i < 200000; i++) {
		uint8_t b[20];
		struct ptpacket pk;
		size_t n;

		for (size_t k = 0; k < sizeof(b); k += 4) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			memcpy(b + k, &x, 4);
		}
		if (i & 1)
			b[0] = 2;
		n = x >> 33 & 15;
		switch (read_exactly(b, n, &pk)) {
		case 0:
			assert_uint_in_range(pk.length, 1, n);
			assert_true(pk.type < _PT_PACKET_MAX && pk.count <= 47);
			assert_string_not_equal(ptpacket_name(pk.type), "?");
			break;
		case PTPACKET_E_CUT:
		case PTPACKET_E_BAD:
			break;
		default:
			fail();
		}
	}
}

static void test_addresses(void **state)
{
	static const struct {
		uint8_t ip;
		uint64_t value, want;
	} steps[] = {
		{PT_IP_FULL, 0xffff800012345678, 0xffff800012345678},
		{PT_IP_UPDATE_16, 0x9abc, 0xffff800012349abc},
		{PT_IP_UPDATE_32, 0xdeadbeef, 0xffff8000deadbeef},
		{PT_IP_UPDATE_48, 0x111122223333, 0xffff111122223333},
		{PT_IP_SIGN_48, 0x7fff00000001, 0x00007fff00000001},
		{PT_IP_SIGN_48, 0x800000000001, 0xffff800000000001},
	};
	struct ptpacket pk = {.type = PT_TIP};
	uint64_t ip = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		pk.ip = steps[i].ip;
		pk.value = steps[i].value;
		assert_true(ptpacket_apply_ip(&pk, &ip));
		assert_int_equal(ip, steps[i].want);
	}
	pk.ip = PT_IP_NONE;
	assert_false(ptpacket_apply_ip(&pk, &ip));
	assert_int_equal(ip, steps[5].want);
}

static void test_find_psb(void **state)
{
	uint8_t bytes[64] = {0};

	(void)state;
	assert_null(ptpacket_find_psb(bytes, bytes));
	assert_null(ptpacket_find_psb(bytes, bytes + 64));
	for (size_t i = 21; i < 37; i += 2) {
		bytes[i] = 2;
		bytes[i + 1] = 0x82;
	}
	assert_ptr_equal(ptpacket_find_psb(bytes, bytes + 64), bytes + 21);
	assert_ptr_equal(ptpacket_find_psb(bytes + 21, bytes + 37), bytes + 21);
	assert_null(ptpacket_find_psb(bytes + 22, bytes + 64));
	assert_null(ptpacket_find_psb(bytes, bytes + 36));
}

/* An overflow within a packet of cycles (erratum SKD007). */
static void test_skd007(void **state)
{
	static const uint8_t hidden[] = {0xf7, 0x02, 0xf3, 0x00}, cycles[] = {0xf7, 0x02, 0xf2};
	struct ptpacket pk;

	(void)state;
	assert_int_equal(ptpacket_read(hidden, hidden + 4, &pk), 0);
	assert_int_equal(pk.type, PT_CYC);
	assert_true(ptpacket_is_skd007(&pk, hidden, hidden + 4));
	assert_false(ptpacket_is_skd007(&pk, hidden, hidden + 2));
	assert_int_equal(ptpacket_read(cycles, cycles + 3, &pk), 0);
	assert_false(ptpacket_is_skd007(&pk, cycles, cycles + 3));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_any_bytes),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_find_psb),
		cmocka_unit_test(test_skd007),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
