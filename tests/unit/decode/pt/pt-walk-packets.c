// SPDX-License-Identifier: Apache-2.0
/* pt-walk packets: decode/pt/packet.h on bytes, in the words of libipt's ptdump. */
#include <stdio.h>
#include <string.h>

#include "decode/pt/packet.h"
#include "tests/unit/decode/pt/pt-walk.h"

static const char *const cfe_names[] = {"",       "intr",        "iret",     "smi",
					"rsm",    "sipi",        "init",     "vmentry",
					"vmexit", "vmexit_intr", "shutdown", "",
					"uintr",  "uiret",       "swintr",   "syscall"};

static void print_address(const struct ptpacket *pk)
{
	/* digits that the packet has not are question marks */
	static const unsigned int digits[] = {0, 4, 8, 16, 12, 0, 16};
	uint64_t ip = 0;
	char text[17];

	(void)ptpacket_apply_ip(pk, &ip);
	(void)snprintf(text, sizeof(text), "%016lx", ip);
	memset(text, '?', 16 - digits[pk->ip]);
	(void)printf(" %u: %s", pk->ip, text);
}

static void print_tnt(const struct ptpacket *pk)
{
	(void)printf(" ");
	for (unsigned int i = pk->count; i > 0; i--)
		(void)putchar(pk->value >> (i - 1) & 1 ? '!' : '.');
}

static void print_event(const struct ptpacket *pk)
{
	static const char *const evd_names[] = {"cr2", "vmxq", "vmxr"};
	const char *ip = pk->ip_follows ? ", ip" : "";

	if (pk->type == PT_EVD) {
		(void)printf(" %lu: %lx type %s", pk->extra, pk->value,
			     pk->extra < 3 ? evd_names[pk->extra] : "unknown");
		return;
	}
	(void)printf(" %lu", pk->value);
	switch (pk->value) {
	case 1:
	case 9:
	case 12:
	case 14:
		(void)printf(": %lu", pk->extra);
		break;
	case 5:
		(void)printf(": %lx", pk->extra);
		break;
	default:
		break;
	}
	(void)printf("%s type %s", ip,
		     pk->value < 16 && *cfe_names[pk->value] ? cfe_names[pk->value] : "unknown");
}

static void print_trigger(const struct ptpacket *pk, const uint8_t *p)
{
	(void)printf(" %02lx%s%s", pk->value, p[1] & 0x20 ? ", mult" : "",
		     pk->ip_follows ? ", ip" : "");
	if (pk->length == 5)
		(void)printf(", icnt: %lu", pk->extra);
}

static void print_power(const struct ptpacket *pk)
{
	const uint64_t v = pk->value;

	if (pk->type == PT_PWRE) {
		(void)printf(" c%lu.%lu%s", ((v >> 12 & 0xf) + 1) & 0xf, ((v >> 8 & 0xf) + 1) & 0xf,
			     v & 8 ? ", hw" : "");
		return;
	}
	(void)printf(" %s: c%lu, c%lu",
		     v & 0x100   ? "int"
		     : v & 0x400 ? "st"
		     : v & 0x800 ? "hw"
				 : "",
		     ((v >> 4 & 0xf) + 1) & 0xf, ((v & 0xf) + 1) & 0xf);
}

static void print_payload(const struct ptpacket *pk, const uint8_t *p)
{
	switch (pk->type) {
	case PT_TIP:
	case PT_PGE:
	case PT_PGD:
	case PT_FUP:
		print_address(pk);
		break;
	case PT_TNT:
		print_tnt(pk);
		break;
	case PT_TSC:
	case PT_MTC:
	case PT_CYC:
	case PT_CBR:
	case PT_MNT:
		(void)printf(" %lx", pk->value);
		break;
	case PT_TMA:
		(void)printf(" %lx, %lx", pk->value, pk->extra);
		break;
	case PT_VMCS:
		(void)printf(" %lx vmcs %016lx", pk->value, pk->value);
		break;
	case PT_PIP:
		(void)printf(" %lx%s cr3 %016lx", pk->value, pk->extra ? ", nr" : "", pk->value);
		break;
	case PT_MODE_EXEC:
		(void)printf("%s%s%s", pk->value & 1 ? " cs.l" : "", pk->value & 2 ? " cs.d" : "",
			     pk->value & 4 ? pk->value & 3 ? ", if" : " if" : "");
		break;
	case PT_MODE_TSX:
		(void)printf("%s%s", pk->value & 1 ? " intx" : "", pk->value & 2 ? " abrt" : "");
		break;
	case PT_PTW:
		(void)printf(" %u: %lx%s", p[1] >> 5 & 3, pk->value, pk->ip_follows ? ", ip" : "");
		break;
	case PT_EXSTOP:
		(void)printf("%s", pk->ip_follows ? " ip" : "");
		break;
	case PT_MWAIT:
		(void)printf(" %08lx, %08lx", pk->value, pk->extra);
		break;
	case PT_PWRE:
	case PT_PWRX:
		print_power(pk);
		break;
	case PT_CFE:
	case PT_EVD:
		print_event(pk);
		break;
	case PT_TRIG:
		print_trigger(pk, p);
		break;
	default:
		break;
	}
}

static bool feed_time(struct pttime *t, const struct ptpacket *pk, bool *in_psb)
{
	switch (pk->type) {
	case PT_PSB:
	case PT_PSBEND:
		*in_psb = pk->type == PT_PSB;
		return false;
	case PT_TSC:
		if (*in_psb)
			pttime_tsc_of_psb(t, pk->value);
		else
			pttime_tsc(t, pk->value);
		return true;
	case PT_TMA:
		pttime_tma(t, pk->value, pk->extra);
		return true;
	case PT_MTC:
		pttime_mtc(t, (uint8_t)pk->value);
		return true;
	case PT_CYC:
		pttime_cyc(t, pk->value);
		return true;
	case PT_CBR:
		pttime_cbr(t, (uint32_t)pk->value);
		return false;
	case PT_PGD:
		pttime_off(t);
		return false;
	case PT_OVF:
		*in_psb = false;
		pttime_lost(t);
		return false;
	default:
		return false;
	}
}

static void print_name(const struct ptpacket *pk)
{
	if (pk->type == PT_TNT)
		(void)printf("tnt.%s", pk->length == 1 ? "8" : "64");
	else
		(void)printf("%s", ptpacket_name(pk->type));
}

int ptwalk_packets(int argc, char **argv)
{
	struct pttime_config tc = {0};
	struct pterrata errata = {0};
	bool with_time = false, in_psb = false;
	uint64_t counts[_PT_PACKET_MAX] = {0}, bits = 0;
	const uint8_t *begin, *p, *end;
	struct ptpacket pk;
	struct pttime t;
	size_t n;
	int r;

	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--cpu") == 0)
			ptwalk_cpu(argv[i + 1], &errata);
		else if (strcmp(argv[i], "--time") == 0 &&
			 sscanf(argv[i + 1], "%u,%u,%u,%u", &tc.mtc_shift, &tc.tsc_ctc_n,
				&tc.tsc_ctc_d, &tc.nominal_ratio) == 4)
			with_time = true;
		else
			ptwalk_bad_usage(argv[i]);
	}
	pttime_init(&t, &tc);
	begin = ptwalk_file(argv[0], &n);
	end = begin + n;
	p = ptpacket_find_psb(begin, end);
	for (; p && p < end; p += pk.length) {
		r = ptpacket_read(p, end, &pk);
		if (r != 0) {
			(void)printf("%016lx %s\n", (uint64_t)(p - begin),
				     r == PTPACKET_E_CUT ? "cut" : "bad");
			pk.length = 0;
			/*
			 * the packet in front of it may have taken the begin of a PSB for its own
			 */
			p = ptpacket_find_psb(p - begin < 15 ? begin : p - 15, end);
			if (!p)
				break;
			continue;
		}
		if (errata.skd007 && ptpacket_is_skd007(&pk, p, end))
			pk = (struct ptpacket){.type = PT_OVF, .length = PTPACKET_SKD007_BYTES};
		counts[pk.type]++;
		bits += pk.count;
		(void)printf("%016lx ", (uint64_t)(p - begin));
		print_name(&pk);
		print_payload(&pk, p);
		if (with_time && feed_time(&t, &pk, &in_psb))
			(void)printf(" time %lx", pttime_now(&t));
		(void)putchar('\n');
	}
	(void)fflush(stdout);
	(void)fprintf(stderr, "tnt_bits %lu", bits);
	for (unsigned int i = 0; i < _PT_PACKET_MAX; i++)
		if (counts[i])
			(void)fprintf(stderr, " %s %lu", ptpacket_name(i), counts[i]);
	(void)fprintf(stderr, "\n");
	return 0;
}
