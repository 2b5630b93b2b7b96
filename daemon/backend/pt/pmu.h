/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine's `intel_pt` PMU as sysfs describes it: its type, where each setting is in an event's
 * config, what the processor can do. Reads files and keeps numbers; opens no event. What is not
 * there is 0, as with older kernels and processors.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

#define PT_PMU_NAME "intel_pt"
#define PT_PMU_PATH "/sys/bus/event_source/devices/" PT_PMU_NAME

/* Settings of an event: "config:14-17" is where the number goes. */
enum pt_term {
	PT_TERM_PT,
	PT_TERM_CYC,
	PT_TERM_MTC,
	PT_TERM_TSC,
	PT_TERM_NORETCOMP,
	PT_TERM_BRANCH,
	PT_TERM_MTC_PERIOD,
	PT_TERM_CYC_THRESH,
	PT_TERM_PSB_PERIOD,
	PT_TERM_PTW,
	PT_TERM_FUP_ON_PTW,
	_PT_TERMS,
};

/* What the processor can do. Those with "s" at the end are masks of permitted values. */
enum pt_cap {
	PT_CAP_MTC,
	PT_CAP_PSB_CYC,
	PT_CAP_IP_FILTERING,
	PT_CAP_PTWRITE,
	PT_CAP_TOPA_MULTIPLE_ENTRIES,
	PT_CAP_MTC_PERIODS,
	PT_CAP_CYCLE_THRESHOLDS,
	PT_CAP_PSB_PERIODS,
	_PT_CAPS,
};

struct pt_pmu {
	uint32_t type;
	struct pt_field { /* bits first..last of config; width 0: the kernel does not know it */
		uint8_t first, width;
	} terms[_PT_TERMS];
	uint32_t caps[_PT_CAPS];
	uint32_t filters; /* ranges of addresses that an event can be limited to */
	uint32_t max_nonturbo_ratio; /* TSC frequency / 100 MHz; 0: unknown */
	/* TSC ticks for a tick of the crystal, as a fraction; 0: unknown */
	uint32_t tsc_ctc_n, tsc_ctc_d;
};

/*
 * Reads the PMU in the directory `path`, PT_PMU_PATH but for tests. 0; -ENOENT: the machine has
 * none; -EBADMSG: a file of it is not what it should be, `why` has which.
 */
int pt_pmu_read(const char *path, struct pt_pmu *ret, char *why, size_t why_size) _must_check_;

/*
 * Puts a number into a config: false if the PMU has no such setting, or the number no room in it.
 */
bool pt_pmu_set(const struct pt_pmu *pmu, enum pt_term term, uint64_t value, uint64_t *config);
/* The bits of a setting; 0: the PMU has none. */
uint64_t pt_pmu_bits(const struct pt_pmu *pmu, enum pt_term term);

/* For tests: "config:14-17" or "config:9"; digits only. */
int pt_field_parse(const char *text, struct pt_field *ret) _must_check_;
