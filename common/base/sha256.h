/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 (FIPS 180-4), for what is to be known again: neither fast nor hardened against who
 * watches its timing.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32

struct sha256 {
	uint32_t h[8];
	uint64_t bytes;
	uint8_t block[64]; /* of which bytes % 64 are filled */
};

void sha256_begin(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *data, size_t len);
void sha256_end(struct sha256 *s, uint8_t ret[SHA256_BYTES]);
void sha256_of(const void *data, size_t len, uint8_t ret[SHA256_BYTES]);
