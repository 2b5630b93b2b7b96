// SPDX-License-Identifier: GPL-2.0
/*
 * The bytes of Intel PT's packets (SDM volume 3, "Intel Processor Trace", Packet Definitions), and the
 * state that compresses them: branches that wait for a TNT packet, targets that wait behind them, the
 * last IP and the last times. The caller sees to it that the ring is open.
 */
#include <linux/bitfield.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <asm/tsc.h>

#include "aux_ring.h"
#include "packet.h"

static bool long_tnt = true;
module_param(long_tnt, bool, 0644);
MODULE_PARM_DESC(long_tnt, "collect 47 branches for one packet, not 6");

static bool deferred_tips = true;
module_param(deferred_tips, bool, 0644);
MODULE_PARM_DESC(deferred_tips, "let the targets of indirect branches wait for the branches before them");

#define TIP		0x0d
#define TIP_PGE		0x11
#define TIP_PGD		0x01
#define FUP		0x1d

#define TNT_LONG	47
#define TNT_SHORT	6

/* A TSC packet before TIP.PGE if the last one is older. */
#define STALE_TICKS	20000

/* More MTC packets in a row than this are one TSC packet instead. */
#define MAX_MTC		32

/*
 * The time of the packets that follow. The processor is at the task's next instruction, or just after one: an entry to the kernel is
 * noticed later, and its packets have the time of the last instruction before it.
 */
void packets_clock(struct packets *p)
{
	p->now = rdtsc();
}

void packets_init(struct packets *p, struct aux_ring *ring, u64 config)
{
	u64 bytes = p->bytes;

	memset(p, 0, sizeof(*p));
	p->ring = ring;
	p->config = config;
	p->psb_bytes = 2048ull << FIELD_GET(PT_PSB_PERIOD, config);
	p->since_psb = p->psb_bytes;	/* a trace begins with one */
	p->bytes = bytes;
}

bool packets_psb_due(const struct packets *p)
{
	return p->since_psb >= p->psb_bytes;
}

static void put(struct packets *p, const void *data, size_t n)
{
	aux_ring_write(p->ring, data, n);
	p->since_psb += n;
	p->bytes += n;
}

/* Before each packet that says when something happened. */
static void put_cyc(struct packets *p)
{
	u64 passed, threshold;
	u8 bytes[10];
	int n = 0;

	if (!(p->config & PT_CYC))
		return;
	passed = p->now - p->last_cyc;
	threshold = FIELD_GET(PT_CYC_THRESH, p->config);
	if (passed < (threshold ? 1ull << (threshold - 1) : 1))
		return;
	p->last_cyc = p->now;
	bytes[n] = 3 | (passed & 31) << 3;
	passed >>= 5;
	if (passed)
		bytes[n] |= 4;
	n++;
	while (passed && n < (int)sizeof(bytes)) {
		bytes[n] = (passed & 127) << 1;
		passed >>= 7;
		if (passed)
			bytes[n] |= 1;
		n++;
	}
	put(p, bytes, n);
}

static void put_ip_bytes(struct packets *p, u8 op, u64 ip, unsigned int form, unsigned int n)
{
	u8 bytes[9] = { op | form << 5 };
	unsigned int i;

	for (i = 0; i < n; i++)
		bytes[1 + i] = ip >> (8 * i);
	put(p, bytes, 1 + n);
	p->last_ip = ip;
}

/* An address whole, so that it says the same whatever a decoder takes for the last IP. */
static void put_whole_ip(struct packets *p, u8 op, u64 ip)
{
	if ((u64)((s64)(ip << 16) >> 16) == ip)
		put_ip_bytes(p, op, ip, 3, 6);
	else
		put_ip_bytes(p, op, ip, 6, 8);
}

static void put_ip(struct packets *p, u8 op, u64 ip)
{
	u64 differs = ip ^ p->last_ip;

	if (!(differs >> 16))
		put_ip_bytes(p, op, ip, 1, 2);
	else if (!(differs >> 32))
		put_ip_bytes(p, op, ip, 2, 4);
	else if (!(differs >> 48))
		put_ip_bytes(p, op, ip, 4, 6);
	else
		put_whole_ip(p, op, ip);
}

static void put_no_ip(struct packets *p, u8 op)
{
	put(p, &op, 1);
}

static u64 tsc_to_ctc(u64 tsc)
{
	return mul_u64_u64_div_u64(tsc, PT_ART_DENOMINATOR, PT_ART_NUMERATOR);
}

static void put_tma(struct packets *p, u64 tsc)
{
	u64 ctc = tsc_to_ctc(tsc);
	u64 fast = tsc - mul_u64_u64_div_u64(ctc, PT_ART_NUMERATOR, PT_ART_DENOMINATOR);
	u8 tma[7] = { 0x02, 0x73, ctc, ctc >> 8, 0, fast, (fast >> 8) & 1 };

	put(p, tma, sizeof(tma));
	p->last_ctc = ctc >> FIELD_GET(PT_MTC_PERIOD, p->config);
}

static void put_tsc(struct packets *p)
{
	u64 tsc = p->now;
	u8 bytes[8] = { 0x19 };
	int i;

	if (!(p->config & PT_TSC))
		return;
	for (i = 0; i < 7; i++)
		bytes[1 + i] = tsc >> (8 * i);
	put(p, bytes, sizeof(bytes));
	p->last_tsc = p->last_cyc = tsc;
	if (p->config & PT_MTC)
		put_tma(p, tsc);
}

/* 64-bit code */
static void put_mode_exec(struct packets *p)
{
	static const u8 mode[] = { 0x99, 0x01 };

	put(p, mode, sizeof(mode));
}

static void put_tnt(struct packets *p)
{
	u64 bits = 1ull << p->n_tnt | p->tnt;
	u8 bytes[8] = { 0x02, 0xa3 };
	int i;

	if (p->n_tnt <= TNT_SHORT) {
		bytes[0] = bits << 1;
		put(p, bytes, 1);
		return;
	}
	for (i = 0; i < 6; i++)
		bytes[2 + i] = bits >> (8 * i);
	put(p, bytes, sizeof(bytes));
}

void packets_flush(struct packets *p)
{
	unsigned int i;

	if (p->n_tnt) {
		put_cyc(p);
		put_tnt(p);
	}
	for (i = 0; i < p->n_deferred; i++)
		put_ip(p, TIP, p->deferred[i]);
	packets_forget(p);
}

/* What has not been written is lost. */
void packets_forget(struct packets *p)
{
	p->tnt = 0;
	p->n_tnt = p->n_deferred = 0;
}

/* PSB+; IP where the packets are enabled. */
void packet_psb(struct packets *p, const u64 *ip)
{
	static const u8 psb[] = { 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82 };
	static const u8 cbr[] = { 0x02, 0x03, PT_BUS_RATIO, 0 };
	static const u8 end[] = { 0x02, 0x23 };

	packets_flush(p);
	put(p, psb, sizeof(psb));
	p->since_psb = sizeof(psb);
	p->last_ip = 0;
	put_tsc(p);
	put(p, cbr, sizeof(cbr));
	put_mode_exec(p);
	if (ip)
		put_ip(p, FUP, *ip);
	put(p, end, sizeof(end));
}

void packet_tnt(struct packets *p, bool taken)
{
	p->tnt = p->tnt << 1 | taken;
	if (++p->n_tnt == (long_tnt ? TNT_LONG : TNT_SHORT))
		packets_flush(p);
}

/* MAY_WAIT: for the TNT packet of the branches before it. Never with CYC, which may not come between. */
void packet_tip(struct packets *p, u64 ip, bool may_wait)
{
	if (may_wait && deferred_tips && !(p->config & PT_CYC) && p->n_tnt && p->n_deferred < PT_MAX_DEFERRED) {
		p->deferred[p->n_deferred++] = ip;
		return;
	}
	packets_flush(p);
	put_cyc(p);
	put_ip(p, TIP, ip);
}

void packet_enable(struct packets *p, u64 ip)
{
	if (p->now - p->last_tsc > STALE_TICKS)
		put_tsc(p);
	packet_timer(p);
	put_mode_exec(p);
	put_cyc(p);
	put_ip(p, TIP_PGE, ip);
}

void packet_disable(struct packets *p)
{
	packets_flush(p);
	put_cyc(p);
	put_no_ip(p, TIP_PGD);
}

/* Instead of a branch's own packet, where the branch itself leaves what is traced. */
void packet_disable_to(struct packets *p, u64 ip)
{
	packets_flush(p);
	put_cyc(p);
	put_ip(p, TIP_PGD, ip);
}

/* Something interrupted the program before the instruction at IP. */
void packet_interrupt(struct packets *p, u64 ip)
{
	packets_flush(p);
	put_cyc(p);
	put_ip(p, FUP, ip);
	put_no_ip(p, TIP_PGD);
}

/* Packets were lost, up to IP if packets are enabled there. */
void packet_overflow(struct packets *p, const u64 *ip)
{
	static const u8 ovf[] = { 0x02, 0xf3 };

	packets_forget(p);
	put(p, ovf, sizeof(ovf));
	if (ip)
		put_whole_ip(p, FUP, *ip);
}

void packet_ptwrite(struct packets *p, u64 value, bool wide, u64 ip)
{
	u8 bytes[10] = { 0x02, 0x12 };
	int i;

	if (!(p->config & PT_PTW))
		return;
	if (wide)
		bytes[1] |= 0x20;
	if (p->config & PT_FUP_ON_PTW)
		bytes[1] |= 0x80;
	for (i = 0; i < 8; i++)
		bytes[2 + i] = value >> (8 * i);
	packets_flush(p);
	put_cyc(p);
	put(p, bytes, wide ? 10 : 6);
	if (p->config & PT_FUP_ON_PTW)
		put_ip(p, FUP, ip);
}

/* The MTC packets that are due by now. */
void packet_timer(struct packets *p)
{
	u8 mtc[2] = { 0x59 };
	u64 ctc;

	if (!(p->config & PT_MTC))
		return;
	ctc = tsc_to_ctc(p->now) >> FIELD_GET(PT_MTC_PERIOD, p->config);
	if (ctc == p->last_ctc)
		return;
	packets_flush(p);
	if (ctc - p->last_ctc > MAX_MTC) {
		put_tsc(p);
		return;
	}
	while (p->last_ctc != ctc) {
		mtc[1] = ++p->last_ctc;
		put(p, mtc, sizeof(mtc));
	}
}
