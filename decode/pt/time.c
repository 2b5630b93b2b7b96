// SPDX-License-Identifier: Apache-2.0
#include "decode/pt/time.h"

#define CTC_MASK 0xffu /* an MTC has 8 bits of the counter */

uint64_t pttime_whole(const struct pttime_config *config, uint64_t tsc)
{
	const uint64_t span = 1ull << 56, half = span / 2, ref = config->reference;
	uint64_t whole = tsc;

	if (!ref)
		return tsc;
	whole |= ref & ~(span - 1);
	if (whole > ref && whole - ref > half && whole >= span)
		whole -= span;
	else if (whole < ref && ref - whole > half && whole <= UINT64_MAX - span)
		whole += span;
	return whole;
}

void pttime_init(struct pttime *t, const struct pttime_config *config)
{
	*t = (struct pttime){.config = *config};
}

/* Which packet says what time it is; BY_TSC: one outside of a PSB's header. */
enum known_by { BY_MTC, BY_TSC, BY_PSB };

static void estimate(struct pttime *t, uint64_t now)
{
	if (now > t->now)
		t->now = now;
}

/*
 * What CYC added may have been too much, by milliseconds where a cycle was measured at another
 * frequency: then the time steps back to the stamp. It does not where the stamp itself is before
 * the last one, for one of both is damaged.
 */
static void stamp(struct pttime *t, uint64_t now)
{
	t->ahead += now < t->now;
	if (now >= t->now || now >= t->tsc)
		t->now = now;
}

/*
 * The time is known here. What a CYC counted just before ends here, and the next one counts from
 * here; a first CYC counts from wherever the time was known last. No cycle is measured up to a TSC
 * packet but that of a PSB, where the trace was on all the while: any other comes because time went
 * by in which nothing was counted.
 */
static void know(struct pttime *t, uint64_t tsc, enum known_by by, bool rebase)
{
	const bool is_tsc = by != BY_MTC, resumed = by == BY_TSC || (by == BY_PSB && t->off);

	if (!resumed && t->has_anchor && t->cyc_last && t->anchor_cycles && tsc > t->anchor_tsc) {
		t->cal_tsc = tsc - t->anchor_tsc;
		t->cal_cycles = t->anchor_cycles;
	}
	if (resumed || t->cyc_last || !t->has_anchor ||
	    (t->anchor_is_tsc && !is_tsc && t->anchor_cycles == 0)) {
		t->has_anchor = true;
		t->anchor_is_tsc = is_tsc;
		t->anchor_tsc = tsc;
		t->anchor_cycles = 0;
	}
	if (t->cyc_last || rebase || !t->has_cyc) {
		t->cyc_base = tsc;
		t->cycles = 0;
	}
	t->cyc_last = false;
	t->off = false;
	stamp(t, tsc);
	t->tsc = tsc;
}

static void on_tsc(struct pttime *t, uint64_t tsc, enum known_by by)
{
	tsc = pttime_whole(&t->config, tsc);
	if (t->has_tsc && tsc < t->tsc) {
		t->backwards++;
		t->has_anchor = false;
	}
	t->has_tsc = true;
	t->has_ctc = false;
	know(t, tsc, by, true);
}

void pttime_tsc(struct pttime *t, uint64_t tsc)
{
	on_tsc(t, tsc, BY_TSC);
}

void pttime_tsc_of_psb(struct pttime *t, uint64_t tsc)
{
	on_tsc(t, tsc, BY_PSB);
}

/* TSC ticks in so many ticks of the crystal's counter. */
static uint64_t ctc_to_tsc(const struct pttime *t, uint64_t ctc)
{
	return (uint64_t)((unsigned __int128)ctc * t->config.tsc_ctc_n / t->config.tsc_ctc_d);
}

static bool has_ctc_ratio(const struct pttime *t)
{
	return t->config.tsc_ctc_n && t->config.tsc_ctc_d && t->config.mtc_shift < 32;
}

/*
 * The crystal's counter stood at `ctc`, and its last tick was `fc` TSC ticks before the TSC packet.
 */
void pttime_tma(struct pttime *t, uint64_t ctc, uint64_t fc)
{
	if (!t->has_tsc || !has_ctc_ratio(t))
		return;
	t->ctc_base = ctc;
	t->tsc_base = t->tsc - fc;
	t->ctc = 0;
	t->has_ctc = true;
	t->first_mtc = true;
}

void pttime_mtc(struct pttime *t, uint8_t ctc)
{
	const uint32_t shift = t->config.mtc_shift;
	uint64_t tsc;

	if (!t->has_ctc) {
		/* No TMA: the first one only says where the counter stands now. */
		if (!t->has_tsc || !has_ctc_ratio(t))
			return;
		t->has_ctc = true;
		t->first_mtc = false;
		t->ctc_base = (uint64_t)ctc << shift;
		t->tsc_base = t->now;
		t->ctc = 0;
		t->last_mtc = ctc;
		return;
	}
	if (t->first_mtc) {
		const uint64_t span = (uint64_t)(CTC_MASK + 1) << shift;
		const uint64_t low = t->ctc_base & (span - 1) & 0xffff;
		uint64_t at = (uint64_t)ctc << shift;

		/*
		 * TMA has 16 bits: of a counter that MTC cuts above them, what it lacks is the
		 * MTC's.
		 */
		if (span > 0x10000)
			at &= 0xffff;
		t->ctc = (at - low) & ((span > 0x10000 ? 0x10000 : span) - 1);
		t->first_mtc = false;
	} else {
		t->ctc += (uint64_t)((ctc - t->last_mtc) & CTC_MASK) << shift;
	}
	t->last_mtc = ctc;
	tsc = t->tsc_base + ctc_to_tsc(t, t->ctc);
	if (tsc < t->tsc) {
		t->backwards++;
		return;
	}
	/* One MTC without a CYC may come between two; where more come, the core did not run. */
	know(t, tsc, BY_MTC, tsc - t->cyc_base > ctc_to_tsc(t, 1ull << shift));
}

void pttime_cyc(struct pttime *t, uint64_t cycles)
{
	uint64_t ticks;

	if (__builtin_add_overflow(t->cycles, cycles, &t->cycles) ||
	    __builtin_add_overflow(t->anchor_cycles, cycles, &t->anchor_cycles)) {
		t->cycles = t->anchor_cycles = 0;
		t->has_anchor = false;
	}
	t->cyc_last = t->has_cyc = true;
	if (!t->has_tsc)
		return;
	if (t->cal_cycles)
		ticks = (uint64_t)((unsigned __int128)t->cycles * t->cal_tsc / t->cal_cycles);
	else if (t->cbr && t->config.nominal_ratio)
		ticks = (uint64_t)((unsigned __int128)t->cycles * t->config.nominal_ratio / t->cbr);
	else
		return;
	estimate(t, t->cyc_base + ticks);
}

void pttime_off(struct pttime *t)
{
	t->off = true;
}

void pttime_cbr(struct pttime *t, uint32_t ratio)
{
	if (ratio == t->cbr)
		return;
	t->cbr = ratio;
	t->cal_cycles = 0; /* measured at another frequency */
	t->has_anchor = false;
	t->cyc_base = t->now;
	t->cycles = 0;
}

void pttime_lost(struct pttime *t)
{
	t->has_anchor = t->cyc_last = false;
}
