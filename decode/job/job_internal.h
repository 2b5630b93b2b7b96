/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of a job: job.c takes it apart and answers it, decode.c does the decoding. */
#pragma once

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/utsname.h>

#include "decode/base/budget.h"
#include "decode/base/file_request.h"
#include "decode/job/link.h"
#include "decode/job/sandbox.h"
#include "decode/pt/dump.h"

struct workers;
struct writer;

enum job_input { JOB_BUNDLE, JOB_PERFDATA, JOB_GO, JOB_PROBE, JOB_RESOLVE, JOB_UNWIND };

struct job {
	enum job_input input;
	bool text;
	enum dump_kind view; /* instead of a timeline */
	bool compress;
	bool symbols;
	bool lines;   /* where in the source code things are */
	bool verify;  /* what PT says, with libipt */
	bool inlined; /* exact calls, those that were inlined, too */
	bool identify; /* the parent wants the build ids of all files that were mapped */
	bool idle;
	unsigned threads;
	uint64_t max_output, max_memory;
	uint64_t last_ns; /* the summary looks at the end, so long, by itself; 0: it does not */
	int perfdata_fd, meta_fd, vdso_fd, go_fd, kallsyms_fd, kcore_fd, scratch_fd, out_fd;
	/* of a Go trace: its events as text; what is in the file, not its events */
	bool go_print, go_wire;
	int probe_fds[DECODER_PACKET_MAX_FDS];
	size_t n_probe;
	struct json_object *body; /* of a question (resolve.h); NULL */

	struct utsname host;
	struct parent_link link;
	struct file_requester files;
	struct sandbox_layers layers;
	struct budget budget;
	struct workers *workers; /* of the decoding, made before the sandbox */
	uint64_t began_ns;
	struct json_object *stats, *losses, *summary;
	const char *stage;
	int output_error; /* -errno: the output could not be written */
	char error[256];
};

/* Keeps the sentence that RESULT will say. -EINVAL. */
int job_refuse(struct job *j, const char *why);

/* Decodes into `w`; fills stats, losses and summary. 0, or a negative errno. */
int job_decode(struct job *j, struct writer *w);

/* Prints the Go trace. The same. */
int job_print_go(struct job *j);
