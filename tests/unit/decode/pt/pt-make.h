/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes Intel PT packets, for tests of what reads them. Knows the formats by itself, so that
 * writer and reader do not share a mistake.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PTMAKE_DEFERRED 8u

struct ptmake {
	uint8_t *bytes;
	size_t n, room;
	uint64_t last_ip;
	/* decisions that are not written yet, and addresses that come behind them */
	uint64_t bits;
	unsigned int n_bits, max_bits; /* 6 or 47 */
	uint64_t deferred[PTMAKE_DEFERRED];
	unsigned int n_deferred;
};

enum ptmake_ip { PTMAKE_TIP = 0x0d, PTMAKE_PGE = 0x11, PTMAKE_PGD = 0x01, PTMAKE_FUP = 0x1d };

void ptmake_init(struct ptmake *m);
void ptmake_fini(struct ptmake *m);
void ptmake_raw(struct ptmake *m, const void *bytes, size_t n);
void ptmake_hex(struct ptmake *m, const char *hex); /* "02 82 ..." */

void ptmake_bit(struct ptmake *m, bool taken);
void ptmake_flush(struct ptmake *m);
/* Flushes, then the address, as short as it can be. */
void ptmake_address(struct ptmake *m, enum ptmake_ip type, uint64_t ip);
/* Without an address: behind the last decision. */
void ptmake_end(struct ptmake *m);
/* A TIP that may come behind the TNT packet of later decisions. */
void ptmake_defer(struct ptmake *m, uint64_t ip);

/* PSB+ in 64-bit mode. `ip` 0: tracing is off; `tsc` 0: none. */
void ptmake_psb(struct ptmake *m, uint64_t ip, uint64_t tsc);
void ptmake_tsc(struct ptmake *m, uint64_t tsc);
void ptmake_mtc(struct ptmake *m, uint8_t ctc);
void ptmake_tma(struct ptmake *m, uint16_t ctc, uint16_t fc);
void ptmake_cyc(struct ptmake *m, uint64_t cycles);
void ptmake_cbr(struct ptmake *m, uint8_t ratio);
void ptmake_ovf(struct ptmake *m);
