/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoding without the daemon: starts tracerd-decode on a bundle or a perf.data file, gives it the
 * files that it asks for, and waits for its end.
 */
#pragma once

#include "client/core/ctl.h"

struct offline_request {
	const char *input;           /* a bundle's directory, or a perf.data file */
	const char *format;          /* "pftrace" or "text" */
	const char *pt_info;         /* describes an input that is PT alone; NULL: it is none */
	const char *symfs;           /* a tree to look for programs in, or NULL */
	struct json_object *options; /* of the job; consumed, may be NULL */
	int out_fd;                  /* borrowed */
	int scratch_fd;              /* likewise; -1: the job needs none */
	const char *output;          /* how messages call it */
	uint64_t timeout_ns;
	int interrupt_fd;
};

/*
 * *ret_result is an object with "stats", "losses", "summary" and "max_rss_bytes". An exit code; a
 * failure has been reported.
 */
int offline_decode(struct ctl *ctl, const struct offline_request *request,
	struct json_object **ret_result) _must_check_;
