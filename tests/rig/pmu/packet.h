/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOFTPT_PACKET_H
#define SOFTPT_PACKET_H

#include <linux/types.h>

struct aux_ring;

/* attr.config of an event, which is IA32_RTIT_CTL but for bit 0 */
#define PT_TRACE	BIT_ULL(0)
#define PT_CYC		BIT_ULL(1)
#define PT_POWER	BIT_ULL(4)
#define PT_FUP_ON_PTW	BIT_ULL(5)
#define PT_MTC		BIT_ULL(9)
#define PT_TSC		BIT_ULL(10)
#define PT_NO_RETCOMP	BIT_ULL(11)
#define PT_PTW		BIT_ULL(12)
#define PT_BRANCH	BIT_ULL(13)
#define PT_MTC_PERIOD	GENMASK_ULL(17, 14)
#define PT_CYC_THRESH	GENMASK_ULL(22, 19)
#define PT_PSB_PERIOD	GENMASK_ULL(27, 24)
#define PT_EVENT	BIT_ULL(31)
#define PT_NO_TNT	BIT_ULL(55)

/* The always running timer's frequency as a fraction of the TSC's: CPUID.15H, EBX and EAX. */
#define PT_ART_NUMERATOR 216
#define PT_ART_DENOMINATOR 2

/* The ratio of the TSC's frequency to that of the bus. */
#define PT_BUS_RATIO 26

#define PT_MAX_DEFERRED 32

struct packets {
	struct aux_ring *ring;
	u64 config;
	u64 since_psb, psb_bytes, bytes;
	u64 now;	/* TSC */
	u64 last_ip, last_tsc, last_ctc, last_cyc;
	u64 tnt;
	unsigned int n_tnt;
	u64 deferred[PT_MAX_DEFERRED];
	unsigned int n_deferred;
};

void packets_init(struct packets *p, struct aux_ring *ring, u64 config);
void packets_clock(struct packets *p);
void packets_flush(struct packets *p);
void packets_forget(struct packets *p);
bool packets_psb_due(const struct packets *p);

void packet_psb(struct packets *p, const u64 *ip);
void packet_tnt(struct packets *p, bool taken);
void packet_tip(struct packets *p, u64 ip, bool may_wait);
void packet_enable(struct packets *p, u64 ip);
void packet_disable(struct packets *p);
void packet_disable_to(struct packets *p, u64 ip);
void packet_interrupt(struct packets *p, u64 ip);
void packet_overflow(struct packets *p, const u64 *ip);
void packet_ptwrite(struct packets *p, u64 value, bool wide, u64 ip);
void packet_timer(struct packets *p);

#endif
