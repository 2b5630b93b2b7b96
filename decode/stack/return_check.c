// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/stack/return_check.h"

#include <string.h>

/* The length of ff /2 (call r/m64) by its ModRM and SIB bytes, without prefixes; 0: it is none. */
static size_t indirect_length(uint8_t modrm, uint8_t sib)
{
	unsigned mod = modrm >> 6, reg = (modrm >> 3) & 7, rm = modrm & 7;

	if (reg != 2)
		return 0;
	if (mod == 3)
		return 2;
	if (mod == 0 && rm == 5)
		return 6; /* disp32(%rip) */
	if (mod == 0)
		return rm != 4 ? 2 : ((sib & 7) == 5 ? 7 : 3);
	return (rm == 4 ? 3 : 2) + (mod == 1 ? 1u : 4u);
}

bool return_check_follows_call(const uint8_t *before, size_t n)
{
	static const uint8_t lengths[] = {2, 3, 4, 6, 7};

	/* e8 rel32; prefixes (rex, data16, addr32) lie before it and change nothing */
	if (n >= 5 && before[n - 5] == 0xe8)
		return true;
	for (size_t i = 0; i < sizeof(lengths); i++) {
		const uint8_t *p = before + n - lengths[i];

		if (n < lengths[i])
			break;
		if (p[0] == 0xff && indirect_length(p[1], lengths[i] > 2 ? p[2] : 0) == lengths[i])
			return true;
	}
	return false;
}

bool return_check_is_sigreturn(const uint8_t *at, size_t n)
{
	static const uint8_t code[] = {0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05};

	return n >= sizeof(code) && memcmp(at, code, sizeof(code)) == 0;
}
