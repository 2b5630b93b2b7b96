/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One packet of Intel Processor Trace (Intel SDM volume 3, chapter "Intel Processor Trace", packet
 * definitions): bytes in, a type and its payload out. Knows no order of packets and no code.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ptpacket_type {
	PT_PAD,
	PT_PSB,
	PT_PSBEND,
	PT_OVF,
	PT_TNT,	 /* value: the bits, the oldest highest; count: how many */
	PT_TIP,	 /* these four: value: address bits; ip_bytes: how many, and how they apply */
	PT_PGE,
	PT_PGD,
	PT_FUP,
	PT_TSC,	 /* value */
	PT_TMA,	 /* value: CTC; extra: fast counter */
	PT_MTC,	 /* value: 8 bits of the CTC */
	PT_CYC,	 /* value: cycles */
	PT_CBR,	 /* value: core:bus ratio */
	PT_MODE_EXEC, /* value: bit 0 CS.L, 1 CS.D, 2 IF */
	PT_MODE_TSX,  /* value: bit 0 in a transaction, 1 aborted */
	PT_PIP,	 /* value: CR3; extra: non-root */
	PT_VMCS, /* value: base */
	PT_STOP,
	PT_MNT,	 /* value */
	PT_PTW,	 /* value; ip_follows */
	PT_EXSTOP, /* ip_follows */
	PT_MWAIT, /* value: hints; extra: extensions */
	PT_PWRE, /* value */
	PT_PWRX, /* value */
	PT_CFE,	 /* value: type; extra: vector; ip_follows */
	PT_EVD,	 /* extra: type; value */
	PT_BBP,
	PT_BEP,	 /* ip_follows */
	/*
	 * value: which triggers; extra: instructions since the last packet about the way;
	 * ip_follows
	 */
	PT_TRIG,
	_PT_PACKET_MAX,
};

enum ptpacket_ip {
	PT_IP_NONE,	/* suppressed */
	PT_IP_UPDATE_16,
	PT_IP_UPDATE_32,
	PT_IP_SIGN_48,
	PT_IP_UPDATE_48,
	PT_IP_FULL = 6,
};

struct ptpacket {
	uint8_t type;	/* enum ptpacket_type */
	uint8_t length; /* bytes in the trace */
	uint8_t ip;	/* enum ptpacket_ip, of TIP, PGE, PGD, FUP */
	uint8_t count;	/* TNT bits */
	bool ip_follows; /* a FUP with this packet's address is next */
	uint64_t value, extra;
};

enum {
	PTPACKET_E_CUT = 1, /* it goes on after the end */
	PTPACKET_E_BAD,	    /* no packet begins so */
};

#define PTPACKET_PSB_BYTES 16u

/* The packet at `p`. 0, or PTPACKET_E_*. */
int ptpacket_read(const uint8_t *p, const uint8_t *end, struct ptpacket *ret);

/* The first PSB at or after `p`, or NULL. */
const uint8_t *ptpacket_find_psb(const uint8_t *p, const uint8_t *end);

/* An address packet applied to the last address; false if the packet has none. */
bool ptpacket_apply_ip(const struct ptpacket *pk, uint64_t *last_ip);

/*
 * Erratum SKD007: an overflow may be written into a packet of cycles, after its first byte. Whether
 * `pk`, read at `p`, is such: `p` + PTPACKET_SKD007_BYTES is after the overflow then.
 */
#define PTPACKET_SKD007_BYTES 3u
bool ptpacket_is_skd007(const struct ptpacket *pk, const uint8_t *p, const uint8_t *end);

const char *ptpacket_name(enum ptpacket_type type);
