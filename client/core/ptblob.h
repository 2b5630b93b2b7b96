/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of an Intel PT trace alone, with a description in JSON: made a perf.data file in
 * memory, which is what the decoder reads. Knows the description, no packet.
 *
 *	{"cpu": {"family": 6, "model": 85, "stepping": 4},
 *	 "pid": 100, "tid": 101, "name": "prog",
 *	 "time": {"shift": 31, "mult": 1076264588, "zero": "18433473881008870804",
 *		  "nominal_ratio": 21, "tsc_ctc": [168, 2], "mtc_period": 3},
 *	 "cpu_number": 3, "switches": [["7002363907159404", 100, 101], ["7002363907200935", 0, 0]],
 *	 "mappings": [{"file": "prog", "offset": 0, "length": 8066, "address": 4194304}]}
 *
 * "cpu": of the processor that traced, for its errata. "time", what of it is known: how the TSC
 * becomes ns of perf's clock (as in perf's mmap page), TSC frequency by 100 MHz, CPUID.15H EBX and
 * EAX, and the MTC period of the trace's configuration. "cpu_number": the trace is of this CPU, not
 * of the one thread; "switches": from when on (ns of perf's clock, in order) which thread of which
 * process ran on it, 0 and 0 for none. The code is that of "pid".
 * "mappings": the executable files that the thread ran, relative to the description's directory.
 * All but "tid" and "mappings" may be left out; numbers that JSON programs do not keep whole may be
 * strings.
 */
#pragma once

#include "client/core/ctl.h"

/* `blob_fd` is borrowed. An exit code; a failure has been reported. *ret_fd is a perf.data file. */
int ptblob_open(struct ctl *ctl, const char *blob_path, int blob_fd, const char *info_path,
		int *ret_fd) _must_check_;
