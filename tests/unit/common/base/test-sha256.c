// SPDX-License-Identifier: Apache-2.0
/* SHA-256 by the examples of FIPS 180 and NIST's vectors, and in pieces. */
#include "common/base/sha256.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void expect(const void *data, size_t len, const char *wanted)
{
	uint8_t digest[SHA256_BYTES];
	char text[2 * SHA256_BYTES + 1];

	sha256_of(data, len, digest);
	for (size_t i = 0; i < sizeof(digest); i++)
		(void)snprintf(text + 2 * i, 3, "%02x", digest[i]);
	assert_string_equal(text, wanted);
}

static void test_vectors(void **state)
{
	const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
	char *million = malloc(1000000);

	assert_non_null(million);
	expect("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	expect("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	expect(two, strlen(two),
	       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
	memset(million, 'a', 1000000);
	expect(million, 1000000,
	       "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
	free(million);
}

/* However it comes, also where the length just fits into the last block, or does not. */
static void test_pieces(void **state)
{
	uint8_t data[300], whole[SHA256_BYTES], pieces[SHA256_BYTES];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7);
	for (size_t len = 0; len <= sizeof(data); len++) {
		for (size_t step = 1; step < 130; step += 21) {
			struct sha256 s;

			sha256_begin(&s);
			for (size_t at = 0; at < len; at += step)
				sha256_add(&s, data + at, len - at < step ? len - at : step);
			sha256_end(&s, pieces);
			sha256_of(data, len, whole);
			assert_memory_equal(pieces, whole, sizeof(whole));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vectors),
		cmocka_unit_test(test_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
