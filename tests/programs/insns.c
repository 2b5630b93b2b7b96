// SPDX-License-Identifier: Apache-2.0
/*
 * Says what common/base/insn.h makes of instructions: for each line of hexadecimal bytes on stdin one line
 * "length kind" on stdout, "0" for what is none. The argument is 32 or 64.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/insn.h"

static const char *const kinds[] = {
	[INSN_OTHER] = "other",	 [INSN_COND] = "cond",		    [INSN_JUMP] = "jump",
	[INSN_CALL] = "call",	 [INSN_CALL_NEXT] = "call",	    [INSN_JUMP_INDIRECT] = "jump*",
	[INSN_CALL_INDIRECT] = "call*", [INSN_RET] = "ret",	    [INSN_FAR_CALL] = "farcall",
	[INSN_FAR_RET] = "farret", [INSN_FAR_JUMP] = "farjump",	    [INSN_PTWRITE] = "ptwrite",
	[INSN_MOV_CR3] = "cr3",
};

int main(int argc, char **argv)
{
	char line[256];

	if (argc != 2)
		return 2;
	while (fgets(line, sizeof(line), stdin)) {
		uint8_t code[32];
		struct insn insn;
		size_t n = 0;
		char *p = line, *end;

		memset(code, 0x90, sizeof(code));
		for (;; p = end) {
			unsigned long b = strtoul(p, &end, 16);

			if (end == p || n == sizeof(code) / 2)
				break;
			code[n++] = (uint8_t)b;
		}
		if (insn_decode(code, sizeof(code), strcmp(argv[1], "64") == 0, &insn))
			(void)printf("%u %s\n", insn.length, kinds[insn.kind]);
		else
			(void)printf("0\n");
	}
	return 0;
}
