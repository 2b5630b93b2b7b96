// SPDX-License-Identifier: Apache-2.0
/* Names of C, C++ and both schemes of Rust; names that would print for ever; names that are bytes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/cleanup.h"
#include "decode/object/demangle.h"

static const struct {
	const char *in, *out;
} vectors[] = {
	{"main", "main"},
	{"", ""},
	{"_start", "_start"},
	{"__libc_start_main", "__libc_start_main"},
	{"_ZN3foo3barEv", "foo::bar"},
	{"_ZN3foo3barEi.cold", "foo::bar"},
	{"_Z3addIdET_S0_S0_", "add<double>"},
	{"_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back"},
	{"_ZN3app6WorkerD0Ev", "app::Worker::~Worker"},
	{"_ZN3app6WorkerixEm", "app::Worker::operator[]"},
	{"_ZTV3Foo", "vtable for Foo"},
	{"_ZZ4mainENKUlvE_clEv", "main::{lambda()#1}::operator()"},
	/* Rust, legacy: the hash goes, the escapes are resolved */
	{"_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"},
	{"_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$"
	 "3bar17h930b740aa94f1d3aE",
		"<Test + 'static as foo::Bar<Test>>::bar"},
	/* Rust, v0 */
	{"_RNvC6_123foo3bar", "123foo::bar"},
	{"_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"},
	{"_RNvMNtCs4fqI2P2rA04_4core3numh4name", "<u8>::name"},
	{"_RINvNtC3std3mem8align_ofdE", "std::mem::align_of::<f64>"},
	{"_RNCNvC4main4main0", "main::main::{closure#0}"},
	{"_RNqCs4fqI2P2rA04_11utf8_identsu30____7hkackfecea1cbdathfdh9hlq6y",
		"utf8_idents::"
		"\xe1\x83\xa1\xe1\x83\x90\xe1\x83\xad\xe1\x83\x9b\xe1\x83\x94\xe1\x83\x9a\xe1\x83"
		"\x90\xe1\x83\x93_"
		"\xe1\x83\x92\xe1\x83\x94\xe1\x83\x9b\xe1\x83\xa0\xe1\x83\x98\xe1\x83\x94\xe1\x83"
		"\x9a\xe1\x83\x98_"
		"\xe1\x83\xa1\xe1\x83\x90\xe1\x83\x93\xe1\x83\x98\xe1\x83\x9a\xe1\x83\x98"},
	/* what only begins like a mangled name stays */
	{"_Zebra", "_Zebra"},
	{"_R", "_R"},
	{"_ZN", "_ZN"},
	/* bytes that are no text */
	{"a\nb\033[31m", "a\\x0ab\\x1b[31m"},
	{"\xff\xfe", "\\xff\\xfe"},
};

static void test_vectors(void **state)
{
	char out[DEMANGLE_MAX_OUT * 4 + 1];
	int bad = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(vectors); i++) {
		size_t n = demangle_name(vectors[i].in, strlen(vectors[i].in), out, sizeof(out));

		assert_int_equal(n, strlen(out));
		if (strcmp(out, vectors[i].out) != 0) {
			print_error(
				"%s: \"%s\" and not \"%s\"\n", vectors[i].in, out, vectors[i].out);
			bad++;
		}
	}
	assert_int_equal(bad, 0);
}

/* Each nesting repeats the type before it: forty of them stand for more text than any disk holds.
 */
static void test_bombs(void **state)
{
	char in[DEMANGLE_MAX_IN], out[DEMANGLE_MAX_OUT * 4 + 1];
	size_t n = 0;

	(void)state;
	n += (size_t)snprintf(in + n, sizeof(in) - n, "_Z1fSt4pairIiiE");
	for (char c = '0'; c <= '9'; c++)
		n += (size_t)snprintf(in + n, sizeof(in) - n, "St4pairIS%c_S%c_E", c, c);
	for (char c = 'A'; c <= 'Z'; c++)
		n += (size_t)snprintf(in + n, sizeof(in) - n, "St4pairIS%c_S%c_E", c, c);
	assert_true(demangle_name(in, n, out, sizeof(out)) <= DEMANGLE_MAX_OUT);

	/* nesting without end */
	memset(in, 'P', sizeof(in));
	memcpy(in, "_Z1f", 4);
	assert_true(demangle_name(in, sizeof(in), out, sizeof(out)) > 0);
	memset(in, 'R', sizeof(in));
	memcpy(in, "_RYYYY", 6);
	memset(in + 6, 'Y', sizeof(in) - 6);
	assert_true(demangle_name(in, sizeof(in), out, sizeof(out)) > 0);
	memcpy(in, "_RIC1aRB0_E", 12);
	(void)demangle_name(in, 11, out, sizeof(out));

	/* too long to be looked at: shown as it is, cut */
	memset(in, 'a', sizeof(in));
	assert_int_equal(demangle_name(in, sizeof(in), out, sizeof(out)), DEMANGLE_MAX_OUT);
}

/* No damage of a name may do more than give another name. */
static void test_damaged(void **state)
{
	char in[512], out[DEMANGLE_MAX_OUT * 4 + 1];
	uint32_t seed = 1;

	(void)state;
	for (unsigned i = 0; i < 200000; i++) {
		const char *from = vectors[i % ARRAY_SIZE(vectors)].in;
		size_t n = strlen(from);

		memcpy(in, from, n);
		for (unsigned k = 0; k < 3 && n > 2; k++) {
			seed = seed * 1664525 + 1013904223;
			in[2 + (seed >> 8) % (n - 2)] =
				"_ZRNSIETFXY0123456789abcuKCvMsBLp"[(seed >> 20) % 33];
		}
		(void)demangle_name(in, n, out, sizeof(out));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vectors),
		cmocka_unit_test(test_bombs),
		cmocka_unit_test(test_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
