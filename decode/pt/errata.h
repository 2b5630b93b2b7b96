/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errata of Intel PT that change what packets mean, by the processor's family and model: those
 * whose workaround would be wrong on another one. Those that show themselves are handled where they
 * show (decode/pt/flow.c).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct pterrata {
	bool skd007; /* an overflow may be written into a packet of cycles */
	bool skd022; /* an entry into a virtual machine that ends tracing looks like an interrupt */
	/* a jump or call out of the address filter ends tracing without saying where to */
	bool skl014;
};

/* Family and model as CPUID gives them, 0: not known (no errata). */
void pterrata_of(uint16_t family, uint16_t model, struct pterrata *ret);
