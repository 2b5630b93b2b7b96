// SPDX-License-Identifier: Apache-2.0
#include "decode/pt/packet.h"

#include <string.h>

static uint64_t load(const uint8_t *p, size_t n)
{
	uint64_t v = 0;

	for (size_t i = 0; i < n; i++)
		v |= (uint64_t)p[i] << 8 * i;
	return v;
}

static int short_tnt(uint8_t byte, struct ptpacket *ret)
{
	unsigned int top = 31u - (unsigned int)__builtin_clz(byte); /* the stop bit */

	ret->type = PT_TNT;
	ret->length = 1;
	ret->count = (uint8_t)(top - 1);
	ret->value = (uint64_t)(byte >> 1) & ((1u << (top - 1)) - 1);
	return 0;
}

static int long_tnt(const uint8_t *p, struct ptpacket *ret)
{
	uint64_t v = load(p + 2, 6);
	unsigned int top;

	if (v == 0)
		return PTPACKET_E_BAD;
	top = 63u - (unsigned int)__builtin_clzll(v);
	ret->type = PT_TNT;
	ret->count = (uint8_t)top;
	ret->value = v & ((1ull << top) - 1);
	return 0;
}

/* Packets that begin with 02: what the second byte says. */
static const struct extended {
	uint8_t second, type, length;
} extended[] = {
	{0x82, PT_PSB, 16},   {0x23, PT_PSBEND, 2}, {0xf3, PT_OVF, 2},    {0xa3, PT_TNT, 8},
	{0x73, PT_TMA, 7},    {0x03, PT_CBR, 4},    {0x43, PT_PIP, 8},    {0xc8, PT_VMCS, 7},
	{0x83, PT_STOP, 2},   {0xc3, PT_MNT, 11},   {0x62, PT_EXSTOP, 2}, {0xe2, PT_EXSTOP, 2},
	{0xc2, PT_MWAIT, 10}, {0x22, PT_PWRE, 4},   {0xa2, PT_PWRX, 7},   {0x13, PT_CFE, 4},
	{0x53, PT_EVD, 11},   {0x63, PT_BBP, 3},    {0x33, PT_BEP, 2},    {0xb3, PT_BEP, 2},
	{0x12, PT_PTW, 6},    {0x32, PT_PTW, 10},   {0x92, PT_PTW, 6},    {0xb2, PT_PTW, 10},
};

static int extended_payload(const uint8_t *p, struct ptpacket *ret)
{
	static const uint8_t psb[PTPACKET_PSB_BYTES] = {2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82,
							2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82};

	switch (ret->type) {
	case PT_PSB:
		return memcmp(p, psb, sizeof(psb)) == 0 ? 0 : PTPACKET_E_BAD;
	case PT_TNT:
		return long_tnt(p, ret);
	case PT_TMA:
		ret->value = load(p + 2, 2);
		ret->extra = load(p + 5, 2) & 0x1ff;
		/*
		 * Some processors corrupt it (erratum SKZ84): reserved bits show it, and it says
		 * nothing then.
		 */
		if (p[4] || p[6] & 0xfe)
			ret->type = PT_PAD;
		return 0;
	case PT_CBR:
		ret->value = p[2];
		return 0;
	case PT_PIP:
		ret->value = load(p + 2, 6);
		ret->extra = ret->value & 1;
		ret->value = ret->value >> 1 << 5;
		return 0;
	case PT_VMCS:
		ret->value = load(p + 2, 5) << 12;
		return 0;
	case PT_MNT:
		ret->value = load(p + 3, 8);
		return p[2] == 0x88 ? 0 : PTPACKET_E_BAD;
	case PT_PTW:
		ret->ip_follows = p[1] & 0x80;
		ret->value = load(p + 2, ret->length - 2u);
		return 0;
	case PT_EXSTOP:
	case PT_BEP:
		ret->ip_follows = p[1] & 0x80;
		return 0;
	case PT_MWAIT:
		ret->value = load(p + 2, 4);
		ret->extra = load(p + 6, 4);
		return 0;
	case PT_PWRE:
		ret->value = load(p + 2, 2);
		return 0;
	case PT_PWRX:
		ret->value = load(p + 2, 5);
		return 0;
	case PT_CFE:
		ret->ip_follows = p[2] & 0x80;
		ret->value = p[2] & 0x1f;
		ret->extra = p[3];
		return 0;
	case PT_EVD:
		ret->extra = p[2] & 0x3f;
		ret->value = load(p + 3, 8);
		return 0;
	default:
		return 0;
	}
}

static int read_extended(const uint8_t *p, size_t n, struct ptpacket *ret)
{
	if (n < 2)
		return PTPACKET_E_CUT;
	for (size_t i = 0; i < sizeof(extended) / sizeof(extended[0]); i++) {
		if (extended[i].second != p[1])
			continue;
		if (n < extended[i].length)
			return PTPACKET_E_CUT;
		ret->type = extended[i].type;
		ret->length = extended[i].length;
		return extended_payload(p, ret);
	}
	return PTPACKET_E_BAD;
}

static int read_address(const uint8_t *p, size_t n, uint8_t type, struct ptpacket *ret)
{
	static const uint8_t bytes[8] = {0, 2, 4, 6, 6, 0xff, 8, 0xff};
	uint8_t ip = p[0] >> 5;

	if (bytes[ip] == 0xff)
		return PTPACKET_E_BAD;
	if (n < 1u + bytes[ip])
		return PTPACKET_E_CUT;
	ret->type = type;
	ret->ip = ip;
	ret->length = (uint8_t)(1 + bytes[ip]);
	ret->value = load(p + 1, bytes[ip]);
	return 0;
}

static int read_cyc(const uint8_t *p, size_t n, struct ptpacket *ret)
{
	unsigned int shift = 5;
	size_t at = 1;
	bool more = p[0] & 4;

	ret->type = PT_CYC;
	ret->value = p[0] >> 3;
	for (; more; shift += 7) {
		if (at >= n)
			return PTPACKET_E_CUT;
		if (shift > 63)
			return PTPACKET_E_BAD;
		ret->value |= (uint64_t)(p[at] >> 1) << shift;
		more = p[at++] & 1;
	}
	ret->length = (uint8_t)at;
	return 0;
}

/* D9: flags, triggers, and with bit 6 of the flags a count of instructions. */
static int read_trig(const uint8_t *p, size_t n, struct ptpacket *ret)
{
	size_t length = n >= 2 && p[1] & 0x40 ? 5 : 3;

	if (n >= 2 && p[1] & 0x1f)
		return PTPACKET_E_BAD;
	if (n < length)
		return PTPACKET_E_CUT;
	ret->type = PT_TRIG;
	ret->length = (uint8_t)length;
	ret->ip_follows = p[1] & 0x80;
	ret->value = p[2];
	ret->extra = load(p + 3, length - 3);
	return 0;
}

static int read_fixed(const uint8_t *p, size_t n, uint8_t type, uint8_t length,
		      struct ptpacket *ret)
{
	if (n < length)
		return PTPACKET_E_CUT;
	ret->type = type;
	ret->length = length;
	ret->value = load(p + 1, length - 1u);
	return 0;
}

int ptpacket_read(const uint8_t *p, const uint8_t *end, struct ptpacket *ret)
{
	const size_t n = (size_t)(end - p);
	int r;

	*ret = (struct ptpacket){0};
	if (n == 0)
		return PTPACKET_E_CUT;
	switch (p[0]) {
	case 0x00:
		ret->type = PT_PAD;
		ret->length = 1;
		return 0;
	case 0x02:
		return read_extended(p, n, ret);
	case 0x19:
		return read_fixed(p, n, PT_TSC, 8, ret);
	case 0x59:
		return read_fixed(p, n, PT_MTC, 2, ret);
	case 0xd9:
		return read_trig(p, n, ret);
	case 0x99:
		r = read_fixed(p, n, PT_MODE_EXEC, 2, ret);
		if (r != 0)
			return r;
		if (ret->value >> 5 > 1)
			return PTPACKET_E_BAD;
		ret->type = ret->value >> 5 ? PT_MODE_TSX : PT_MODE_EXEC;
		ret->value &= 0x1f;
		return 0;
	default:
		break;
	}
	if (!(p[0] & 1))
		return short_tnt(p[0], ret);
	if ((p[0] & 3) == 3)
		return read_cyc(p, n, ret);
	switch (p[0] & 0x1f) {
	case 0x0d:
		return read_address(p, n, PT_TIP, ret);
	case 0x11:
		return read_address(p, n, PT_PGE, ret);
	case 0x01:
		return read_address(p, n, PT_PGD, ret);
	case 0x1d:
		return read_address(p, n, PT_FUP, ret);
	default:
		return PTPACKET_E_BAD;
	}
}

const uint8_t *ptpacket_find_psb(const uint8_t *p, const uint8_t *end)
{
	static const uint8_t psb[PTPACKET_PSB_BYTES] = {2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82,
							2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82};

	return memmem(p, (size_t)(end - p), psb, sizeof(psb));
}

bool ptpacket_apply_ip(const struct ptpacket *pk, uint64_t *last_ip)
{
	const uint64_t v = pk->value;

	switch (pk->ip) {
	case PT_IP_UPDATE_16:
		*last_ip = (*last_ip & ~0xffffull) | v;
		return true;
	case PT_IP_UPDATE_32:
		*last_ip = (*last_ip & ~0xffffffffull) | v;
		return true;
	case PT_IP_SIGN_48:
		*last_ip = (uint64_t)((int64_t)(v << 16) >> 16);
		return true;
	case PT_IP_UPDATE_48:
		*last_ip = (*last_ip & ~0xffffffffffffull) | v;
		return true;
	case PT_IP_FULL:
		*last_ip = v;
		return true;
	default:
		return false;
	}
}

bool ptpacket_is_skd007(const struct ptpacket *pk, const uint8_t *p, const uint8_t *end)
{
	return pk->type == PT_CYC && pk->length == 2 && end - p >= PTPACKET_SKD007_BYTES &&
	       p[1] == 0x02 && p[2] == 0xf3;
}

const char *ptpacket_name(enum ptpacket_type type)
{
	static const char *const names[_PT_PACKET_MAX] = {
		[PT_PAD] = "pad",           [PT_PSB] = "psb",     [PT_PSBEND] = "psbend",
		[PT_OVF] = "ovf",           [PT_TNT] = "tnt",     [PT_TIP] = "tip",
		[PT_PGE] = "tip.pge",       [PT_PGD] = "tip.pgd", [PT_FUP] = "fup",
		[PT_TSC] = "tsc",           [PT_TMA] = "tma",     [PT_MTC] = "mtc",
		[PT_CYC] = "cyc",           [PT_CBR] = "cbr",     [PT_MODE_EXEC] = "mode.exec",
		[PT_MODE_TSX] = "mode.tsx", [PT_PIP] = "pip",     [PT_VMCS] = "vmcs",
		[PT_STOP] = "stop",         [PT_MNT] = "mnt",     [PT_PTW] = "ptw",
		[PT_EXSTOP] = "exstop",     [PT_MWAIT] = "mwait", [PT_PWRE] = "pwre",
		[PT_PWRX] = "pwrx",         [PT_CFE] = "cfe",     [PT_EVD] = "evd",
		[PT_BBP] = "bbp",           [PT_BEP] = "bep",     [PT_TRIG] = "trig",
	};

	return (unsigned int)type < _PT_PACKET_MAX ? names[type] : "?";
}
