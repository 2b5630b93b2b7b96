// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/decode/pt/pt-make.h"

#include <stdlib.h>
#include <string.h>

void ptmake_init(struct ptmake *m)
{
	*m = (struct ptmake){.max_bits = 6};
}

void ptmake_fini(struct ptmake *m)
{
	free(m->bytes);
	*m = (struct ptmake){0};
}

void ptmake_raw(struct ptmake *m, const void *bytes, size_t n)
{
	if (m->room - m->n < n) {
		m->room = m->room ? m->room * 2 : 4096;
		m->room = m->room - m->n < n ? m->n + n : m->room;
		m->bytes = realloc(m->bytes, m->room);
		if (!m->bytes)
			abort();
	}
	if (n)
		memcpy(m->bytes + m->n, bytes, n);
	m->n += n;
}

void ptmake_hex(struct ptmake *m, const char *hex)
{
	char *end;

	for (;; hex = end) {
		const unsigned long v = strtoul(hex, &end, 16);
		const uint8_t byte = (uint8_t)v;

		if (end == hex)
			return;
		ptmake_raw(m, &byte, 1);
	}
}

static void number(uint8_t *p, uint64_t v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

static void write_ip(struct ptmake *m, enum ptmake_ip type, uint64_t ip)
{
	uint8_t p[9];
	unsigned int form;
	size_t n;

	if (ip >> 16 == m->last_ip >> 16) {
		form = 1;
		n = 2;
	} else if (ip >> 32 == m->last_ip >> 32) {
		form = 2;
		n = 4;
	} else if ((uint64_t)((int64_t)(ip << 16) >> 16) == ip) {
		form = 3;
		n = 6;
	} else {
		form = 6;
		n = 8;
	}
	p[0] = (uint8_t)(type | form << 5);
	number(p + 1, ip, n);
	ptmake_raw(m, p, n + 1);
	m->last_ip = ip;
}

static void write_bits(struct ptmake *m)
{
	uint8_t p[8] = {0x02, 0xa3};

	if (m->n_bits == 0)
		return;
	if (m->n_bits <= 6) {
		p[0] = (uint8_t)((1u << m->n_bits | m->bits) << 1);
		ptmake_raw(m, p, 1);
	} else {
		number(p + 2, 1ull << m->n_bits | m->bits, 6);
		ptmake_raw(m, p, 8);
	}
	m->bits = 0;
	m->n_bits = 0;
}

void ptmake_flush(struct ptmake *m)
{
	write_bits(m);
	for (unsigned int i = 0; i < m->n_deferred; i++)
		write_ip(m, PTMAKE_TIP, m->deferred[i]);
	m->n_deferred = 0;
}

void ptmake_bit(struct ptmake *m, bool taken)
{
	m->bits = m->bits << 1 | taken;
	if (++m->n_bits == m->max_bits)
		ptmake_flush(m);
}

void ptmake_defer(struct ptmake *m, uint64_t ip)
{
	if (m->n_deferred == PTMAKE_DEFERRED)
		ptmake_flush(m);
	m->deferred[m->n_deferred++] = ip;
}

void ptmake_address(struct ptmake *m, enum ptmake_ip type, uint64_t ip)
{
	ptmake_flush(m);
	write_ip(m, type, ip);
}

void ptmake_end(struct ptmake *m)
{
	ptmake_flush(m);
	ptmake_hex(m, "01");
}

void ptmake_psb(struct ptmake *m, uint64_t ip, uint64_t tsc)
{
	ptmake_flush(m);
	ptmake_hex(m, "02 82 02 82 02 82 02 82 02 82 02 82 02 82 02 82");
	if (tsc)
		ptmake_tsc(m, tsc);
	m->last_ip = 0;
	ptmake_hex(m, "99 01");
	if (ip)
		write_ip(m, PTMAKE_FUP, ip);
	ptmake_hex(m, "02 23");
}

static void plain(struct ptmake *m, uint8_t first, uint64_t v, size_t n)
{
	uint8_t p[9] = {first};

	ptmake_flush(m);
	number(p + 1, v, n);
	ptmake_raw(m, p, n + 1);
}

void ptmake_tsc(struct ptmake *m, uint64_t tsc)
{
	plain(m, 0x19, tsc, 7);
}

void ptmake_mtc(struct ptmake *m, uint8_t ctc)
{
	plain(m, 0x59, ctc, 1);
}

void ptmake_tma(struct ptmake *m, uint16_t ctc, uint16_t fc)
{
	plain(m, 0x02, 0x73 | (uint64_t)ctc << 8 | (uint64_t)fc << 32, 6);
}

void ptmake_cbr(struct ptmake *m, uint8_t ratio)
{
	plain(m, 0x02, 0x03 | (uint64_t)ratio << 8, 3);
}

void ptmake_ovf(struct ptmake *m)
{
	plain(m, 0x02, 0xf3, 1);
}

void ptmake_cyc(struct ptmake *m, uint64_t cycles)
{
	uint8_t p[16];
	size_t n = 0;

	ptmake_flush(m);
	p[n++] = (uint8_t)(0x03 | (cycles & 0x1f) << 3 | (cycles >> 5 ? 4 : 0));
	for (cycles >>= 5; cycles; cycles >>= 7)
		p[n++] = (uint8_t)((cycles & 0x7f) << 1 | (cycles >> 7 ? 1 : 0));
	ptmake_raw(m, p, n);
}
