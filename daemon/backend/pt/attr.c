// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/pt/attr.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/bundle/perfabi.h"

#define NONE (-1)
/* Of a synchronisation point each 2 KiB << 3 of trace: as perf asks for. */
#define PSB_PERIOD 3

struct preset {
	const char *name;
	int mtc_period; /* a packet each 2^n ticks of the crystal */
	int cyc_thresh; /* cycles, at least 2^(n - 1), before the next packet of cycles */
};

/* "normal" is what perf record takes where nothing is said. */
static const struct preset presets[PT_TIMINGS] = {
	[PT_TIMING_LOW] = {.name = "low", .mtc_period = NONE, .cyc_thresh = NONE},
	[PT_TIMING_NORMAL] = {.name = "normal", .mtc_period = 3, .cyc_thresh = NONE},
	[PT_TIMING_HIGH] = {.name = "high", .mtc_period = 0, .cyc_thresh = 0},
};

const char *pt_timing_name(enum pt_timing timing)
{
	return presets[timing].name;
}

enum pt_timing pt_timing_find(const char *name)
{
	enum pt_timing t = 0;

	while (t < PT_TIMINGS && strcmp(presets[t].name, name) != 0)
		t++;
	return t;
}

static void say(char *lacks, size_t size, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void say(char *lacks, size_t size, const char *fmt, ...)
{
	size_t len = strlen(lacks);
	va_list args;

	if (len && len + 2 < size) {
		memcpy(lacks + len, "; ", 3);
		len += 2;
	}
	va_start(args, fmt);
	(void)vsnprintf(lacks + len, size - len, fmt, args);
	va_end(args);
}

/*
 * As perf picks: the largest permitted number up to `want`, else the smallest above it; NONE: none
 * is permitted.
 */
static int pick(uint32_t permitted, int want)
{
	int picked = NONE;

	for (int i = 0; i < 32; i++) {
		if (!(permitted >> i & 1))
			continue;
		if (i <= want || picked < 0)
			picked = i;
		if (i >= want)
			break;
	}
	return picked;
}

/* One setting with the number that the processor permits: whether it could be set. */
static bool set_picked(const struct pt_pmu *pmu, enum pt_term term, uint32_t permitted, int want,
		       uint64_t *config, int *ret_picked)
{
	*ret_picked = pick(permitted, want);
	return *ret_picked >= 0 && pt_pmu_set(pmu, term, (uint64_t)*ret_picked, config);
}

static bool has_mtc(const struct pt_pmu *pmu)
{
	return pmu->caps[PT_CAP_MTC] && pmu->caps[PT_CAP_MTC_PERIODS];
}

static void set_mtc(const struct pt_pmu *pmu, const struct preset *p, uint64_t *config, char *lacks,
		    size_t size)
{
	int picked;

	if (p->mtc_period == NONE)
		return;
	if (!has_mtc(pmu) ||
	    !set_picked(pmu, PT_TERM_MTC_PERIOD, pmu->caps[PT_CAP_MTC_PERIODS], p->mtc_period,
			config, &picked) ||
	    !pt_pmu_set(pmu, PT_TERM_MTC, 1, config)) {
		say(lacks, size,
		    "no packets of the crystal's ticks (MTC): time is known at synchronisation points only");
		return;
	}
	if (picked != p->mtc_period)
		say(lacks, size, "mtc_period %d instead of %d", picked, p->mtc_period);
}

static void set_cyc(const struct pt_pmu *pmu, const struct preset *p, uint64_t *config, char *lacks,
		    size_t size)
{
	int picked;

	if (p->cyc_thresh == NONE)
		return;
	if (!pmu->caps[PT_CAP_PSB_CYC] || !pt_pmu_set(pmu, PT_TERM_CYC, 1, config)) {
		say(lacks, size, "no packets of cycles (CYC)");
		return;
	}
	if (!pmu->caps[PT_CAP_CYCLE_THRESHOLDS])
		return; /* each packet, which is what threshold 0 says */
	if (!set_picked(pmu, PT_TERM_CYC_THRESH, pmu->caps[PT_CAP_CYCLE_THRESHOLDS], p->cyc_thresh,
			config, &picked) ||
	    picked != p->cyc_thresh)
		say(lacks, size, "cyc_thresh %d instead of %d", picked, p->cyc_thresh);
}

/* What both events have. */
static struct perf_event_attr attr_common(const struct pt_attr_spec *spec)
{
	return (struct perf_event_attr){
		.size = sizeof(struct perf_event_attr),
		.sample_period = 1,
		.sample_type = PERFABI_SAMPLE_ID_TYPE | PERF_SAMPLE_IP,
		.sample_id_all = 1,
		.inherit = spec->inherit,
		.inherit_thread = spec->inherit && !spec->inherit_processes,
		.exclude_kernel = 1,
		.exclude_hv = 1,
		/*
		 * The clock of everything else that tracerd records. perf leaves it, but wants no
		 * other conversion of the TSC.
		 */
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC_RAW,
	};
}

int pt_attr_fill(const struct pt_pmu *pmu, const struct pt_attr_spec *spec,
		 struct perf_event_attr *ret, char *lacks, size_t lacks_size)
{
	const struct preset *p = &presets[spec->timing];
	uint64_t config = 0;
	int picked;

	lacks[0] = '\0';
	if (!pt_pmu_set(pmu, PT_TERM_TSC, 1, &config))
		return -EOPNOTSUPP;
	set_mtc(pmu, p, &config, lacks, lacks_size);
	set_cyc(pmu, p, &config, lacks, lacks_size);
	if (pmu->caps[PT_CAP_PSB_CYC] && pmu->caps[PT_CAP_PSB_PERIODS])
		(void)set_picked(pmu, PT_TERM_PSB_PERIOD, pmu->caps[PT_CAP_PSB_PERIODS], PSB_PERIOD,
				 &config, &picked);
	/* Before these two settings existed, every event traced branches. */
	(void)pt_pmu_set(pmu, PT_TERM_PT, 1, &config);
	(void)pt_pmu_set(pmu, PT_TERM_BRANCH, 1, &config);
	if (pmu->caps[PT_CAP_PTWRITE] && pt_pmu_set(pmu, PT_TERM_PTW, 1, &config))
		(void)pt_pmu_set(pmu, PT_TERM_FUP_ON_PTW, 1, &config);
	*ret = attr_common(spec);
	ret->type = pmu->type;
	ret->config = config;
	ret->disabled = 1;
	/*
	 * As perf has it without the modifier "u". The dummy stays as it is: its records are of
	 * user space in any case.
	 */
	ret->exclude_kernel = ret->exclude_hv = !spec->kernel;
	return 0;
}

void pt_attr_sideband(const struct pt_attr_spec *spec, uint64_t read_format,
		      struct perf_event_attr *ret)
{
	*ret = attr_common(spec);
	ret->type = PERF_TYPE_SOFTWARE;
	ret->config = PERF_COUNT_SW_DUMMY;
	ret->read_format = read_format;
	ret->context_switch = 1;
	ret->write_backward = 1;
	/* Nobody polls these rings. */
	ret->watermark = 1;
	ret->wakeup_watermark = UINT32_MAX;
}
