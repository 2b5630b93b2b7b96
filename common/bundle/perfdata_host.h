/* SPDX-License-Identifier: Apache-2.0 */
/* What the feature sections of a perf.data say about the machine that it was recorded on. */
#pragma once

#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/base/vdso.h"

struct perfdata_host {
	char name[65], release[65], machine[65];
	char cpu[128]; /* "" if unknown */
	char cpuid[64]; /* "vendor,family,model,stepping"; "" if unknown */
	uint32_t cpus_online, cpus_configured;
	uint64_t memory_kib; /* 0 if unknown */
	uint8_t vdso_id[VDSO_BUILD_ID_MAX];
	size_t vdso_id_len; /* 0 if unknown */
};

/* Never fails: what cannot be read is empty. */
void perfdata_host_read(struct perfdata_host *ret);
