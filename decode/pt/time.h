/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time from the timing packets: TSC as it comes, and between two of them what MTC, CYC and CBR say
 * (Intel SDM volume 3, "Intel Processor Trace", timing packets). It steps back where an estimate
 * was later than the stamp that follows it, never to before a stamp; a step back that stamps ask
 * for is counted.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct pttime_config {
	uint32_t tsc_ctc_n, tsc_ctc_d; /* CPUID.15H: EBX, EAX; 0: not known, MTC says nothing */
	uint32_t mtc_shift;	       /* an MTC every 2^shift ticks of the CTC */
	uint32_t nominal_ratio;	       /* core:bus at which the TSC runs; 0: CYC says nothing */
	/* a TSC of the recording: what the packets have not, their highest byte; 0: none */
	uint64_t reference;
};

struct pttime {
	struct pttime_config config;
	uint64_t now; /* the estimate: what pttime_now() gives */
	uint64_t tsc; /* of the last TSC or MTC packet */
	bool has_tsc;
	/* at cyc_base so many cycles had been counted less: a CYC counts from the CYC before it */
	uint64_t cyc_base, cycles;
	bool has_cyc;
	/* the last packet of time was a CYC: what it counted ends where the next packet is */
	bool cyc_last;
	/*
	 * the crystal's counter: at ctc_base it was tsc_base; ctc ticks have gone by until the last
	 * MTC
	 */
	uint64_t ctc_base, tsc_base, ctc;
	uint8_t last_mtc;
	bool has_ctc, first_mtc;
	/*
	 * how long a cycle is: measured up to an MTC or the TSC of a PSB, else from the core:bus
	 * ratio
	 */
	uint64_t anchor_tsc, anchor_cycles, cal_tsc, cal_cycles;
	bool has_anchor; /* nothing was lost since then */
	bool anchor_is_tsc;
	bool off; /* the trace went off after the last packet of time */
	uint32_t cbr;
	uint64_t backwards; /* TSC or MTC that were before the last one */
	uint64_t ahead;	    /* stamps that were before the estimate */
};

/* The 56 bits of a TSC packet as a whole TSC: that which is nearest to the reference. */
uint64_t pttime_whole(const struct pttime_config *config, uint64_t tsc);

void pttime_init(struct pttime *t, const struct pttime_config *config);
/* A TSC packet outside of a PSB's header: before it, time may have gone by without cycles. */
void pttime_tsc(struct pttime *t, uint64_t tsc);
/* The one in the header, which comes in the middle of what is executed. */
void pttime_tsc_of_psb(struct pttime *t, uint64_t tsc);
void pttime_tma(struct pttime *t, uint64_t ctc, uint64_t fc);
void pttime_mtc(struct pttime *t, uint8_t ctc);
void pttime_cyc(struct pttime *t, uint64_t cycles);
void pttime_cbr(struct pttime *t, uint32_t ratio);
/* The trace is off (TIP.PGD): until it goes on no cycle is counted. */
void pttime_off(struct pttime *t);
/* Packets were lost: counts of cycles and MTC since the last TSC mean nothing. */
void pttime_lost(struct pttime *t);

static inline uint64_t pttime_now(const struct pttime *t)
{
	return t->now;
}
