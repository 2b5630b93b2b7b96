// SPDX-License-Identifier: Apache-2.0
/* What each packet means to the walk. */
#include "decode/pt/flow_internal.h"

/* A TNT packet is full with so many decisions. */
#define TNT_SHORT 6
#define TNT_LONG 47

static void mode(struct ptflow *f)
{
	if (f->mode64 >= 0) {
		f->is64 = f->mode64 == 1;
		codeblocks_set_mode(f->code, f->is64);
	}
	f->mode64 = -1;
}

/* Something that the trace reports beside the way, at `ip` (0: not known). */
static void note(struct ptflow *f, enum ptpacket_type what, uint64_t ip, uint64_t value,
		 uint8_t detail)
{
	struct ptflow_event *e;

	/* what is after a part's end is the next part's */
	if (f->stopping)
		return;
	e = ptflow_emit(f, PTFLOW_NOTE, ip, value);
	e->note = (uint8_t)what;
	e->detail = detail;
}

static void note_packet(struct ptflow *f, const struct ptpacket *pk, uint64_t ip)
{
	switch (pk->type) {
	case PT_PTW:
	case PT_EXSTOP:
	case PT_PWRE:
	case PT_PWRX:
	case PT_CBR:
		note(f, pk->type, ip, pk->value, 0);
		break;
	case PT_MWAIT:
		note(f, pk->type, ip, pk->value | pk->extra << 32, 0);
		break;
	case PT_CFE:
		note(f, pk->type, ip, pk->extra, (uint8_t)pk->value);
		break;
	default:
		break;
	}
}

/* The note that has waited. */
static void end_note(struct ptflow *f, uint64_t ip)
{
	const struct ptpacket pk = f->note;

	f->note.type = PT_PAD;
	note_packet(f, &pk, ip);
}

static void timing(struct ptflow *f, const struct ptpacket *pk)
{
	struct pttime *t = f->o.time;

	if (!t)
		return;
	switch (pk->type) {
	case PT_TSC:
		if (f->in_psb)
			pttime_tsc_of_psb(t, pk->value);
		else
			pttime_tsc(t, pk->value);
		break;
	case PT_TMA:
		pttime_tma(t, pk->value, pk->extra);
		break;
	case PT_MTC:
		pttime_mtc(t, (uint8_t)pk->value);
		break;
	case PT_CYC:
		pttime_cyc(t, pk->value);
		break;
	case PT_CBR:
		pttime_cbr(t, (uint32_t)pk->value);
		break;
	default:
		break;
	}
}

/* How far after `p` it may be looked: the same whatever pieces the trace comes in. */
static const uint8_t *look_end(const struct ptflow *f, const uint8_t *p)
{
	const size_t far = PTFLOW_LOOKAHEAD - 128;

	return (size_t)(f->end - p) < far ? f->end : p + far;
}

/*
 * The address of an indirect branch that was met while TNT bits are left: the processor may defer
 * the TIP after the TNT packet that has the bits of later branches.
 */
static bool deferred_tip(struct ptflow *f, const uint8_t *look_end, uint64_t *ret)
{
	struct ptpacket pk;

	for (;;) {
		if (f->pos >= look_end || ptpacket_read(f->pos, f->end, &pk) != 0)
			return false;
		switch (pk.type) {
		case PT_PAD:
		case PT_TSC:
		case PT_TMA:
		case PT_MTC:
		case PT_CYC:
		case PT_CBR:
			f->pos += pk.length;
			timing(f, &pk);
			continue;
		case PT_TIP:
			if (pk.ip == PT_IP_NONE)
				return false;
			f->pos += pk.length;
			(void)ptpacket_apply_ip(&pk, &f->last_ip);
			*ret = f->last_ip;
			return true;
		default:
			return false;
		}
	}
}

/* The type of the next packet that is not about time; _PT_PACKET_MAX: none. */
static enum ptpacket_type peek(const struct ptflow *f)
{
	const uint8_t *end = look_end(f, f->pos);
	struct ptpacket pk;

	for (const uint8_t *p = f->pos; p < end && ptpacket_read(p, f->end, &pk) == 0;
	     p += pk.length) {
		switch (pk.type) {
		case PT_PAD:
		case PT_TSC:
		case PT_TMA:
		case PT_MTC:
		case PT_CYC:
		case PT_CBR:
			continue;
		default:
			return pk.type;
		}
	}
	return _PT_PACKET_MAX;
}

static enum ptflow_decisions decisions_of(unsigned int count)
{
	return count == TNT_SHORT || count == TNT_LONG ? PTFLOW_DECISIONS_FULL
						       : PTFLOW_DECISIONS_SOME;
}

void ptflow_tnt(struct ptflow *f, uint64_t bits, unsigned int count)
{
	const uint8_t *end = look_end(f, f->pos);

	f->decisions = decisions_of(count);
	if (f->in_doubt) {
		const struct codeblock *b = ptflow_to_decision(f);

		if (b)
			ptflow_lose_at(f, b, PTFLOW_E_MISMATCH);
		return;
	}
	while (count > 0) {
		const struct codeblock *b;
		bool taken;
		uint64_t to;

		if (!f->o.all && f->block != CODEBLOCK_NONE && f->epoch == f->code->epoch) {
			count = ptflow_walk_links(f, bits, count);
			if (count == 0)
				return;
		}
		b = ptflow_to_decision(f);
		if (!b)
			return;
		if (b->kind == INSN_COND) {
			taken = bits >> --count & 1;
			ptflow_cond(f, b, taken);
		} else if (b->kind == INSN_RET) {
			taken = bits >> --count & 1;
			if (!taken || f->depth == 0) {
				ptflow_lose_at(f, b, PTFLOW_E_RETURN);
				return;
			}
			ptflow_return(f, b);
		} else if (deferred_tip(f, end, &to)) {
			ptflow_branch_to(f, b, to);
			mode(f);
		} else {
			ptflow_lose_at(f, b, PTFLOW_E_MISMATCH);
			return;
		}
	}
}

/*
 * Whether the decisions that follow the TIP are those of the way from there on. If it was deferred,
 * some of these came before it, and how many only who knows the way before it can tell: with those
 * that follow alone it would be another way. It was not deferred if a TNT packet that is not full
 * was written in front of it, and nothing has forced the processor to but the TIP.
 */
static bool decisions_follow(const struct ptflow *f)
{
	const uint8_t *end = look_end(f, f->pos);
	struct ptpacket pk = {.type = PT_PAD};

	if (f->decisions != PTFLOW_DECISIONS_SOME)
		return f->decisions == PTFLOW_DECISIONS_NONE;
	/* CYC belongs to the packet after it. */
	for (const uint8_t *p = f->pos; (pk.type == PT_PAD || pk.type == PT_CYC) && p < end;
	     p += pk.length)
		if (ptpacket_read(p, f->end, &pk) != 0)
			return false;
	return pk.type == PT_TNT;
}

/* Up to the next decision the way is known in any case. */
static void find_by_tip(struct ptflow *f)
{
	ptflow_find(f, f->last_ip);
	f->in_doubt = !decisions_follow(f);
}

static void on_tip(struct ptflow *f, const struct ptpacket *pk)
{
	const struct codeblock *b;
	bool has_ip = ptpacket_apply_ip(pk, &f->last_ip);

	if (f->lost || !f->enabled) {
		f->has_fup = false;
		/*
		 * after an overflow: some processors send a TIP where a FUP belongs (erratum
		 * SKD010)
		 */
		if (has_ip && (f->lost || f->after_ovf)) {
			f->after_ovf = false;
			mode(f);
			find_by_tip(f);
		} else if (!f->lost) {
			f->stats.errors[PTFLOW_E_PACKET]++;
		}
		return;
	}
	if (f->has_fup) {
		const uint64_t from = f->fup_ip;

		f->has_fup = false;
		/*
		 * What a transaction did before it was aborted never happened; some processors
		 * leave decisions of it in the trace (erratum BDM64), so it need not lead to where
		 * it was aborted.
		 */
		if (!ptflow_walk_to(f, from) && !f->aborted)
			ptflow_lose_on_the_way(f);
		if (f->aborted)
			note(f, PT_MODE_TSX, from, 0, PTFLOW_TX_ABORTED);
		f->aborted = false;
		if (!has_ip) {
			if (!f->lost)
				ptflow_lose(f, PTFLOW_E_PACKET);
			return;
		}
		mode(f);
		if (f->lost) {
			ptflow_find(f, f->last_ip);
			return;
		}
		ptflow_emit(f, PTFLOW_ASYNC, from, f->last_ip);
		ptflow_go(f, f->last_ip);
		return;
	}
	b = ptflow_to_decision(f);
	if (b && (b->kind == INSN_COND || !has_ip)) {
		ptflow_lose_at(f, b, has_ip ? PTFLOW_E_MISMATCH : PTFLOW_E_PACKET);
		b = NULL;
	}
	if (b)
		ptflow_branch_to(f, b, f->last_ip);
	if (f->in_doubt)
		f->in_doubt = !decisions_follow(f);
	mode(f);
	if (!b && has_ip)
		find_by_tip(f);
}

static void on_pge(struct ptflow *f, const struct ptpacket *pk)
{
	const bool since_ovf = f->since_ovf;

	f->has_fup = f->after_ovf = false;
	if (!ptpacket_apply_ip(pk, &f->last_ip)) {
		f->stats.errors[PTFLOW_E_PACKET]++;
		return;
	}
	mode(f);
	ptflow_begin_at(f, f->last_ip);
	/* Somebody else, who may have run in what is lost: nothing of the stack is known. */
	ptflow_emit(f, since_ovf && f->thread != f->ovf_thread ? PTFLOW_RESYNC : PTFLOW_ENABLE, 0,
		    f->ip);
}

/* Erratum SKD022: tracing ended with the entry into a virtual machine at `ip`, not before it. */
static bool is_vmentry(struct ptflow *f, uint64_t ip)
{
	uint8_t buffer[INSN_MAX];
	const uint8_t *code;

	return f->o.errata.skd022 &&
	       f->code->read(f->code->arg, ip, &code, buffer, INSN_MAX) >= 3 && code[0] == 0x0f &&
	       code[1] == 0x01 && (code[2] == 0xc2 || code[2] == 0xc3);
}

static void on_pgd(struct ptflow *f, const struct ptpacket *pk)
{
	const bool has_ip = ptpacket_apply_ip(pk, &f->last_ip), after_ovf = f->after_ovf;

	f->after_ovf = f->aborted = false;
	if (f->enabled && !f->lost) {
		if (f->has_fup) {
			if (!ptflow_walk_to(f, f->fup_ip))
				ptflow_lose_on_the_way(f);
			else if (is_vmentry(f, f->fup_ip))
				ptflow_disable_at_branch(f, false, 0);
			else
				ptflow_emit(f, PTFLOW_DISABLE_ASYNC, f->fup_ip, 0);
		} else {
			ptflow_disable_at_branch(f, has_ip, f->last_ip);
		}
	} else if (!f->enabled && !f->lost && !f->has_fup && !after_ovf) {
		f->stats.errors[PTFLOW_E_PACKET]++;
	}
	if (f->o.time)
		pttime_off(f->o.time);
	mode(f);
	f->has_fup = false;
	f->lost = false;
	f->enabled = false;
}

static void on_fup(struct ptflow *f, const struct ptpacket *pk)
{
	const bool has_ip = ptpacket_apply_ip(pk, &f->last_ip);
	const enum ptflow_fup_for who = f->fup_for;

	f->fup_for = PTFLOW_FUP_ASYNC;
	if (f->in_psb) {
		f->psb_has_ip = has_ip;
		f->psb_ip = f->last_ip;
		return;
	}
	if (!has_ip) {
		f->stats.errors[PTFLOW_E_PACKET]++;
		return;
	}
	if (f->after_ovf) {
		f->after_ovf = false;
		mode(f);
		ptflow_find(f, f->last_ip);
		return;
	}
	if (who == PTFLOW_FUP_TSX) {
		if (f->enabled && !f->lost && !ptflow_walk_to(f, f->last_ip))
			ptflow_lose_on_the_way(f);
		f->speculative = f->tsx == 1;
		f->tsx = -1;
		if (f->lost)
			ptflow_find(f, f->last_ip);
		note(f, PT_MODE_TSX, f->last_ip, 0,
		     f->speculative ? PTFLOW_TX_BEGUN : PTFLOW_TX_COMMITTED);
		return;
	}
	if (who == PTFLOW_FUP_OTHER) { /* it says where something was that is nothing to the way */
		if (f->enabled && !f->lost)
			(void)ptflow_walk_to(f, f->last_ip);
		if (f->lost)
			ptflow_find(f, f->last_ip);
		end_note(f, f->last_ip);
		return;
	}
	if (f->lost) /* where it is is known; the next packet says where it goes */
		ptflow_find(f, f->last_ip);
	f->has_fup = true;
	f->fup_ip = f->last_ip;
}

static void begin_psb(struct ptflow *f)
{
	f->credit = PTFLOW_CREDIT_PSB;
	f->in_psb = true;
	f->psb_has_ip = false;
	f->last_ip = 0;
	f->has_fup = false;
	f->fup_for = PTFLOW_FUP_ASYNC;
	f->note.type = PT_PAD;
}

/* The header's end: the walk goes to where the processor says that it was. */
static void end_header(struct ptflow *f)
{
	/*
	 * Who goes on after an overflow need not be who ran before it: nothing of its stack is
	 * known.
	 */
	const bool after_ovf = f->after_ovf;

	f->in_psb = f->after_ovf = false;
	mode(f);
	if (f->tsx >= 0) {
		f->speculative = f->tsx == 1;
		f->tsx = -1;
	}
	/* A FUP although tracing is off: PGE says so (erratum BDM70). */
	if (!f->enabled && f->psb_has_ip && peek(f) == PT_PGE)
		f->psb_has_ip = false;
	if (!f->psb_has_ip) {
		f->depth = 0;
		return;
	}
	if (f->enabled && !f->lost) {
		/* After the last decision there may be more: up to here it was executed. */
		if (!ptflow_walk_to(f, f->psb_ip))
			ptflow_lose_on_the_way(f);
	}
	f->depth = 0;
	if (f->lost || after_ovf) {
		ptflow_find(f, f->psb_ip);
	} else if (!f->enabled) {
		ptflow_begin_at(f, f->psb_ip);
		ptflow_emit(f, PTFLOW_ENABLE, 0, f->ip)->at_psb = true;
	}
}

static void end_psb(struct ptflow *f)
{
	end_header(f);
	end_note(f, 0);
}

void ptflow_ovf(struct ptflow *f)
{
	f->stats.overflows++;
	f->in_psb = false;
	f->has_fup = false;
	f->fup_for = PTFLOW_FUP_ASYNC;
	f->tsx = -1;
	f->note.type = PT_PAD;
	f->aborted = false;
	if (f->o.time)
		pttime_lost(f->o.time);
	/* in the first header: what is lost is of somebody all the same */
	if (!f->thread)
		ptflow_enter_at(f, 0);
	ptflow_emit(f, PTFLOW_OVERFLOW, f->enabled && !f->lost ? f->ip : 0, 0);
	f->since_ovf = true;
	f->ovf_thread = f->thread;
	f->enabled = false;
	f->lost = false;
	f->after_ovf = true;
	f->depth = 0;
}

static void on_tsx(struct ptflow *f, bool in, bool aborted)
{
	f->tsx = in;
	f->aborted = false;
	if (f->in_psb)
		return;
	if (!f->enabled || aborted) {
		/* an abort is an asynchronous branch: FUP and TIP follow */
		f->aborted = aborted;
		f->speculative = in;
		f->tsx = -1;
		return;
	}
	f->fup_for = PTFLOW_FUP_TSX;
}

/*
 * A new address space: at a far branch, whose TIP comes next, or at a write to CR3, which nothing
 * else reports.
 */
static void on_pip(struct ptflow *f)
{
	const enum ptpacket_type next = peek(f);

	if (next == PT_TIP || next == PT_PGD || next == PT_MODE_EXEC || next == PT_VMCS)
		return;
	ptflow_walk_over_cr3(f);
}

void ptflow_packet(struct ptflow *f, const struct ptpacket *pk)
{
	switch (pk->type) {
	case PT_TNT:
		if (f->in_psb || !f->enabled)
			f->stats.errors[PTFLOW_E_PACKET] += !f->lost;
		else if (!f->lost)
			ptflow_tnt(f, pk->value, pk->count);
		else
			f->decisions = decisions_of(pk->count);
		break;
	case PT_TIP:
		on_tip(f, pk);
		break;
	case PT_PGE:
		f->decisions = PTFLOW_DECISIONS_NONE;
		on_pge(f, pk);
		break;
	case PT_PGD:
		f->decisions = PTFLOW_DECISIONS_NONE;
		on_pgd(f, pk);
		break;
	case PT_FUP:
		f->decisions = PTFLOW_DECISIONS_NONE;
		on_fup(f, pk);
		break;
	case PT_PSB:
		f->decisions = PTFLOW_DECISIONS_NONE;
		begin_psb(f);
		break;
	case PT_PSBEND:
		if (f->in_psb)
			end_psb(f);
		break;
	case PT_OVF:
		f->decisions = PTFLOW_DECISIONS_NONE;
		ptflow_ovf(f);
		break;
	case PT_MODE_EXEC:
		f->mode64 = pk->value & 1;
		/* with event trace it may report the interrupt flag alone: its FUP is no event */
		if (f->enabled && !f->in_psb && !f->after_ovf && peek(f) == PT_FUP) {
			f->fup_for = PTFLOW_FUP_OTHER;
			f->note.type = PT_PAD;
		}
		break;
	case PT_MODE_TSX:
		on_tsx(f, pk->value & 1, pk->value & 2);
		break;
	case PT_PIP:
		if (f->enabled && !f->lost && !f->in_psb && !f->has_fup)
			on_pip(f);
		break;
	case PT_PTW:
	case PT_EXSTOP:
	case PT_BEP:
	case PT_CFE:
	case PT_TRIG:
		if (pk->ip_follows) {
			f->fup_for = PTFLOW_FUP_OTHER;
			f->note = *pk;
		} else {
			note_packet(f, pk, 0);
		}
		break;
	case PT_PWRE:
	case PT_PWRX:
	case PT_MWAIT:
		note_packet(f, pk, 0);
		break;
	case PT_CBR:
		timing(f, pk);
		if (f->in_psb)
			f->note = *pk;
		else
			note_packet(f, pk, 0);
		break;
	default:
		timing(f, pk);
		break;
	}
}
