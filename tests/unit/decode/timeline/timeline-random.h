/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns random but sorted streams of events, as contradictory as a recording with losses can be:
 * whatever comes in, what comes out must nest.
 */
#pragma once

#include "decode/timeline/timeline.h"

int timeline_random_play(uint64_t seed, uint64_t n_events, struct writer *w,
			 struct timeline_stats *ret_stats, struct json_object **ret_summary);
