// SPDX-License-Identifier: Apache-2.0
/*
 * Intel PT decoded by parts of the decoder, printed for tests to compare:
 *
 *	pt-walk packets FILE [--cpu F/M] [--time MTC_SHIFT,CTC_N,CTC_D,NOMINAL]
 *		one packet a line, in the words of libipt's ptdump
 *	pt-walk blob FILE [--cpu F/M] [--filter FIRST,LAST] [--events] [--no-resync] [CODE OFFSET LENGTH ADDRESS]...
 *		packets and flat code alone: the addresses of all instructions
 *	pt-walk perfdata FILE SYMFS [--insns [--tids]|--branches|--times] [--threads N]
 *		a recording, as the decoder takes it
 *
 * Instructions are printed as perf does, one lower-case hex number a line; the last line, on
 * stderr, is a summary.
 */
#include "tests/unit/decode/pt/pt-walk.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/io.h"

#define LONGEST_FILE (1u << 30)

uint8_t *ptwalk_file(const char *path, size_t *ret_n)
{
	char *bytes;
	int r = io_read_file_at(AT_FDCWD, path, LONGEST_FILE, &bytes, ret_n);

	if (r < 0) {
		(void)fprintf(stderr, "pt-walk: %s: %s\n", path, strerror(-r));
		exit(2);
	}
	return (uint8_t *)bytes;
}

void ptwalk_bad_usage(const char *what)
{
	(void)fprintf(stderr, "pt-walk: bad usage: %s\n", what);
	exit(2);
}

bool ptwalk_u64(const char *text, uint64_t *ret)
{
	char *end;

	*ret = strtoull(text, &end, 0);
	return *text && !*end;
}

void ptwalk_cpu(const char *text, struct pterrata *ret)
{
	unsigned int family, model;
	int end = 0;

	if (sscanf(text, "%u/%u%n", &family, &model, &end) != 2 || text[end] || family > 0xffff ||
	    model > 0xffff)
		ptwalk_bad_usage(text);
	pterrata_of((uint16_t)family, (uint16_t)model, ret);
}

void ptwalk_ips_init(struct ptwalk_ips *ips, bool print)
{
	*ips = (struct ptwalk_ips){.hash = 0xcbf29ce484222325ull, .print = print};
}

static void put(struct ptwalk_ips *ips, uint64_t ip)
{
	ips->n++;
	for (unsigned int i = 0; i < 64; i += 8)
		ips->hash = (ips->hash ^ (ip >> i & 0xff)) * 0x100000001b3ull;
	if (ips->print && ips->tid)
		(void)printf("%u ", ips->tid);
	if (ips->print)
		(void)printf("%lx\n", ip);
}

bool ptwalk_line(struct ptwalk_ips *ips, const struct ptflow_event *e, code_read_fn read, void *arg)
{
	/* A run ends in front of `to`; a branch with the instruction at `from`. */
	const bool run = e->kind == PTFLOW_RUN;
	const uint64_t end = run ? e->to : e->from + 1;
	uint8_t buffer[INSN_MAX];
	const uint8_t *code;
	struct insn insn;
	size_t n;

	for (uint64_t at = e->start; at < end; at += insn.length) {
		n = read(arg, at, &code, buffer, INSN_MAX);
		if (n == 0 || !insn_decode(code, n, !e->is32, &insn))
			return false;
		put(ips, at);
	}
	return true;
}

const char *ptwalk_kind(enum ptflow_kind kind)
{
	static const char *const names[] = {
		[PTFLOW_RUN] = "run",
		[PTFLOW_COND] = "cond",
		[PTFLOW_JUMP] = "jump",
		[PTFLOW_JUMP_INDIRECT] = "jump*",
		[PTFLOW_CALL] = "call",
		[PTFLOW_CALL_INDIRECT] = "call*",
		[PTFLOW_RET] = "ret",
		[PTFLOW_FAR] = "far",
		[PTFLOW_ASYNC] = "async",
		[PTFLOW_ENABLE] = "enable",
		[PTFLOW_DISABLE] = "disable",
		[PTFLOW_DISABLE_ASYNC] = "disable-async",
		[PTFLOW_OVERFLOW] = "overflow",
		[PTFLOW_DESYNC] = "lost",
		[PTFLOW_RESYNC] = "found",
		[PTFLOW_NOTE] = "note",
	};

	return names[kind];
}

int main(int argc, char **argv)
{
	if (argc > 2 && strcmp(argv[1], "packets") == 0)
		return ptwalk_packets(argc - 2, argv + 2);
	if (argc > 3 && strcmp(argv[1], "blob") == 0)
		return ptwalk_blob(argc - 2, argv + 2);
	if (argc > 3 && strcmp(argv[1], "perfdata") == 0)
		return ptwalk_perfdata(argc - 2, argv + 2);
	ptwalk_bad_usage("packets|blob|perfdata");
}
